"""One module a verb: draw what the verb answered, as tables and text for a terminal."""

"""Draw what a verb answered, as tables and text for a terminal."""

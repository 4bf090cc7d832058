"""The refresh: an update of the served model with the events since, in its own process, checked, then published."""

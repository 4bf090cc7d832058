"""The event store: what users did, what is known of items, and the generations of the model, in one SQLite file."""

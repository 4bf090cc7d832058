"""The kinds of cells: each knows how it is computed, recorded and shown."""

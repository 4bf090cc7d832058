"""Statistics of results by depth, and of embeddings."""

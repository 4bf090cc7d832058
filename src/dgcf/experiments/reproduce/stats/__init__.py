"""Statistics that the reproduction computes of its results and embeddings."""

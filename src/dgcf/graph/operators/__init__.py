"""Propagation operators: linear maps of node embeddings with exact adjoints."""

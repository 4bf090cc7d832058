"""Exports to programs that search vectors: faiss, PostgreSQL with pgvector, Qdrant. One module is one target."""

from dgcf.recommend.targets.export import Checking, Place, export_vectors, target_of

__all__ = ["Checking", "Place", "export_vectors", "target_of"]

"""Graph recommendations that explain themselves: Deoscillated Adaptive Graph Collaborative Filtering."""

__version__ = "0.1.0"

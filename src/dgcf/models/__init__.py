"""The models room: a graph, or pairs alone, become a ranking; no optimiser, loss or sampler lives here."""

from dgcf.models.base import AtOnceModel, DropSchedule, Embeddings, GraphModel, ItemWeights, Model, Ranking
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.gates import gate_correlation
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.models.mf import MatrixFactorisation, MatrixFactorisationConfig

__all__ = [
    "CATALOG",
    "DGCF",
    "AtOnceModel",
    "DGCFConfig",
    "DropSchedule",
    "Embeddings",
    "Entry",
    "GraphModel",
    "ItemWeights",
    "LightGCN",
    "LightGCNConfig",
    "MatrixFactorisation",
    "MatrixFactorisationConfig",
    "Model",
    "Ranking",
    "entry",
    "gate_correlation",
]

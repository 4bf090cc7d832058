"""The models room: parameters and ``forward(propagation)``; no data, optimiser, loss, sampler or ranking lives here."""

from dgcf.models.base import DropSchedule, Embeddings, GraphModel
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.gates import gate_correlation
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.models.mf import MatrixFactorisation, MatrixFactorisationConfig

__all__ = [
    "CATALOG",
    "DGCF",
    "DGCFConfig",
    "DropSchedule",
    "Embeddings",
    "Entry",
    "GraphModel",
    "LightGCN",
    "LightGCNConfig",
    "MatrixFactorisation",
    "MatrixFactorisationConfig",
    "entry",
    "gate_correlation",
]

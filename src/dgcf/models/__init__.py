"""The models: from a graph, or from training pairs alone, to a ranking."""

from dgcf.models.base import DropSchedule, GraphModel, Model, SolvedModel
from dgcf.models.catalog import CATALOG, Entry, entry
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.gates import gate_correlation
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.models.mf import MatrixFactorisation, MatrixFactorisationConfig
from dgcf.ranking.rankings import Embeddings, ItemWeights, Ranking

__all__ = ["CATALOG", "DGCF", "DGCFConfig", "DropSchedule", "Embeddings", "Entry", "GraphModel", "ItemWeights"]
__all__ += ["LightGCN", "LightGCNConfig", "MatrixFactorisation", "MatrixFactorisationConfig", "Model", "Ranking"]
__all__ += ["SolvedModel", "entry", "gate_correlation"]

"""The catalogue of models by name. A variant of a model is a line here with other settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dgcf.config import parameters
from dgcf.errors import ConfigError, did_you_mean
from dgcf.models.base import GraphModel, Model, SolvedModel
from dgcf.models.bspm import BSPM, BSPMConfig
from dgcf.models.chebycf import ChebyCF, ChebyCFConfig
from dgcf.models.config import GraphModelConfig, ModelConfig
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.ease import EASE, EASEConfig
from dgcf.models.gcmc import GCMC, GCMCConfig
from dgcf.models.gcn import GCN, GCNConfig
from dgcf.models.gfcf import GFCF, GFCFConfig
from dgcf.models.ials import IALS, IALSConfig
from dgcf.models.itemknn import ItemKNN, ItemKNNConfig
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.models.mf import MatrixFactorisation, MatrixFactorisationConfig
from dgcf.models.ngcf import NGCF, NGCFConfig
from dgcf.models.popularity import Popularity, PopularityConfig
from dgcf.models.random_order import RandomOrder, RandomOrderConfig
from dgcf.models.sage import SAGE, SAGEConfig
from dgcf.models.sgc import SGC, SGCConfig
from dgcf.models.spectralcf import SpectralCF, SpectralCFConfig


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue: its name, class, default settings and description."""

    name: str
    kind: type[GraphModel] | type[SolvedModel]
    config: ModelConfig
    about: str

    @property
    def solved(self) -> bool:
        """Whether the model is solved in closed form; then it has none of the training loop's settings."""
        return issubclass(self.kind, SolvedModel)

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another model."""
        return self.kind.seeded

    @property
    def has_embeddings(self) -> bool:
        """Whether the model ranks by embeddings; otherwise by weights between items."""
        return self.kind.has_embeddings

    @property
    def keys(self) -> list[str]:
        """The names of the model's settings."""
        return [field.name for field in fields(self.config)]

    def build(self, n_users: int, n_items: int, config: ModelConfig | None = None, seed: int = 0) -> Model:
        """Return a model with these settings, ``config`` or the defaults; ``seed`` draws a graph model's weights."""
        config = self.config if config is None else config
        if issubclass(self.kind, SolvedModel):
            return self.kind(n_users, n_items, config)
        assert isinstance(config, GraphModelConfig)
        return self.kind(n_users, n_items, config, seed)

    def to_dict(self) -> dict[str, Any]:
        """Return the description, how the model is trained, its equation and its own settings, JSON-ready."""
        return {
            "name": self.name,
            "about": self.about,
            "trained": "at once" if self.solved else "in epochs",
            "source": (inspect.getdoc(self.kind) or "").replace("``", "`"),
            "parameters": [parameter.to_dict() for parameter in parameters(self.config)],
        }


CATALOG: Mapping[str, Entry] = {
    model.name: model
    for model in (
        Entry("dgcf", DGCF, DGCFConfig(), "cross-hop propagation and a gate for each node and layer"),
        Entry("dgcf-chp", DGCF, DGCFConfig(gates="none"), "DGCF without gates"),
        Entry("dgcf-la", DGCF, DGCFConfig(cross="none"), "DGCF without cross-hop propagation"),
        Entry("dgcf-sl", DGCF, DGCFConfig(gates="shared"), "DGCF with gates shared by all layers"),
        Entry("lightgcn", LightGCN, LightGCNConfig(), "linear propagation over the user–item graph"),
        Entry("bpr-mf", MatrixFactorisation, MatrixFactorisationConfig(), "matrix factorisation without a graph"),
        Entry("gcn", GCN, GCNConfig(), "graph convolutions with weights and self-loops; ranks by the last layer"),
        Entry(
            "gcn-jk",
            GCN,
            GCNConfig(readout="concat", message_dropout=0.3),
            "GCN with jumping knowledge: ranks by all layers concatenated",
        ),
        Entry("gc-mc", GCMC, GCMCConfig(), "a graph convolution and a dense layer per propagation layer"),
        Entry("ngcf", NGCF, NGCFConfig(), "graph convolutions with products of a node and its neighbours"),
        Entry("sgc", SGC, SGCConfig(), "simplified GCN: a power of the graph and one weight matrix"),
        Entry("spectralcf", SpectralCF, SpectralCFConfig(), "spectral filters of the graph; layers concatenated"),
        Entry("sage", SAGE, SAGEConfig(), "GraphSAGE: a node and the mean of sampled neighbours in every layer"),
        Entry("ease", EASE, EASEConfig(), "linear regression between items, in closed form"),
        Entry("ials", IALS, IALSConfig(), "matrix factorisation by alternating least squares, solved by `implicit`"),
        Entry("item-knn", ItemKNN, ItemKNNConfig(), "nearest neighbours of the user's items"),
        Entry("gf-cf", GFCF, GFCFConfig(), "linear filter and ideal low pass of the item graph, without training"),
        Entry("bspm", BSPM, BSPMConfig(), "the filter of GF-CF, sharpened; without training"),
        Entry("chebycf", ChebyCF, ChebyCFConfig(), "Chebyshev filter of the item graph, without training"),
        Entry("popularity", Popularity, PopularityConfig(), "the most popular items, the same for every user"),
        Entry("random", RandomOrder, RandomOrderConfig(), "a random order of the items for each user"),
    )
}


def entry(name: str) -> Entry:
    """Return the model called ``name``; raise ``ConfigError`` with the nearest name if there is none."""
    try:
        return CATALOG[name]
    except KeyError:
        hint = did_you_mean(name, CATALOG) or f"; there are {', '.join(CATALOG)}."
        raise ConfigError(f"there is no model {name!r}{hint}") from None

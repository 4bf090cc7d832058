"""The models by name: what is built, with which settings. A variant is a line here, never a copied function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from dgcf.errors import ConfigError, did_you_mean
from dgcf.graph import PropagationSpec
from dgcf.models.base import GraphModel
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.models.mf import MatrixFactorisation, MatrixFactorisationConfig


class ModelConfig(Protocol):
    """A frozen dataclass of a model's settings."""

    __dataclass_fields__: Any

    def spec(self) -> PropagationSpec | None:
        """The operator that the model propagates with, or None for a model without a graph."""
        ...


@dataclass(frozen=True)
class Entry:
    """One name of the catalogue: ``build(n_users, n_items, config, seed)`` with its default ``config``."""

    name: str
    build: Callable[..., GraphModel]
    config: Any
    about: str

    @property
    def keys(self) -> list[str]:
        """The settings that the model has."""
        return [field.name for field in fields(self.config)]


CATALOG: Mapping[str, Entry] = {
    found.name: found
    for found in (
        Entry("dgcf", DGCF, DGCFConfig(), "cross-hop propagation and a gate per node and layer"),
        Entry("dgcf-chp", DGCF, DGCFConfig(gates="none"), "DGCF without gates"),
        Entry("dgcf-la", DGCF, DGCFConfig(cross="none"), "DGCF without cross-hop propagation"),
        Entry("dgcf-sl", DGCF, DGCFConfig(gates="shared"), "DGCF with one gate per node for all layers"),
        Entry("lightgcn", LightGCN, LightGCNConfig(), "propagation over the user–item graph alone"),
        Entry("bpr-mf", MatrixFactorisation, MatrixFactorisationConfig(), "matrix factorisation, no graph"),
    )
}


def entry(name: str) -> Entry:
    """The catalogue's entry of that name."""
    try:
        return CATALOG[name]
    except KeyError:
        hint = did_you_mean(name, CATALOG) or f"; there are {', '.join(CATALOG)}."
        raise ConfigError(f"there is no model {name!r}{hint}") from None

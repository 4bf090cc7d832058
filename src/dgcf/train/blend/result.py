"""The result of blending: the added weights and prior, which parts they are of, and the validation of every choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Rows
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.weights import SparseWeights
from dgcf.stored import check_type


class _PartAbout(TypedDict):
    part: str
    weight: float
    factor: float


class _About(TypedDict):
    parts: list[_PartAbout]
    curve: list[dict[str, Any]]
    validation: dict[str, float]
    left_out: list[dict[str, str]]


@dataclass(frozen=True)
class Blending:
    """The weights that are added to the scores of the embeddings, or None if validation prefers none.

    ``parts``: the model, settings and weight of each part that is used. ``curve``: the validation metric of every
    weighting that was tried. ``validation``: the metrics of the composed ranking; empty without a validation split.
    ``left_out``: the parts of ``auto`` that do not fit, with the reason. ``prior``: what is added for each item,
    (n_items,) float32; None without a prior.
    """

    weights: SparseWeights | None
    parts: tuple[Mapping[str, Any], ...] = ()
    curve: tuple[Mapping[str, Any], ...] = ()
    validation: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[Mapping[str, str], ...] = ()
    seconds: float = 0.0
    prior: Rows | None = None

    def compose(self, embeddings: Embeddings[Tensor], pairs: Pairs) -> Embeddings[Tensor] | Blend[Tensor]:
        """Return the composed ranking; the embeddings themselves if nothing is added."""
        return embeddings if self.weights is None else Blend(embeddings, pairs, self.weights, self.prior)

    @property
    def text(self) -> str:
        """The parts with their weights, such as ``0.5 × bspm(rank=56) + 0.35 × ease(l2=200)``; ``none`` without any."""
        return " + ".join(f"{part['weight']:g} × {part['part']}" for part in self.parts) or "none"

    def settings(self) -> dict[str, str]:
        """Return the settings that give these parts and weights again, without a choice on validation."""
        return settings_of(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights and the time, JSON-ready: equal trainings give equal data."""
        return {
            "parts": [dict(part) for part in self.parts],
            "curve": [dict(point) for point in self.curve],
            "validation": dict(self.validation),
            "left_out": [dict(part) for part in self.left_out],
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights and the prior as tensors for a checkpoint; empty if nothing is added."""
        if self.weights is None:
            return {}
        arrays = {**self.weights.arrays(), **({} if self.prior is None else {"prior": self.prior})}
        return {f"blend.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    @classmethod
    def of(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor], n_items: int) -> Blending:
        """Return what ``to_dict`` and ``tensors`` gave; raise ``ValueError`` if they are not of that form."""
        checked = check_type(about, _About)
        weights = prior = None
        if tensors:
            pairs = Pairs.from_arrays("", lambda name, dtype: _array(tensors, name, dtype), n_items, n_items)
            values = _array(tensors, "values", "float32")
            if len(values) != len(pairs):
                raise ValueError("the blended weights have another number of values than of columns")
            if "prior" in tensors and len(prior := _array(tensors, "prior", "float32")) != n_items:
                raise ValueError("the blended prior has another number of values than of items")
            if not all(np.isfinite(array).all() for array in (values, prior) if array is not None):
                raise ValueError("the blended weights hold a number that is not finite")
            weights = SparseWeights(pairs.indptr, pairs.indices, values, n_items)
        parts, curve, left_out = (tuple(checked[name]) for name in ("parts", "curve", "left_out"))
        return cls(weights, parts, curve, checked["validation"], left_out, prior=prior)


def settings_of(parts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return ``blend`` and ``blend_weights`` for recorded parts."""
    if not parts:
        return {"blend": "none", "blend_weights": "auto"}
    # Not as "1e+06", whose + would separate two numbers.
    numbers = "+".join(str(float(part["weight"])).removesuffix(".0") for part in parts)
    return {"blend": "+".join(part["part"] for part in parts), "blend_weights": numbers}


def _array(tensors: Mapping[str, Tensor], name: str, dtype: str) -> Any:
    array = tensors[name].numpy() if name in tensors else np.zeros(0)
    if array.dtype != np.dtype(dtype) or array.ndim != 1:
        raise ValueError(f"the blended weights have no array {name} of {np.dtype(dtype)}")
    return array

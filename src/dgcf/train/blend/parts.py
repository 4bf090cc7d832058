"""The parts of a composed ranking: the candidates for each, and what they add: sparse item weights, or a prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.config import configure
from dgcf.data.pairs import Pairs
from dgcf.models.base import SolvedModel
from dgcf.models.catalog import CATALOG
from dgcf.ranking.arrays import Rows
from dgcf.ranking.rankings import Embeddings, ItemWeights
from dgcf.ranking.torch_backend import largest_columns
from dgcf.ranking.weights import DenseWeights, SparseWeights, WeightMatrix
from dgcf.train.blend.config import EASE, FILTER, Part

# Multiply-adds that all candidates of a part may take together; the first one of a filter is always computed.
_FILTER_WORK = 2e11
_EASE_WORK = 4e11
_EASE_L2 = (200.0, 100.0, 400.0, 50.0, 800.0, 25.0)
_BLOCK_ENTRIES = 1 << 24


@dataclass(frozen=True)
class _Filter:
    """A candidate for the filter: its rank is ``per_root`` times the square root of the number of users or items."""

    model: str
    per_root: float
    settings: dict[str, float]

    def part(self, n_users: int, n_items: int) -> Part:
        side = min(n_users, n_items)
        rank = min(max(1, round(self.per_root * side**0.5)), side)
        return Part(self.model, (("rank", rank), *self.settings.items()))


_FILTERS = (
    _Filter("bspm", 2.6, {"low_pass": 0.2, "sharpening": 2.5}),
    _Filter("bspm", 1.3, {"low_pass": 0.2, "sharpening": 1.0}),
    _Filter("chebycf", 1.3, {"low_pass": 0.5, "flatness": 1.0, "degree_power": 0.5}),
    _Filter("bspm", 1.3, {"low_pass": 1.0, "sharpening": 1.0}),
    _Filter("bspm", 0.7, {"low_pass": 0.2, "sharpening": 1.0}),
)
"""They differ in what suits small dense data and large sparse data; the first is for the latter."""


def candidates(part: Part, pairs: Pairs) -> list[Part]:
    """Return the models and settings that a part stands for on this data, the most likely first.

    Empty for ``ease`` if the data has too many items for it. A part with settings stands for itself.
    """
    if part.name == FILTER:
        work, limit = _filter_work(pairs), _FILTER_WORK
        choices = [one.part(pairs.n_users, pairs.n_items) for one in _FILTERS]
        return choices[: max(1, int(limit // max(work, 1.0)))]
    if part.name == EASE and not part.settings:
        count = int(_EASE_WORK // max(float(pairs.n_items) ** 3, 1.0))
        return [Part(EASE, (("l2", l2),)) for l2 in _EASE_L2[:count]]
    return [part]


def _filter_work(pairs: Pairs) -> float:
    """Estimate the multiply-adds of a filter: a polynomial of degree 5, and the product of the low pass."""
    n_items = float(pairs.n_items)
    rank = 2.6 * min(pairs.n_users, pairs.n_items) ** 0.5
    return float(n_items * (5 * 2 * len(pairs) + rank * n_items))


def solve_part(part: Part, pairs: Pairs, neighbours: int, device: torch.device | str) -> SparseWeights | Rows:
    """Return W of a part, of each row the ``neighbours`` entries of largest magnitude; or its prior, (n_items,)."""
    entry = CATALOG[part.name]
    settings = dict(part.settings)
    if "neighbours" in entry.keys:
        settings.setdefault("neighbours", neighbours)
    config = configure(entry.config, settings, f"{part.name} in blend")
    config.require_memory(part.name, pairs.n_users, pairs.n_items, len(pairs))
    model = entry.build(pairs.n_users, pairs.n_items, config)
    assert isinstance(model, SolvedModel)
    model.solve(pairs, 0, device)
    ranking = model.ranking(pairs)
    if isinstance(ranking, Embeddings):  # popularity: every user has the row 1
        return ranking.to_numpy().items[:, 0]
    assert isinstance(ranking, ItemWeights)
    return truncate(ranking.weights, neighbours)


def sum_of(
    terms: Sequence[SparseWeights | Rows], factors: Sequence[float], neighbours: int
) -> tuple[SparseWeights | None, Rows | None]:
    """Return ``Σ_m c_m W_m`` and the sum of the priors, None without one; no weights at all without any term."""
    if not terms:
        return None, None
    pairs = list(zip(terms, factors, strict=True))
    matrices = [(term, factor) for term, factor in pairs if isinstance(term, SparseWeights)]
    priors = [term * np.float32(factor) for term, factor in pairs if not isinstance(term, SparseWeights)]
    prior: Rows | None = np.sum(priors, axis=0) if priors else None
    if not matrices:
        return SparseWeights.empty(len(priors[0])), prior
    return combine([term for term, _ in matrices], [factor for _, factor in matrices], neighbours), prior


def combine(parts: Sequence[SparseWeights], factors: Sequence[float], neighbours: int) -> SparseWeights:
    """Return ``Σ_m c_m W_m``, of each row the ``neighbours`` entries of largest magnitude."""
    terms = [_to_scipy(weights) * np.float32(factor) for weights, factor in zip(parts, factors, strict=True)]
    total = csr_array(sum(terms[1:], start=terms[0]))
    total.sum_duplicates()
    total.eliminate_zeros()
    indptr, indices = total.indptr.astype(np.int64), total.indices.astype(np.int32)
    return truncate(SparseWeights(indptr, indices, total.data.astype(np.float32), total.shape[1]), neighbours)


def truncate(weights: WeightMatrix, neighbours: int) -> SparseWeights:
    """Return the ``neighbours`` entries of largest magnitude of each row; of equal ones those of smaller columns."""
    n_columns = weights.shape[1]
    counts, columns, values = [np.zeros(1, dtype=np.int64)], list[NDArray[np.int32]](), list[NDArray[np.float32]]()
    for block, places in _dense_blocks(weights):
        kept = min(neighbours, block.shape[1])
        chosen = largest_columns(torch.from_numpy(np.abs(block)), kept).numpy()
        value = np.take_along_axis(block, chosen, axis=1)
        column = chosen if places is None else np.take_along_axis(places, chosen, axis=1)
        used = value != 0
        counts.append(used.sum(1))
        columns.append(column[used].astype(np.int32))
        values.append(value[used])
    indptr = np.cumsum(np.concatenate(counts)).astype(np.int64)
    return SparseWeights(indptr, np.concatenate(columns), np.concatenate(values), n_columns)


def _dense_blocks(weights: WeightMatrix) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32] | None]]:
    """Yield blocks of rows as rectangles of values, padded with 0, and the columns of these if they are not all."""
    if isinstance(weights, DenseWeights):
        step = max(1, _BLOCK_ENTRIES // max(weights.shape[1], 1))
        for start in range(0, weights.shape[0], step):
            yield weights.values[start : start + step], None
        return
    assert isinstance(weights, SparseWeights)
    lengths = np.diff(weights.indptr)
    width = max(1, int(lengths.max(initial=0)))
    step = max(1, _BLOCK_ENTRIES // width)
    for start in range(0, len(lengths), step):
        length = lengths[start : start + step]
        entries = slice(weights.indptr[start], weights.indptr[start + len(length)])
        filled = np.arange(width) < length[:, None]
        values, columns = np.zeros(filled.shape, dtype=np.float32), np.zeros(filled.shape, dtype=np.int32)
        values[filled], columns[filled] = weights.values[entries], weights.indices[entries]
        yield values, columns


def _to_scipy(weights: SparseWeights) -> csr_array:
    return csr_array((weights.values, weights.indices, weights.indptr), shape=weights.shape)

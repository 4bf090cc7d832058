"""Choose the parts and weights of a composed ranking on validation, after training and without any more of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.ranking.arrays import Rows
from dgcf.ranking.blend import item_sum_scale
from dgcf.ranking.rankings import Embeddings, ItemWeights
from dgcf.ranking.torch_backend import item_sums
from dgcf.ranking.weights import SparseWeights
from dgcf.train.blend.config import EASE, FILTER, POPULARITY, RECENT, BlendConfig, Part
from dgcf.train.blend.parts import candidates, solve_part, sum_of
from dgcf.train.blend.result import Blending

GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
"""The weights that ``auto`` tries for each part."""
DEFAULT_WEIGHTS: Mapping[str, float] = {FILTER: 0.5, EASE: 0.35, POPULARITY: 0.0}
"""Without a validation split: what validation chose on the median of nine datasets. Other parts count as filters."""
_SPREAD_USERS = 512
_CACHE_BYTES = 2**30


class BlendInterrupted(Exception):  # noqa: N818 (not an error)
    """Training was interrupted before the weights were chosen."""


@dataclass(frozen=True)
class _Solved:
    """A part whose weights between items, or prior of each item, are computed; ``name`` is how the setting named it."""

    name: str
    part: Part
    weights: SparseWeights | Rows


@dataclass(frozen=True)
class Blender:
    """Composes rankings of one dataset. Its parts do not depend on the embeddings, so several seeds share them.

    ``validate`` maps a ranking to metrics, of which ``metric`` decides; without it the stated weights are used.
    ``forecast``: the validation pairs are all later than the training pairs, so that recent popularity may help.
    """

    config: BlendConfig
    pairs: Pairs
    metric: str
    validate: Callable[[Any], Mapping[str, float]] | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    interrupted: Callable[[], bool] = lambda: False
    forecast: bool = False

    def fit(self, embeddings: Embeddings[Tensor]) -> Blending:
        """Return the weights to add to the scores of ``embeddings``."""
        started = time.perf_counter()
        solved, left_out = self.parts
        scorer = _Mixture(embeddings, self.pairs, [part.weights for part in solved])
        spreads = scorer.spreads()
        unit = [spreads[0] / spread if spread > 0 else 0.0 for spread in spreads[1:]]
        curve = list[dict[str, Any]]()
        if self.config.numbers is not None:
            chosen = self.config.numbers
        elif self.validate is None:
            chosen = tuple(DEFAULT_WEIGHTS.get(part.name, DEFAULT_WEIGHTS[FILTER]) for part in solved)
        else:
            chosen, curve = self._search(scorer, unit)
        used = [place for place, weight in enumerate(chosen) if weight * unit[place] > 0]
        factors = [chosen[place] * unit[place] for place in used]
        weights, prior = sum_of([solved[place].weights for place in used], factors, self.config.blend_neighbours)
        parts = [
            {"part": str(solved[place].part), "weight": chosen[place], "factor": factor}
            for place, factor in zip(used, factors, strict=True)
        ]
        blending = Blending(weights, tuple(parts), (*self.tried, *curve), {}, left_out, prior=prior)
        validation = {} if self.validate is None else dict(self.validate(blending.compose(embeddings, self.pairs)))
        seconds = time.perf_counter() - started
        return replace(blending, validation=validation, seconds=seconds)

    @cached_property
    def tried(self) -> list[dict[str, Any]]:
        """The validation metric of every candidate for a part, alone."""
        return []

    @cached_property
    def parts(self) -> tuple[list[_Solved], tuple[Mapping[str, str], ...]]:
        """The best candidate of every part, and the parts that were left out."""
        solved, left_out = list[_Solved](), list[Mapping[str, str]]()
        auto = self.config.blend == "auto"
        for part in (*self.config.parts, *RECENT) if auto and self.forecast else self.config.parts:
            choices = candidates(part, self.pairs)
            if auto and not choices:
                reason = f"it takes more than seconds with {self.pairs.n_items:,} items"
                left_out.append({"part": str(part), "reason": reason})
                continue
            try:
                solved.append(self._best(part, choices or [part]))
            except ConfigError as problem:  # too little memory
                if not auto:
                    raise
                left_out.append({"part": str(part), "reason": str(problem)})
        return solved, tuple(left_out)

    def _best(self, part: Part, choices: Sequence[Part]) -> _Solved:
        """Return the candidate that ranks best alone on validation; the first one without validation."""
        best, top = None, float("-inf")
        for choice in choices if self.validate is not None else choices[:1]:
            self._stop_if_asked()
            weights = solve_part(choice, self.pairs, self.config.blend_neighbours, self.device)
            value = 0.0
            if self.validate is not None and len(choices) > 1:
                assert isinstance(weights, SparseWeights)
                value = float(self.validate(ItemWeights(self.pairs, weights))[self.metric])
                self.tried.append({"part": str(choice), self.metric: value})
            if best is None or value > top:
                best, top = _Solved(part.name, choice, weights), value
        assert best is not None
        return best

    def _search(self, scorer: _Mixture, unit: Sequence[float]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
        """Return the weights of the grid that validate best, part by part until none changes, and all that were tried.

        Each part in turn takes its best value given the others. Of equal ones the smaller stays. The candidates of
        ``auto`` for one part share a turn, and all but one of them have the weight 0.
        """
        assert self.validate is not None
        values: dict[tuple[float, ...], float] = {}
        curve = list[dict[str, Any]]()

        def value_of(weights: tuple[float, ...]) -> float:
            assert self.validate is not None
            if weights not in values:
                self._stop_if_asked()
                scorer.factors = [weight * one for weight, one in zip(weights, unit, strict=True)]
                values[weights] = float(self.validate(scorer)[self.metric])
                curve.append({"weights": list(weights), self.metric: values[weights]})
            return values[weights]

        best = tuple(0.0 for _ in unit)
        value_of(best)
        while True:
            before = best
            for places in self._turns:
                others = [0.0 if place in places else weight for place, weight in enumerate(best)]
                choices = [(place, weight) for place in places for weight in GRID]
                best = max(((*others[:place], weight, *others[place + 1 :]) for place, weight in choices), key=value_of)
            if best == before:
                return best, curve

    @property
    def _turns(self) -> list[list[int]]:
        """The places of the parts that take their weights together."""
        names = [part.name for part in self.parts[0]]
        if self.config.blend != "auto":
            return [[place] for place in range(len(names))]
        return [[place for place, other in enumerate(names) if other == name] for name in dict.fromkeys(names)]

    def _stop_if_asked(self) -> None:
        if self.interrupted():
            raise BlendInterrupted


class _Mixture:
    """Scores ``⟨e_u, e_i⟩ + Σ_m c_m F_m(u, i)``: the parts' scores are computed once if they fit into memory."""

    def __init__(self, embeddings: Embeddings[Tensor], pairs: Pairs, weights: Sequence[SparseWeights | Rows]) -> None:
        self.embeddings, self.pairs, self.weights = embeddings, pairs, weights
        self.factors = [0.0] * len(weights)
        self.device = embeddings.items.device
        n_terms = 1 + sum(isinstance(one, SparseWeights) for one in weights)  # a prior is small
        needed = 4 * pairs.n_users * pairs.n_items * n_terms
        self.cached = needed <= (_CACHE_BYTES if self.device.type == "cpu" else torch.cuda.mem_get_info()[0] // 3)
        self._blocks: dict[tuple[int | None, bytes], Tensor] = {}

    def scores(self, user_idx: Tensor) -> Tensor:
        """Return the scores (batch, n_items) of users (batch,) int64."""
        total = self._term(None, user_idx).clone()
        for number, factor in enumerate(self.factors):
            if factor:
                total.add_(self._term(number, user_idx), alpha=factor)
        return total

    def _term(self, number: int | None, user_idx: Tensor) -> Tensor:
        """Return the scores of the embeddings (None) or of a part."""
        weights = None if number is None else self.weights[number]
        if isinstance(weights, np.ndarray):
            return torch.from_numpy(weights).to(self.device).expand(len(user_idx), -1)
        key = number, user_idx.numpy().tobytes()
        if key in self._blocks:
            return self._blocks[key]
        if weights is None:
            term = self.embeddings.scores(user_idx)
        else:
            items = self.pairs.take(user_idx.numpy())
            term = item_sums(self.device, weights, items, item_sum_scale(items.user_degrees))
        if self.cached:
            self._blocks[key] = term
        return term

    def spreads(self) -> list[float]:
        """Return the mean over users of the deviation over items, of the embeddings' scores and of each part's."""
        users = np.flatnonzero(self.pairs.user_degrees)
        some = torch.from_numpy(users[:: max(1, len(users) // _SPREAD_USERS)][:_SPREAD_USERS])
        cached, self.cached = self.cached, False
        terms = (self._term(number, some) for number in (None, *range(len(self.weights))))
        spreads = [float(term.std(dim=1, correction=0).double().mean()) for term in terms]
        self.cached = cached
        return spreads

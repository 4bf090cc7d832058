"""The result of an evaluation: means, values per user, uncertainty, and the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ConfigError, did_you_mean
from dgcf.evaluate.bootstrap import CONFIDENCE, RESAMPLES, bootstrap_intervals


@dataclass(frozen=True)
class UserGroup:
    """The users with ``at_least`` to ``at_most`` interactions; ``means`` is empty if there are none."""

    at_least: int
    at_most: int
    users: int
    interactions: int
    means: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        counts = {"at_least": self.at_least, "at_most": self.at_most, "users": self.users}
        return {**counts, "interactions": self.interactions, **self.means}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metrics of one ranking, such as ``means["recall@20"]``, with the protocol they were measured by.

    ``split`` holds the relevant items; the items of ``mask`` were hidden. ``user_idx`` (n,): the users evaluated,
    ascending; ``values[name]`` (n,): their values; ``train_degrees`` and ``all_degrees`` (n,): their number of items in
    train and in all splits. ``coverage`` is of all lists together and has no value per user. ``left_out`` counts the
    users without a relevant item, and those with one but without a train item. ``leaked_pairs``: the number of relevant
    pairs of the users evaluated that the mask hides; no ranking can reach them, and they stay in the denominators.
    """

    split: str
    mask: str
    ks: tuple[int, ...]
    user_idx: NDArray[np.int64]
    train_degrees: NDArray[np.int64]
    all_degrees: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    coverage: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    leaked_pairs: int = 0
    seed: int = 0
    resamples: int = RESAMPLES
    confidence: float = CONFIDENCE

    @property
    def users_evaluated(self) -> int:
        return len(self.user_idx)

    @cached_property
    def means(self) -> Mapping[str, float]:
        """The mean of each metric over the users evaluated, and the coverage."""
        means = {name: float(value.mean()) for name, value in self.values.items()}
        return MappingProxyType({**means, **self.coverage})

    @cached_property
    def standard_errors(self) -> Mapping[str, float]:
        """``s / √n`` with the sample deviation s (ddof 1); 0 for a single user."""
        n = self.users_evaluated
        return MappingProxyType(
            {name: float(value.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0 for name, value in self.values.items()}
        )

    @cached_property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The percentile bootstrap interval of each mean, over users; computed on first use."""
        table = np.column_stack(list(self.values.values()))
        bounds = bootstrap_intervals(table, seed=self.seed, resamples=self.resamples, confidence=self.confidence)
        return MappingProxyType(
            {name: (float(low), float(high)) for name, (low, high) in zip(self.values, bounds, strict=True)}
        )

    def value(self, name: str) -> NDArray[np.float64]:
        """Return the values per user (n,) of a metric such as ``recall@20``."""
        if name not in self.values:
            raise ConfigError(
                f"'{name}' was not measured per user, only {', '.join(self.values)} were"
                f"{did_you_mean(name, self.values) or '; evaluate with its k.'}"
            )
        return self.values[name]

    def groups(
        self, bounds: Sequence[int] | None = None, *, n_groups: int = 4, count: str = "train"
    ) -> tuple[UserGroup, ...]:
        """Return the users evaluated in groups by their number of interactions, fewest first.

        ``bounds`` (b₁ < b₂ < …) are the largest numbers of the groups: 0 … b₁, b₁ + 1 … b₂, and so on; users above the
        last bound form one more group. Without bounds, groups have about equally many interactions
        (``equal_interaction_bounds``). ``count``: interactions in ``train``, or in ``all`` splits, as in the paper.
        """
        if count not in ("train", "all"):
            raise ConfigError(f"count is '{count}', expected 'train' or 'all' interactions.")
        degrees = self.train_degrees if count == "train" else self.all_degrees
        ends = list(equal_interaction_bounds(degrees, n_groups) if bounds is None else _ascending(bounds))
        if ends[-1] < degrees.max():
            ends.append(int(degrees.max()))
        starts = [0, *(end + 1 for end in ends[:-1])]
        return tuple(self._group(degrees, low, high) for low, high in zip(starts, ends, strict=True))

    def _group(self, degrees: NDArray[np.int64], low: int, high: int) -> UserGroup:
        chosen = (degrees >= low) & (degrees <= high)
        users = int(chosen.sum())
        means = {name: float(value[chosen].mean()) for name, value in self.values.items()} if users else {}
        return UserGroup(low, high, users, int(degrees[chosen].sum()), means)

    def to_dict(self, *, uncertainty: bool = True, per_user: bool = False) -> dict[str, Any]:
        """Return JSON data: ``{"recall@20": …, …, "mask": "train", "users_evaluated": 928, …}``.

        ``uncertainty`` adds standard errors and bootstrap intervals; ``per_user`` adds the values of each user.
        """
        answer: dict[str, Any] = {
            **self.means,
            "split": self.split,
            "mask": self.mask,
            "k": list(self.ks),
            "users_evaluated": self.users_evaluated,
            "users_left_out": dict(self.left_out),
            "leaked_pairs": self.leaked_pairs,
        }
        if uncertainty:
            answer["standard_error"] = dict(self.standard_errors)
            answer["interval"] = {name: list(bounds) for name, bounds in self.intervals.items()}
            answer["confidence"] = self.confidence
        if per_user:
            answer["user_idx"] = self.user_idx.tolist()
            answer["per_user"] = {name: value.tolist() for name, value in self.values.items()}
        return answer


def equal_interaction_bounds(degrees: NDArray[np.int64], n_groups: int) -> tuple[int, ...]:
    """Return the largest degree of each of at most ``n_groups`` groups of users with about equal sums of degrees.

    Users are taken by ascending degree, all of one degree together, until a group has at least 1/n_groups of the sum.
    On the authors' ML-1M, counting all interactions, this gives the paper's 35, 65, 114 and 524 ("≤", printed "<").
    """
    if n_groups < 1:
        raise ConfigError(f"n_groups is {n_groups}; give a whole number from 1 on.")
    degree, count = np.unique(degrees, return_counts=True)
    weight = degree * count
    ends, total = [], 0
    for level, added in zip(degree.tolist(), weight.tolist(), strict=True):
        total += added
        if total * n_groups >= weight.sum():
            ends.append(level)
            total = 0
    return tuple(ends) if ends and ends[-1] == degree[-1] else (*ends, int(degree[-1]))


def _ascending(bounds: Sequence[int]) -> tuple[int, ...]:
    if not bounds or bounds[0] < 1 or any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(
            f"the group bounds are {list(bounds)}; give ascending whole numbers from 1 on, such as 35 65 114."
        )
    return tuple(bounds)

"""The outcome of one evaluation: means, per-user values, uncertainty, and what must stand beside them."""

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
    """Users with ``at_least`` to ``at_most`` train interactions; ``means`` is empty where there are none."""

    at_least: int
    at_most: int
    users: int
    interactions: int
    means: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "users": self.users,
            "interactions": self.interactions,
            **self.means,
        }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation: ``means["recall@20"]`` and what must stand beside it.

    ``split`` was ranked for with the items of ``mask`` hidden. ``user_idx`` (n,) ascending, the users
    evaluated; ``values[name]`` (n,) the value of each; ``train_degrees`` (n,) how many train items each
    has. ``coverage`` belongs to all lists together and has no value per user. ``left_out`` counts the users
    without a relevant item and those with one but without a train item. ``leaked_pairs`` are relevant pairs
    of the users evaluated that the mask hides: no ranking can reach them, and they stay in the
    denominators.
    """

    split: str
    mask: str
    ks: tuple[int, ...]
    user_idx: NDArray[np.int64]
    train_degrees: NDArray[np.int64]
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
        """``s / √n`` with the sample deviation s (ddof 1); 0 for a single user, who shows no spread."""
        n = self.users_evaluated
        return MappingProxyType(
            {name: float(value.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0 for name, value in self.values.items()}
        )

    @cached_property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """Percentile bootstrap interval of each mean, over users; computed when first asked for."""
        table = np.column_stack(list(self.values.values()))
        bounds = bootstrap_intervals(table, seed=self.seed, resamples=self.resamples, confidence=self.confidence)
        return MappingProxyType(
            {name: (float(low), float(high)) for name, (low, high) in zip(self.values, bounds, strict=True)}
        )

    def value(self, name: str) -> NDArray[np.float64]:
        """(n,) the per-user values of the metric ``name``, such as ``recall@20``."""
        if name not in self.values:
            raise ConfigError(
                f"'{name}' was not measured per user, only {', '.join(self.values)} were"
                f"{did_you_mean(name, self.values) or '; evaluate with its k.'}"
            )
        return self.values[name]

    def groups(self, bounds: Sequence[int] | None = None, n_groups: int = 4) -> tuple[UserGroup, ...]:
        """Users by their number of train interactions, fewest first.

        ``bounds`` (b₁ < b₂ < …) are exclusive upper ends, as the paper prints them: < b₁, then b₁ … b₂ − 1,
        and so on; users at or above the last one form one group more. Without bounds the users are cut into
        ``n_groups`` with as equal sums of interactions as can be, users of the same number staying
        together.
        """
        degrees = self.train_degrees
        cuts = equal_interaction_bounds(degrees, n_groups) if bounds is None else _ascending(bounds)
        top = int(degrees.max(initial=0))
        ends = [*cuts, top + 1] if not cuts or cuts[-1] <= top else list(cuts)
        return tuple(self._group(low, high) for low, high in zip([0, *ends[:-1]], ends, strict=True))

    def _group(self, low: int, high: int) -> UserGroup:
        chosen = (self.train_degrees >= low) & (self.train_degrees < high)
        users = int(chosen.sum())
        means = {name: float(value[chosen].mean()) for name, value in self.values.items()} if users else {}
        return UserGroup(low, high - 1, users, int(self.train_degrees[chosen].sum()), means)

    def to_dict(self, *, uncertainty: bool = True, per_user: bool = False) -> dict[str, Any]:
        """JSON-ready: ``{"recall@20": …, "ndcg@20": …, …, "mask": "train", "users_evaluated": 928, …}``.

        ``uncertainty`` adds standard errors and bootstrap intervals, ``per_user`` the value of each user.
        """
        told: dict[str, Any] = {
            **self.means,
            "split": self.split,
            "mask": self.mask,
            "k": list(self.ks),
            "users_evaluated": self.users_evaluated,
            "users_left_out": dict(self.left_out),
            "leaked_pairs": self.leaked_pairs,
        }
        if uncertainty:
            told["standard_error"] = dict(self.standard_errors)
            told["interval"] = {name: list(bounds) for name, bounds in self.intervals.items()}
            told["confidence"] = self.confidence
        if per_user:
            told["user_idx"] = self.user_idx.tolist()
            told["per_user"] = {name: value.tolist() for name, value in self.values.items()}
        return told


def equal_interaction_bounds(degrees: NDArray[np.int64], n_groups: int) -> tuple[int, ...]:
    """Exclusive upper ends of ``n_groups`` groups of users with sums of ``degrees`` as equal as can be.

    Each cut is the degree at which the running sum, users ordered by degree, comes nearest to g/n_groups of
    the whole. Cuts that fall together are one, so few distinct degrees give fewer groups.
    """
    if n_groups < 1:
        raise ConfigError(f"n_groups is {n_groups}; give a whole number from 1 on.")
    degree, count = np.unique(degrees, return_counts=True)
    running = np.cumsum(degree * count)
    targets = [running[-1] * g / n_groups for g in range(1, n_groups)] if len(degree) else []
    ends = {int(degree[np.abs(running - target).argmin()]) + 1 for target in targets}
    return tuple(sorted(ends))


def _ascending(bounds: Sequence[int]) -> tuple[int, ...]:
    if not bounds or bounds[0] < 1 or any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(
            f"the group bounds are {list(bounds)}; give ascending whole numbers from 1 on, such as 35 65 114."
        )
    return tuple(bounds)

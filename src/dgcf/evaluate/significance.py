"""Paired tests of the difference between two runs, over the users that both evaluated.

The values of a user in two runs are strongly dependent (some users are easy for every model), so only differences
within users are tested: by Student's t-test, which relies on the central limit theorem, and by the sign-flip
permutation test, which assumes only that under the null hypothesis both signs of a user's difference are equally
likely. Holm's correction accounts for several metrics and models.

Users are the sample. A model trained with several seeds is first averaged over them, per user, and tested as one run.
These tests say nothing about other seeds, which move all users together; a third test adds the variance between seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.bootstrap import CONFIDENCE, RESAMPLES, bootstrap_intervals
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.metrics import METRICS, parse_metric
from dgcf.random import bits

FLIPS = 9999
_WORDS = 2**16  # random words drawn at a time: 4 million signs, 32 MiB as float64


@dataclass(frozen=True)
class Comparison:
    """One metric of two runs: ``difference`` = second − first, over ``users`` users.

    ``interval``: bootstrap interval of the difference; ``effect_size``: Cohen's ``d_z = d̄ / s_d``, None if all users
    differ equally. ``p_t`` and ``p_permutation`` are two-sided; ``p_holm`` is ``p_permutation`` after Holm's correction
    over all comparisons of one call. ``p_seeds`` is that of ``users_and_seeds_test``, uncorrected; None if the variance
    between seeds is not known.
    """

    metric: str
    users: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    effect_size: float | None
    p_t: float
    p_permutation: float
    p_holm: float
    p_seeds: float | None = None

    def significant(self, level: float = 0.05) -> bool:
        return self.p_holm < level

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "interval": list(self.interval)}


def compare(
    first: Evaluation,
    second: Evaluation,
    metrics: Sequence[str] | None = None,
    *,
    seed: int = 0,
    flips: int = FLIPS,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[Comparison, ...]:
    """Compare two evaluations of one dataset, split and mask on ``metrics``, such as ``["recall@20"]``.

    Without ``metrics``, all common metrics of quality. Whether both are of one dataset is not checked: compare the
    fingerprints first.
    """
    names, ours, theirs = _paired(first, second, metrics)
    difference = theirs - ours
    intervals = bootstrap_intervals(difference, seed=seed, resamples=resamples, confidence=confidence)
    p_permutation = sign_flip_test(difference, seed=seed, flips=flips)
    p_holm = holm(p_permutation)
    return tuple(
        Comparison(
            metric=name,
            users=len(difference),
            first=float(ours[:, m].mean()),
            second=float(theirs[:, m].mean()),
            difference=float(difference[:, m].mean()),
            interval=(float(intervals[m, 0]), float(intervals[m, 1])),
            effect_size=effect_size(difference[:, m]),
            p_t=t_test(difference[:, m]),
            p_permutation=float(p_permutation[m]),
            p_holm=float(p_holm[m]),
        )
        for m, name in enumerate(names)
    )


def compare_with(
    reference: Evaluation, others: Sequence[Evaluation], metrics: Sequence[str] | None = None, *, seed: int = 0
) -> list[tuple[Comparison, ...]]:
    """Compare each of ``others`` with the reference; Holm's correction is over all of them and all metrics."""
    rows = [compare(reference, other, metrics, seed=seed) for other in others]
    corrected = iter(holm([test.p_permutation for row in rows for test in row]).tolist())
    return [tuple(replace(test, p_holm=next(corrected)) for test in row) for row in rows]


def averaged(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return the mean of several seeds of one model: the values of each user and the coverage, averaged."""
    first, *others = evaluations
    for other in others:
        if (first.split, first.mask) != (other.split, other.mask) or not np.array_equal(first.user_idx, other.user_idx):
            raise ConfigError(
                "the seeds to average were evaluated on other users, splits or masks; evaluate all of them alike."
            )
    values = {name: np.mean([seed.value(name) for seed in evaluations], axis=0) for name in first.values}
    coverage = {name: float(np.mean([seed.coverage[name] for seed in evaluations])) for name in first.coverage}
    return replace(first, values=values, coverage=coverage)


def _paired(
    first: Evaluation, second: Evaluation, metrics: Sequence[str] | None
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return the names of m metrics, and the values (n, m) of both runs for the n users that both evaluated."""
    for option, ours, theirs in (("split", first.split, second.split), ("mask", first.mask, second.mask)):
        if ours != theirs:
            raise ConfigError(
                f"the first run was evaluated with {option} '{ours}', the second with '{theirs}'; evaluate both with "
                f"one {option}."
            )
    shared = [name for name in first.values if name in second.values and parse_metric(name)[0] in METRICS]
    names = shared if metrics is None else list(metrics)
    if not names:
        raise ConfigError("the two runs share no metric; evaluate both at the same k.")
    users, at_first, at_second = np.intersect1d(
        first.user_idx, second.user_idx, assume_unique=True, return_indices=True
    )
    if len(users) == 0:
        raise DataError("the two runs evaluated no user in common; compare two runs on one dataset.")
    values = np.column_stack([first.value(name)[at_first] for name in names])
    return names, values, np.column_stack([second.value(name)[at_second] for name in names])


def t_test(difference: NDArray[np.float64]) -> float:
    """Return p of the two-sided paired t-test of (n,) differences: ``t = d̄ / (s_d / √n)``, n − 1 degrees of freedom.

    If all differences are equal, p is its limit: 1 if they are zero, else 0; 1 for a single user.
    """
    n = len(difference)
    mean = float(difference.mean())
    spread = float(difference.std(ddof=1)) if n > 1 else 0.0
    if _negligible(spread, difference):
        return 1.0 if n == 1 or _negligible(mean, difference) else 0.0
    return float(2 * stdtr(n - 1, -abs(mean) / (spread / np.sqrt(n))))


def users_and_seeds_test(difference: NDArray[np.float64], first: Sequence[float], second: Sequence[float]) -> float:
    """Return p of the two-sided t-test of the mean difference, over users *and* seeds.

    ``difference``: (n,) per user, of values averaged over the seeds; ``first`` and ``second``: the mean of each seed.
    The variance of d̄ is ``s_d²/n + s₁²/S₁ + s₂²/S₂``, with the sample variances between users and between the seeds of
    each model, and Welch–Satterthwaite degrees of freedom. The effect of a seed on single users is counted in both
    kinds of terms, so the test is conservative. A single seed has variance 0.
    """
    samples = (difference, np.asarray(first), np.asarray(second))
    parts = [(float(part.var(ddof=1)) / len(part), len(part) - 1) for part in samples if len(part) > 1]
    variance, mean = sum(part for part, _ in parts), float(difference.mean())
    if _negligible(np.sqrt(variance), difference):
        return 1.0 if len(difference) == 1 or _negligible(mean, difference) else 0.0
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return float(2 * stdtr(freedom, -abs(mean) / np.sqrt(variance)))


def sign_flip_test(difference: NDArray[np.float64], *, seed: int, flips: int = FLIPS) -> NDArray[np.float64]:
    """Return the p-values (m,) of the two-sided sign-flip permutation test that the means of (n, m) differences are 0.

    ``p = (1 + #{b : |Σ_u s_bu d_u| ≥ |Σ_u d_u|}) / (1 + B)`` over B = ``flips`` draws of signs ``s_bu = ±1``, one sign
    for all metrics of a user. p is never 0, and valid for any n; it is exactly 1 if all differences are zero.
    """
    if flips < 1:
        raise ConfigError(f"flips is {flips}; give a whole number from 1 on.")
    moving = difference[np.any(difference != 0, axis=1)]  # the sign of zero has no effect
    total = moving.sum(0)
    # Equal sums may differ in their last bits; such a draw must count, or identical runs could seem different.
    reach = np.abs(total) - 1e-12 * np.abs(moving).sum(0)
    if len(moving) == 0:
        return np.ones(difference.shape[1])
    words = -(-len(moving) // 64)
    at_once = max(1, _WORDS // words)
    extreme = np.zeros(difference.shape[1], dtype=np.int64)
    for position, start in enumerate(range(0, flips, at_once)):
        rows = min(at_once, flips - start)
        random = bits(seed, "sign-flip", at_once * words, position).astype("<u8", copy=False)
        plus = np.unpackbits(random.view(np.uint8).reshape(at_once, -1), axis=1, count=len(moving))[:rows]
        flipped = 2 * (plus.astype(np.float64) @ moving) - total
        extreme += (np.abs(flipped) >= reach).sum(0)
    return np.asarray((1 + extreme) / (1 + flips))


def effect_size(difference: NDArray[np.float64]) -> float | None:
    """Return Cohen's ``d_z = d̄ / s_d``: 0 if nothing differs, None if all users differ equally."""
    spread = float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
    if _negligible(spread, difference):
        return 0.0 if _negligible(float(difference.mean()), difference) else None
    return float(difference.mean() / spread)


def holm(p_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values after Holm's correction: the j-th smallest of m becomes ``max_{i ≤ j} min(1, (m − i + 1) p_i)``.

    Rejecting those below α keeps the probability of any false rejection at α, for any dependence of the tests.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = stepped
    return corrected


def _negligible(number: float, difference: NDArray[np.float64]) -> bool:
    """Return whether a number is zero up to rounding, relative to the differences it was computed from."""
    return abs(number) <= 1e-12 * float(np.abs(difference).max(initial=0.0))

"""Is one run better than another? Paired tests over the users that both evaluated.

Per-user values of two runs on one split are strongly dependent (some users are easy for every model), so
only differences within a user are tested. Two tests stand side by side: Student's t, which leans on the
central limit theorem, and the sign-flip permutation test, which assumes only that under the null hypothesis
a user's difference is as likely with the other sign. Several metrics, and several models, are several chances
to be lucky: Holm's correction accounts for them.

Users are what was sampled. A model trained with several seeds is first averaged over them, user by user, and then
enters these tests as one run. They say nothing of other seeds, which move all users together; a third test counts
the spread between seeds beside that between users.
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

    ``interval`` is the bootstrap interval of the difference, ``effect_size`` Cohen's ``d_z = d̄ / s_d``
    (None where all users differ alike). ``p_t`` and ``p_permutation`` are two-sided; ``p_holm`` is
    ``p_permutation`` after Holm's correction over everything that was compared in the same call. ``p_seeds`` is that
    of ``users_and_seeds_test``, uncorrected; None where the spread between seeds is not known.
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
        """JSON-ready."""
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

    Without ``metrics``: all that both have and that measure quality. That both are of one dataset cannot be
    seen here: compare the fingerprints first.
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
    comparisons = [compare(reference, other, metrics, seed=seed) for other in others]
    corrected = iter(holm([one.p_permutation for row in comparisons for one in row]).tolist())
    return [tuple(replace(one, p_holm=next(corrected)) for one in row) for row in comparisons]


def averaged(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The mean of several seeds of one model: each user's values, and the coverage, averaged over the evaluations."""
    first, *others = evaluations
    for other in others:
        if (first.split, first.mask) != (other.split, other.mask) or not np.array_equal(first.user_idx, other.user_idx):
            raise ConfigError(
                "the seeds to average were evaluated on other users, splits or masks; evaluate all of them alike."
            )

    return replace(
        first,
        values={name: np.mean([one.value(name) for one in evaluations], axis=0) for name in first.values},
        coverage={name: float(np.mean([one.coverage[name] for one in evaluations])) for name in first.coverage},
    )


def _paired(
    first: Evaluation, second: Evaluation, metrics: Sequence[str] | None
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """The names of m metrics, and (n, m) values of both runs for the n users that both evaluated."""
    for what, one, other in (("split", first.split, second.split), ("mask", first.mask, second.mask)):
        if one != other:
            raise ConfigError(
                f"the first run was evaluated with {what} '{one}', the second with '{other}'; "
                f"evaluate both with one {what}."
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
    ours = np.column_stack([first.value(name)[at_first] for name in names])
    theirs = np.column_stack([second.value(name)[at_second] for name in names])
    return names, ours, theirs


def t_test(difference: NDArray[np.float64]) -> float:
    """Two-sided paired t-test, ``t = d̄ / (s_d / √n)`` with n − 1 degrees of freedom: (n,) differences → p.

    Where all differences are equal the limits are given: 1 if they are zero, 0 if not; 1 for a single user.
    """
    n = len(difference)
    mean = float(difference.mean())
    spread = float(difference.std(ddof=1)) if n > 1 else 0.0
    if _negligible(spread, difference):
        return 1.0 if n == 1 or _negligible(mean, difference) else 0.0
    return float(2 * stdtr(n - 1, -abs(mean) / (spread / np.sqrt(n))))


def users_and_seeds_test(difference: NDArray[np.float64], first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided t-test of the mean difference over other users *and* other seeds → p.

    ``difference``: (n,) per user, of values averaged over the seeds; ``first`` and ``second``: the mean of each seed.
    The variance of d̄ is taken as ``s_d²/n + s₁²/S₁ + s₂²/S₂`` with the sample variances between users and between the
    seeds of either model, on Welch and Satterthwaite's degrees of freedom. What a seed does to single users is counted
    in both kinds of terms, so the test errs towards caution. One seed alone is taken to have no spread.
    """
    samples = (difference, np.asarray(first), np.asarray(second))
    parts = [(float(part.var(ddof=1)) / len(part), len(part) - 1) for part in samples if len(part) > 1]
    variance, mean = sum(part for part, _ in parts), float(difference.mean())
    if _negligible(np.sqrt(variance), difference):
        return 1.0 if len(difference) == 1 or _negligible(mean, difference) else 0.0
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return float(2 * stdtr(freedom, -abs(mean) / np.sqrt(variance)))


def sign_flip_test(difference: NDArray[np.float64], *, seed: int, flips: int = FLIPS) -> NDArray[np.float64]:
    """Two-sided sign-flip permutation test of a zero mean: (n, m) differences → (m,) p-values.

    ``p = (1 + #{b : |Σ_u s_bu d_u| ≥ |Σ_u d_u|}) / (1 + B)`` over B = ``flips`` draws of signs ``s_bu =
    ±1``, one sign for all metrics of a user. Never 0, and valid at any n; all differences zero give exactly
    1.
    """
    if flips < 1:
        raise ConfigError(f"flips is {flips}; give a whole number from 1 on.")
    moving = difference[np.any(difference != 0, axis=1)]  # a sign on zero changes nothing
    total = moving.sum(0)
    # equal sums may differ in their last bits; such a draw must count, or identical runs could look different
    reach = np.abs(total) - 1e-12 * np.abs(moving).sum(0)
    if len(moving) == 0:
        return np.ones(difference.shape[1])
    words = -(-len(moving) // 64)
    at_once = max(1, _WORDS // words)
    extreme = np.zeros(difference.shape[1], dtype=np.int64)
    for position, start in enumerate(range(0, flips, at_once)):
        rows = min(at_once, flips - start)
        drawn = bits(seed, "sign-flip", at_once * words, position).astype("<u8", copy=False)
        plus = np.unpackbits(drawn.view(np.uint8).reshape(at_once, -1), axis=1, count=len(moving))[:rows]
        flipped = 2 * (plus.astype(np.float64) @ moving) - total
        extreme += (np.abs(flipped) >= reach).sum(0)
    return np.asarray((1 + extreme) / (1 + flips))


def effect_size(difference: NDArray[np.float64]) -> float | None:
    """Cohen's ``d_z = d̄ / s_d``: 0 where nothing differs, None where all differ alike and it has no value."""
    spread = float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
    if _negligible(spread, difference):
        return 0.0 if _negligible(float(difference.mean()), difference) else None
    return float(difference.mean() / spread)


def holm(p_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's correction: the j-th smallest of m p-values becomes ``max_{i ≤ j} min(1, (m − i + 1) p_i)``.

    Rejecting what is below α then keeps the chance of any false rejection at α, however the tests depend.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = stepped
    return corrected


def _negligible(number: float, difference: NDArray[np.float64]) -> bool:
    """Zero but for rounding, next to the differences it was computed from."""
    return abs(number) <= 1e-12 * float(np.abs(difference).max(initial=0.0))

"""Statistics of an experiment: rates with Wilson intervals, and differences with a confidence sequence.

All functions take numbers or arrays of the same shape, and compute each place by itself.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALPHA = 0.05
"""Probability of a wrong verdict, over all comparisons and all times of looking."""
TUNED_TO = 62.5
"""The variance at which the confidence sequence is tightest: that of 250 conversions in two arms of equal size."""
_Z = 1.959963984540054  # the quantile 0.975 of the normal distribution

Values = NDArray[np.float64]


class Interval(NamedTuple):
    """An estimate with the ends of its interval."""

    estimate: Values
    low: Values
    high: Values


def rate(conversions: ArrayLike, users: ArrayLike) -> Interval:
    """Return the share of users who converted, with the Wilson interval of 95 %; 0 in [0, 1] without users.

    ``(p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)`` (Wilson 1927). It holds at one time of looking.
    """
    c, n = _floats(conversions), _floats(users)
    m = np.maximum(n, 1.0)
    p = c / m
    middle, spread = p + _Z**2 / (2 * m), _Z * np.sqrt(p * (1 - p) / m + _Z**2 / (4 * m**2))
    scale = 1 + _Z**2 / m
    low = np.where(c == 0, 0.0, np.maximum((middle - spread) / scale, 0.0))
    high = np.where(c == n, 1.0, np.minimum((middle + spread) / scale, 1.0))
    return Interval(p, np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0))


def difference(
    conversions: ArrayLike, users: ArrayLike, base_conversions: ArrayLike, base_users: ArrayLike, alpha: float = ALPHA
) -> Interval:
    """Return the difference of the rates of two arms, with a confidence sequence that holds at all times of looking.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit
    theory and asymptotic confidence sequences", Annals of Statistics 52 (2024), theorem 2.5, with the normal mixture
    of Robbins (1970) and Howard, Ramdas, McAuliffe and Sekhon (2021): with probability 1 − α, in the limit, all of its
    intervals hold the difference, whenever and however often one looks::

        D ± √((V + η) ln((V + η) / (η α²))) / m,   D = p − p₀,   m = n n₀ / (n + n₀)

    V = m² (v / n + v₀ / n₀) is the variance of m D, with v = q(1 − q), q = (c + ½) / (n + 1). It grows with users and
    with conversions, so it is the clock also where users convert long after they came. η is chosen so that the interval
    is tightest at V = ``TUNED_TO``, and is −1 … 1 without users.
    """
    c, n, c0, n0 = _floats(conversions), _floats(users), _floats(base_conversions), _floats(base_users)
    some = (n > 0) & (n0 > 0)
    c, n, c0, n0 = (np.where(some, counts, other) for counts, other in ((c, 0.0), (n, 1.0), (c0, 0.0), (n0, 1.0)))
    estimate = c / n - c0 / n0
    m = n * n0 / (n + n0)
    clock = m**2 * (_variance(c, n) / n + _variance(c0, n0) / n0)
    eta = TUNED_TO / (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha)))
    radius = np.sqrt((clock + eta) * np.log((clock + eta) / (eta * alpha**2))) / m
    low, high = np.maximum(estimate - radius, -1.0), np.minimum(estimate + radius, 1.0)
    return Interval(estimate, np.where(some, low, -1.0), np.where(some, high, 1.0))


def excludes_zero(interval: Interval) -> NDArray[np.bool_]:
    """Return whether an interval is on one side of zero."""
    return np.asarray((interval.low > 0) | (interval.high < 0))


def _variance(conversions: Values, users: Values) -> Values:
    """Return the variance of one user's conversion; the rate is moved off 0 and 1, where it would have none."""
    moved = (conversions + 0.5) / (users + 1)
    variance: Values = moved * (1 - moved)
    return variance


def _floats(values: Any) -> Values:
    return np.asarray(values, dtype=np.float64)

"""Percentile bootstrap intervals of means over users: seeded, with the same resamples for all metrics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ConfigError, DataError
from dgcf.random import uniform

RESAMPLES = 1000
CONFIDENCE = 0.95


def bootstrap_intervals(
    values: NDArray[np.float64], *, seed: int, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> NDArray[np.float64]:
    """(n_users, m) values → (m, 2) percentile intervals of the m means.

    Users are drawn with replacement, a whole row at a time, so the metrics of a user stay together.
    Resample b is drawn at position b of one stream: the first 100 resamples are the same whether 100 or
    1000 are taken.
    """
    if resamples < 2 or not 0 < confidence < 1:
        raise ConfigError(
            f"resamples is {resamples} and confidence {confidence}; "
            "give at least 2 resamples and a confidence between 0 and 1."
        )
    n = len(values)
    if n == 0:
        raise DataError("there is no user to resample; evaluate at least one.")
    means = np.empty((resamples, values.shape[1]))
    for b in range(resamples):
        drawn = (uniform(seed, "bootstrap", n, position=b) * n).astype(np.int64)
        means[b] = np.bincount(drawn, minlength=n) @ values / n
    tail = (1 - confidence) / 2
    return np.asarray(np.quantile(means, [tail, 1 - tail], axis=0).T)

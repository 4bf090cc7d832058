"""Percentile bootstrap intervals of means over users, seeded."""

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
    """Return the percentile intervals (m, 2) of the means of ``values`` (n_users, m).

    Users are drawn with replacement, with all their metrics. Resample b is drawn at position b of one stream, so the
    first 100 resamples of 1000 are those of 100.
    """
    if resamples < 2 or not 0 < confidence < 1:
        raise ConfigError(
            f"resamples is {resamples} and confidence {confidence}; give at least 2 resamples and a confidence between "
            "0 and 1."
        )
    if (n := len(values)) == 0:
        raise DataError("there is no user to resample; evaluate at least one.")
    means = np.empty((resamples, values.shape[1]))
    for b in range(resamples):
        users = (uniform(seed, "bootstrap", n, position=b) * n).astype(np.int64)
        means[b] = np.bincount(users, minlength=n) @ values / n
    tail = (1 - confidence) / 2
    return np.asarray(np.quantile(means, [tail, 1 - tail], axis=0).T)

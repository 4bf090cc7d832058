"""The amplitude of the oscillation of recall with depth, its confidence interval, and a test of two models."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from dgcf.random import bits, uniform

Floats = NDArray[np.float64]
RESAMPLES = 2000
# Up to this number of seeds all swaps are tried; beyond it, 2¹² random ones.
EXACT_SEEDS = 12


def differences(recalls: Floats) -> Floats:
    """Return the mean recall of each depth less that of the depth before: (seeds, depths) → (depths − 1,)."""
    return np.diff(recalls.mean(0))


def amplitude(recalls: Floats) -> float:
    """Return ``mean_l |r̄(l + 1) − r̄(l)|``, r̄(l) the mean recall over the seeds at depth l: (seeds, depths) → number.

    Noise of the seeds adds to it, the more the fewer they are, so models are compared with equally many seeds.
    """
    return float(np.abs(differences(recalls)).mean())


def amplitude_interval(recalls: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """Return a percentile bootstrap interval over the seeds, all depths of a seed together."""
    n = len(recalls)
    samples = [(uniform(0, "amplitude", n, position=b) * n).astype(np.int64) for b in range(RESAMPLES)]
    tail = (1 - confidence) / 2
    low, high = np.quantile([amplitude(recalls[chosen]) for chosen in samples], [tail, 1 - tail])
    return float(low), float(high)


def swap_test(first: Floats, second: Floats) -> float:
    """Return the two-sided p of equal amplitudes: the share of swaps with at least the observed difference.

    ``first`` and ``second``: (seeds, depths) of the same seeds. Under the null hypothesis the two series of a seed are
    exchangeable. Uses all 2ˢ swaps up to 12 seeds, otherwise 4096 random ones and the identity.
    """
    n = len(first)
    if n <= EXACT_SEEDS:
        swaps = np.array(list(product((False, True), repeat=n)))
    else:
        random = np.stack([bits(0, "swaps", n, position=b) for b in range(2**EXACT_SEEDS)]) >> np.uint64(63)
        swaps = np.concatenate([np.zeros((1, n), dtype=bool), random.astype(bool)])
    observed = abs(amplitude(first) - amplitude(second))
    swapped = [
        abs(amplitude(np.where(swap, second, first)) - amplitude(np.where(swap, first, second)))
        for swap in swaps[:, :, None]
    ]
    return float(np.mean(np.array(swapped) >= observed - 1e-12))

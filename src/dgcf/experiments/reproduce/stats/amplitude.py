"""How much recall goes up and down with depth: the amplitude of an oscillation, its interval, and a test of two."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from dgcf.random import bits, uniform

Floats = NDArray[np.float64]
RESAMPLES = 2000
# Up to this many seeds all swaps are tried; beyond, as many drawn at random.
EXACT_SEEDS = 12


def differences(recalls: Floats) -> Floats:
    """(seeds, depths) → (depths − 1,): the mean recall of a depth less that of the depth before, as in the figure."""
    return np.diff(recalls.mean(0))


def amplitude(recalls: Floats) -> float:
    """``mean_l |r̄(l + 1) − r̄(l)|`` where r̄(l) is the mean recall over the seeds at depth l: (seeds, depths) → number.

    What seeds do at random adds to it, the more the fewer they are; so models are compared at equally many seeds.
    """
    return float(np.abs(differences(recalls)).mean())


def amplitude_interval(recalls: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap over the seeds, all depths of a seed together."""
    n = len(recalls)
    drawn = [(uniform(0, "amplitude", n, position=b) * n).astype(np.int64) for b in range(RESAMPLES)]
    tail = (1 - confidence) / 2
    low, high = np.quantile([amplitude(recalls[chosen]) for chosen in drawn], [tail, 1 - tail])
    return float(low), float(high)


def swap_test(first: Floats, second: Floats) -> float:
    """Two-sided p of equal amplitudes: how often swapping the models of some seeds gives as large a difference.

    ``first`` and ``second``: (seeds, depths) of the same seeds. If the models did not differ, the two series of a seed
    could as well have been each other's. All 2ˢ swaps up to 12 seeds, else 4096 drawn at random and the one observed.
    """
    n = len(first)
    if n <= EXACT_SEEDS:
        swaps = np.array(list(product((False, True), repeat=n)))
    else:
        drawn = np.stack([bits(0, "swaps", n, position=b) for b in range(2**EXACT_SEEDS)]) >> np.uint64(63)
        swaps = np.concatenate([np.zeros((1, n), dtype=bool), drawn.astype(bool)])
    observed = abs(amplitude(first) - amplitude(second))
    found = [_difference(first, second, swapped) for swapped in swaps]
    return float(np.mean(np.array(found) >= observed - 1e-12))


def _difference(first: Floats, second: Floats, swapped: NDArray[np.bool_]) -> float:
    chosen = swapped[:, None]
    return abs(amplitude(np.where(chosen, second, first)) - amplitude(np.where(chosen, first, second)))

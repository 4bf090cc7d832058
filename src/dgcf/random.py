"""Random streams: every random number of dgcf is drawn here, by seed, stream name and position.

A stream is Philox, a counter-based generator, keyed by the seed and the name of the stream. The bits at a position do
not depend on earlier draws, so step n can be drawn without the steps before it. Only raw bits are used: NumPy
guarantees them across versions and platforms, but not its distributions.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ConfigError


def key_of(seed: int, name: str) -> tuple[int, int]:
    """Return the two 64-bit words that key the stream ``name`` under ``seed``."""
    if seed < 0:
        raise ConfigError(f"seed {seed} is negative; give a whole number from 0 on.")
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def bits(seed: int, name: str, n: int, position: int = 0) -> NDArray[np.uint64]:
    """Return ``n`` uniform 64-bit words of the stream ``name`` at ``position`` (a step, an epoch, …)."""
    counter = np.array([0, 0, position, 0], dtype=np.uint64)
    return np.asarray(
        np.random.Philox(key=np.array(key_of(seed, name), dtype=np.uint64), counter=counter).random_raw(n)
    )


def uniform(seed: int, name: str, n: int, position: int = 0) -> NDArray[np.float64]:
    """Return ``n`` numbers in [0, 1), each with 53 random bits."""
    return (bits(seed, name, n, position) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, name: str, n: int, position: int = 0) -> NDArray[np.int64]:
    """Return a random permutation of ``range(n)``; equal draws keep their order."""
    return np.argsort(bits(seed, name, n, position), kind="stable")

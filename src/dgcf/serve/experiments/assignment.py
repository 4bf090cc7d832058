"""Assignment of users to arms by a hash: the same on every worker, server and restart, without memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache

from dgcf.ids import RawId

REMEMBERED = 32_768
"""Users whose arm is not computed again: a hash takes longer than the rest that an arm adds to a request."""
_DIGEST = 8
_SCALE = 2.0**-53


class Assignment:
    """The arms of an experiment with their weights, and the arm of each user.

    Arm a gets the number ``u_a(user)`` in (0, 1) from BLAKE2b of experiment, arm and user, and the user gets the arm
    with the smallest ``−ln(u_a) / w_a``: the winner of a race of exponential clocks, which is a with probability w_a.
    The order of the arms has no effect. When weights change, of two arms, or of one arm against all others, only the
    share by which they change moves. For any other change δ (total variation), at most ``2δ / (1 + δ)`` moves, which is
    the least that a rule without memory can guarantee (Bavarian et al., "On the optimality of correlated sampling
    strategies", 2020).
    """

    def __init__(self, experiment: str, weights: Mapping[str, float]) -> None:
        """``weights``: the share of each arm, 0 for an arm that nobody gets."""
        self.experiment, self.weights = experiment, dict(weights)
        self._arms = [(arm, weight, _key(experiment, arm)) for arm, weight in sorted(weights.items()) if weight > 0]

        self._remembered = lru_cache(REMEMBERED)(self._winner)

    def arm_of(self, user: RawId) -> str:
        """Return the arm of a user; the integer 5 is the user "5"."""
        return self._remembered(str(user))

    def _winner(self, user: str) -> str:
        text = user.encode("utf-8", "surrogatepass")
        arm, _ = min(((arm, _clock(key, text) / weight) for arm, weight, key in self._arms), key=lambda pair: pair[1])
        return arm


def _key(experiment: str, arm: str) -> bytes:
    """Return the key of an arm's hash; names of other lengths give other keys."""
    return hashlib.blake2b(f"{len(experiment)}:{experiment}{arm}".encode(), person=b"arm").digest()


def _clock(key: bytes, user: bytes) -> float:
    """Return the exponential number of a user."""
    word = int.from_bytes(hashlib.blake2b(user, digest_size=_DIGEST, key=key).digest(), "big") >> 11
    return -math.log((word + 0.5) * _SCALE)

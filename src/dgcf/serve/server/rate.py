"""A rate limit for each token or client, in a table of fixed size that all workers share.

Each identity has a bucket that holds ``rate`` requests and fills at ``rate`` a second. The table has sets of four
buckets; a keyed hash of the identity chooses the set. When all four belong to others, the one used least recently is
taken. Workers do not lock it: of two requests at the same instant one may not be counted.
"""

from __future__ import annotations

import mmap
import time
from hashlib import blake2b
from math import ceil
from struct import Struct

from dgcf.serve.server.refusal import Refusal

SETS, WAYS = 16_384, 4
_BUCKET = Struct("<Qdd")  # the hash of the identity, requests left, time of the last one
TABLE_BYTES = SETS * WAYS * _BUCKET.size


class RateLimit:
    """Buckets in a memory map; ``key`` makes the hash unpredictable, and is the same in all workers."""

    def __init__(self, rate: float, table: mmap.mmap, key: bytes) -> None:
        self.rate, self.burst = rate, max(1.0, rate)
        self._table, self._key = table, key

    def take(self, identity: bytes, now: float | None = None) -> float:
        """Take one request; return 0, or the number of seconds to wait if there is none left."""
        now = time.monotonic() if now is None else now
        mark = int.from_bytes(blake2b(identity, digest_size=8, key=self._key).digest(), "little") | 1
        place, left, since = self._find(mark, now)
        left = min(self.burst, left + max(0.0, now - since) * self.rate)
        allowed = left >= 1
        _BUCKET.pack_into(self._table, place, mark, left - 1 if allowed else left, now)
        return 0.0 if allowed else (1 - left) / self.rate

    def check(self, identity: bytes) -> None:
        """Take one request; refuse with 429 if there is none left."""
        wait = self.take(identity)
        if wait > 0:
            raise Refusal(
                429,
                f"more than {self.rate:g} requests a second came from this token or client; repeat it later.",
                retry_after=ceil(wait),
            )

    def _find(self, mark: int, now: float) -> tuple[int, float, float]:
        first = (mark >> 1) % SETS * WAYS * _BUCKET.size
        oldest, place = float("inf"), first
        for at in range(first, first + WAYS * _BUCKET.size, _BUCKET.size):
            other, left, since = _BUCKET.unpack_from(self._table, at)
            if other == mark:
                return at, left, since
            if since < oldest:
                oldest, place = since, at
        return place, self.burst, now

"""Weights of pairs: from the weights of their events, or the number of these, by a stated transform."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ConfigError, DataError

COUNTED = "number of events"
"""The origin of weights that count events; it is the name of the column otherwise."""


@dataclass(frozen=True)
class Weighting:
    """How a pair gets its weight: the sum over its events, transformed.

    ``count``: an event has the weight 1, so that the sum is the number of events; otherwise the one that was read.
    ``transform``: ``log1p`` (log(1 + w)), ``cap`` (at most ``limit``) or ``none``.
    """

    count: bool = False
    transform: Literal["log1p", "cap", "none"] = "log1p"
    limit: float = math.inf

    @classmethod
    def parse(cls, transform: str, *, count: bool) -> Weighting:
        """Return the weighting of the option ``--weight-transform``: ``log1p``, ``cap:N`` or ``none``."""
        name, colon, number = transform.partition(":")
        if name in ("log1p", "none") and not colon:
            return cls(count, name)  # type: ignore[arg-type]
        try:
            limit = float(number) if name == "cap" else math.nan
        except ValueError:
            limit = math.nan
        if not (math.isfinite(limit) and limit > 0):
            raise ConfigError(
                f"the weight transform is {transform!r}, expected log1p, none, or cap:N with a number above 0 such as "
                "cap:10."
            )
        return cls(count, "cap", limit)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Weighting:
        """Return the weighting that the record of a dataset states."""
        return cls.parse(str(record.get("transform", "log1p")), count=record.get("from") == COUNTED)

    def __str__(self) -> str:
        return f"cap:{self.limit:g}" if self.transform == "cap" else self.transform

    def apply(self, sums: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the weights of pairs, given the sums over their events."""
        weights = np.log1p(sums) if self.transform == "log1p" else np.minimum(sums, self.limit)
        if len(weights) and weights.max() > np.finfo(np.float32).max:
            raise DataError(f"a pair has the weight {weights.max():g}, which is too large; use another transform.")
        return weights.astype(np.float32)

"""Filters of streamed cross-hop entries: by a given ε, or by the ε that keeps a target number of edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgcf.errors import ConfigError

Indices = NDArray[np.int32]
Values = NDArray[np.float64]


class Entries(NamedTuple):
    """Entries of a symmetric matrix on and above its diagonal (row ≤ col)."""

    rows: Indices
    cols: Indices
    values: Values

    def where(self, keep: NDArray[np.bool_]) -> Entries:
        """Return the entries that ``keep`` marks."""
        return Entries(self.rows[keep], self.cols[keep], self.values[keep])

    def split(self, at: int) -> tuple[Entries, Entries]:
        """Return the first ``at`` entries and the rest."""
        first = Entries(self.rows[:at], self.cols[:at], self.values[:at])
        return first, Entries(self.rows[at:], self.cols[at:], self.values[at:])

    def weight(self) -> int:
        """Return the number of entries of the full matrix that these represent: two each, one on the diagonal."""
        return 2 * len(self.values) - int(np.count_nonzero(self.rows == self.cols))


@dataclass
class FixedThreshold:
    """Keeps values strictly above a given ε."""

    threshold: float
    most: int = 2**62
    """Raise ``ConfigError`` beyond this many entries."""
    kept: list[Entries] = field(default_factory=list)
    _held: int = 0

    def offer(self, entries: Entries) -> None:
        """Keep ``value > ε``."""
        self.kept.append(entries.where(entries.values > self.threshold))
        self._held += len(self.kept[-1].values)
        if self._held > self.most:
            raise ConfigError(
                f"epsilon {self.threshold:g} keeps more than {self.most:,} pairs of nodes; "
                "raise it, or set epsilon to 'auto'."
            )

    def entries(self) -> Entries:
        """Return the entries kept."""
        return _joined(self.kept)


class AutoThreshold:
    """Computes in one pass the ε at which the number of kept entries is closest to ``target``.

    Invariant: every entry seen so far above ``threshold`` is held, and the final ε is not below ``threshold``. When the
    held entries of one triangle represent three times the target in the full matrix, the threshold rises to about the
    target-th largest value; so fewer than twice the target are held at any time. ``settle`` decides exactly. Equal
    values are kept or dropped together, as ``> ε`` cannot separate them.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.threshold = 0.0
        self.peak_held = 0
        self._held: list[Entries] = []
        self._weight = 0

    def offer(self, entries: Entries) -> None:
        """Hold the entries above the threshold, in parts that fit; raise the threshold in between."""
        rest = entries.where(entries.values > self.threshold)
        while len(rest.values):
            if 3 * self.target - self._weight < 2:
                self._rise()
                rest = rest.where(rest.values > self.threshold)
            # After a rise the weight is at most twice the target, so there is room for half a target or more.
            part, rest = rest.split(max((3 * self.target - self._weight) // 2, 1))
            self._held.append(part)
            self._weight += part.weight()
            self.peak_held = max(self.peak_held, sum(len(held.values) for held in self._held))

    def _rise(self) -> None:
        """Drop the values below the largest ``enough`` ones: these alone exceed the target."""
        held = _joined(self._held)
        diagonal = int(np.count_nonzero(held.rows == held.cols))
        enough = (self.target + diagonal) // 2 + 1
        if enough < len(held.values):
            smallest = float(np.partition(held.values, len(held.values) - enough)[len(held.values) - enough])
            kept = held.where(held.values >= smallest)
            self.threshold = float(np.nextafter(smallest, 0.0))
            if kept.weight() > 2 * self.target:
                # So many ties that keeping them misses the target by more than dropping them.
                kept = held.where(held.values > smallest)
                self.threshold = smallest
            held = kept
        self._held = [held]
        self._weight = held.weight()

    def settle(self) -> tuple[float, Entries]:
        """Return ε and its entries: ``| #(value > ε) − target |`` is least, with fewer entries on a tie."""
        if self._weight > self.target:
            self._rise()
        held = _joined(self._held)
        order = np.argsort(held.values)[::-1]
        descending = held.values[order]
        weights = np.where(held.rows == held.cols, 1, 2)[order]
        ends = np.flatnonzero(np.diff(descending, append=-1.0))  # the last of each run of equal values
        counts = np.concatenate([[0], np.cumsum(weights)[ends]])
        best = int(np.argmin(np.abs(counts - self.target)))
        smallest_kept = descending[ends[best - 1]] if best > 0 else np.inf
        largest_left = descending[ends[best]] if best < len(ends) else self.threshold
        return shortest_between(float(largest_left), float(smallest_kept)), held.where(held.values >= smallest_kept)


ThresholdFilter = FixedThreshold | AutoThreshold
"""Collects streamed entries above ``threshold``, which may rise during the stream; each entry is offered once."""


def shortest_between(low: float, high: float) -> float:
    """Return the number with the fewest decimal digits in [low, high), so that ε can be typed exactly."""
    if low <= 0.0 < high:
        return 0.0
    middle = (low + min(high, 1.0)) / 2
    for digits in range(1, 17):
        candidate = float(f"{middle:.{digits}g}")
        if low <= candidate < high:
            return candidate
    return low


def _joined(parts: list[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Entries(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
    rows, cols, values = zip(*parts, strict=True)
    return Entries(np.concatenate(rows), np.concatenate(cols), np.concatenate(values))

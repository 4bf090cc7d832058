"""Sieves for streamed cross-hop entries: one given ε, or one that rises until as many edges are left as wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

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
        """The entries that ``keep`` marks."""
        return Entries(self.rows[keep], self.cols[keep], self.values[keep])

    def split(self, at: int) -> tuple[Entries, Entries]:
        """The first ``at`` entries and the rest."""
        first = Entries(self.rows[:at], self.cols[:at], self.values[:at])
        return first, Entries(self.rows[at:], self.cols[at:], self.values[at:])

    def weight(self) -> int:
        """How many entries of the full matrix these stand for: two each, one on the diagonal."""
        return 2 * len(self.values) - int(np.count_nonzero(self.rows == self.cols))


class Sieve(Protocol):
    """What the cross-hop stream needs to know: nothing at or below ``threshold`` will be kept."""

    threshold: float

    def offer(self, entries: Entries) -> None:
        """Take what is above the threshold; each entry is offered once."""


@dataclass
class FixedSieve:
    """Keeps values strictly above a given ε."""

    threshold: float
    most: int = 2**62
    """More entries than this are refused."""
    kept: list[Entries] = field(default_factory=list)
    _held: int = 0

    def offer(self, entries: Entries) -> None:
        """Keep ``value > ε``."""
        self.kept.append(entries.where(entries.values > self.threshold))
        self._held += len(self.kept[-1].values)
        if self._held > self.most:
            raise ConfigError(
                f"epsilon {self.threshold:g} keeps more than {self.most:,} pairs of nodes; "
                "raise it, or let it be found with epsilon 'auto'."
            )

    def entries(self) -> Entries:
        """All that was kept."""
        return _joined(self.kept)


class RisingSieve:
    """Finds the ε at which the kept entries come closest to ``target`` in number, in one pass.

    Invariant: every entry seen so far that is above ``threshold`` is held, and no ε below ``threshold`` can win.
    When the held entries, of one triangle, stand for three times the target in the full matrix, the threshold rises
    to about the target-th largest value; so fewer than twice the target are held at any time. Only the end decides
    exactly; ties of one value stay or go together, as ``> ε`` cannot part them.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.threshold = 0.0
        self.peak_held = 0
        self._held: list[Entries] = []
        self._weight = 0

    def offer(self, entries: Entries) -> None:
        """Hold what is above the threshold, as much at a time as there is room, raising the threshold in between."""
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
        """Drop what cannot be kept in the end: values below the largest ``enough`` ones, which outweigh the target."""
        held = _joined(self._held)
        diagonal = int(np.count_nonzero(held.rows == held.cols))
        enough = (self.target + diagonal) // 2 + 1
        if enough < len(held.values):
            smallest = float(np.partition(held.values, len(held.values) - enough)[len(held.values) - enough])
            kept = held.where(held.values >= smallest)
            self.threshold = float(np.nextafter(smallest, 0.0))
            if kept.weight() > 2 * self.target:
                # So many ties that having them is worse than having none: they are out for good.
                kept = held.where(held.values > smallest)
                self.threshold = smallest
            held = kept
        self._held = [held]
        self._weight = held.weight()

    def settle(self) -> tuple[float, Entries]:
        """The winning ε and its entries: ``| #(value > ε) − target |`` is least, the fewer entries on a draw."""
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


def shortest_between(low: float, high: float) -> float:
    """The number with the fewest decimal digits in [low, high): an ε that can be read, typed and repeated exactly."""
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

"""Compute cells and make their lines; one dataset at a time is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgcf.data.dataset import Dataset
from dgcf.experiments.reproduce.cells.base import Cell, Line
from dgcf.experiments.reproduce.datasets import load_dataset
from dgcf.experiments.reproduce.machine import hardware
from dgcf.experiments.reproduce.results import Store
from dgcf.version import __version__


class Executor:
    """Computes cells on a device; ``store`` keeps the values of single users.

    ``measures`` are the names of those that any experiment needs of a training, by its fingerprint.
    """

    def __init__(self, store: Store, prepared: Path | None, device: str) -> None:
        self.store, self.prepared, self.device = store, prepared, device
        self.measures: Mapping[str, Sequence[str]] = {}
        self._dataset: tuple[str, Dataset] | None = None

    def lines(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Line]]:
        """Compute the cells of one group, and yield each with its line as soon as it is finished.

        A comparison is left out if the values that it compares are not stored.
        """
        for cell, result in cells[0].execute(cells, self):
            yield cell, self.line(cell, result)

    def dataset(self, cell: Cell) -> Dataset:
        """Return the dataset of a cell."""
        variant = cell.source.variant(cell.seed or 0)
        name = cell.source.folder(variant)
        if self._dataset is None or self._dataset[0] != name:
            self._dataset = name, load_dataset(cell.source, variant, self.prepared)
        return self._dataset[1]

    def line(self, cell: Cell, result: Line) -> Line:
        """Return the line of a cell with its result, as it is recorded."""
        data: dict[str, Any] = {"name": cell.source.name, "source": cell.source.known}
        if cell.needs_dataset:
            dataset = self.dataset(cell)
            data |= {"fingerprint": dataset.fingerprint, "n_users": dataset.n_users, "n_items": dataset.n_items}
        recipe = cell.recipe
        return {
            **cell.labels,
            "kind": cell.kind,
            "fingerprint": cell.fingerprint,
            "data": data,
            "model": recipe.name if recipe else cell.model,
            "preset": recipe.preset if recipe else None,
            "settings": recipe.settings() if recipe else None,
            "seed": cell.seed,
            "version": __version__,
            "hardware": hardware(self.device),
            **result,
        }

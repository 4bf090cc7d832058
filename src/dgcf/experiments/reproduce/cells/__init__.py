"""The kinds of cells. A new kind is a subclass of `Cell` and an entry in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping

from dgcf.experiments.reproduce.cells.base import Cell, Line, Stage
from dgcf.experiments.reproduce.cells.computed import Comparison, Edges, Epochs, Statistics, Walks
from dgcf.experiments.reproduce.cells.training import Trained, Trial

_KINDS = (Trained, Trial, Statistics, Edges, Walks, Epochs, Comparison)
KINDS: Mapping[str, type[Cell]] = {cls.kind: cls for cls in _KINDS}
"""Every kind of cell by its name in recipes, keys and results."""

__all__ = ["KINDS", "Cell", "Comparison", "Edges", "Epochs", "Line", "Stage", "Statistics"]
__all__ += ["Trained", "Trial", "Walks"]

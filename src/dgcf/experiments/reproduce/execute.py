"""Where cells become lines: what is trained is tested and measured, what is computed is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.reproduce import measures as measuring
from dgcf.experiments.reproduce.cells import computed as computing
from dgcf.experiments.reproduce.datasets import obtain
from dgcf.experiments.reproduce.machine import hardware
from dgcf.experiments.reproduce.recipe import Cell
from dgcf.experiments.reproduce.results import TRAINED, Line, Store
from dgcf.experiments.reproduce.training import Outcome, train_seeds
from dgcf.version import __version__

COMPUTED: Mapping[str, Callable[[Cell, Dataset], dict[str, Any]]] = {
    "statistics": computing.statistics_of,
    "edges": computing.edges_of,
    "walks": computing.walks_of,
}


class Executor:
    """Makes the lines of cells, and keeps the values of single users."""

    def __init__(self, store: Store, prepared: Path | None, device: str) -> None:
        self.store, self.prepared, self.device = store, prepared, device
        self.datasets: dict[str, Dataset] = {}

    def lines(self, cells: Sequence[Cell], measures: Mapping[str, Sequence[str]]) -> Iterator[tuple[Cell, Line]]:
        """The cells of one group, each with its line as soon as it is finished.

        ``measures`` are those that anybody wants of a training, by its fingerprint. A comparison is left out where
        what it compares is not here.
        """
        if cells[0].kind in TRAINED:
            yield from self._trained(cells, measures)
            return
        for cell in cells:
            record = self._compared(cell) if cell.kind == "comparison" else self._computed(cell)
            if record is not None:
                yield cell, self._line(cell, record)

    def failed(self, cell: Cell, why: str, seconds: float) -> Line:
        """The line of a trial that could not be trained."""
        return self._line(cell, {"seconds": round(seconds, 3), "validation": None, "reason": why})

    def _trained(self, cells: Sequence[Cell], measures: Mapping[str, Sequence[str]]) -> Iterator[tuple[Cell, Line]]:
        first = cells[0]
        recipe = first.recipe
        assert recipe is not None
        by_seed: dict[int, list[Cell]] = {}
        for cell in cells:
            by_seed.setdefault(cell.seed or 0, []).append(cell)
        dataset = self._dataset(first)
        validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
        if first.kind == "trial":
            if validate is None:
                raise ConfigError(f"{first.key} decides on validation, and {first.source.name} has none; leave it out.")
            examiner = None  # test decides nothing
        else:
            examiner = measuring.Examiner.of(dataset)
        for outcome in train_seeds(dataset, recipe, list(by_seed), self.device, validate):
            same = by_seed[outcome.seed]
            record = _record(outcome)
            if examiner is not None:
                asked = measures.get(same[0].fingerprint, ())
                record |= self._measured(same[0].fingerprint, outcome, examiner, asked)
            for cell in same:  # more than one where two names stand for one training
                yield cell, self._line(cell, record)

    def _measured(
        self, fingerprint: str, outcome: Outcome, examiner: measuring.Examiner, asked: Sequence[str]
    ) -> dict[str, Any]:
        tested = examiner.tested(outcome.trained)
        finished = measuring.Finished(outcome, examiner.dataset, tested)
        self.store.keep_users(fingerprint, measuring.user_values(tested))
        return {
            "test": measuring.means_by_mask(tested),
            "n_users": tested["train"].users_evaluated,
            "measures": {name: measuring.ASKED[name](finished) for name in asked},
        }

    def _computed(self, cell: Cell) -> dict[str, Any]:
        dataset = self._dataset(cell)
        began = time.perf_counter()
        if cell.kind == "epochs":
            found = computing.epochs_of(cell, dataset, self.device)
        else:
            found = COMPUTED[cell.kind](cell, dataset)
        return {"computed": found, "seconds": round(time.perf_counter() - began, 3)}

    def _compared(self, cell: Cell) -> dict[str, Any] | None:
        found = computing.comparison_of(cell, self.store)
        return None if found is None else {"computed": found, "seconds": 0.0}

    def _dataset(self, cell: Cell) -> Dataset:
        """The dataset that a cell is on; one at a time is held."""
        variant = cell.source.variant(cell.seed or 0)
        name = cell.source.folder(variant)
        if name not in self.datasets:
            self.datasets = {name: obtain(cell.source, variant, self.prepared)}
        return self.datasets[name]

    def _line(self, cell: Cell, record: Mapping[str, Any]) -> Line:
        recipe = cell.recipe
        about: dict[str, Any] = {"name": cell.source.name, "source": cell.source.known}
        if cell.kind != "comparison":
            dataset = self._dataset(cell)
            about |= {"fingerprint": dataset.fingerprint, "n_users": dataset.n_users, "n_items": dataset.n_items}
        return {
            **naming(cell),
            "kind": cell.kind,
            "fingerprint": cell.fingerprint,
            "data": about,
            "model": recipe.name if recipe else cell.model,
            "preset": recipe.preset if recipe else None,
            "settings": recipe.settings() if recipe else None,
            "seed": cell.seed,
            "version": __version__,
            "hardware": hardware(self.device),
            **record,
        }


def naming(cell: Cell) -> dict[str, Any]:
    """What is of the experiment and not of the training."""
    return {
        "experiment": cell.experiment,
        "key": cell.key,
        "label": cell.model,
        "settings_from": cell.settings,
        "varied": dict(cell.varied),
    }


def _record(outcome: Outcome) -> dict[str, Any]:
    trained, curve = outcome.trained, outcome.curve
    looked_at = {*measuring.METRICS, trained.recipe.train.metric}
    return {
        "seconds": round(outcome.seconds, 3),
        "seconds_per_epoch": round(curve.seconds_per_epoch / outcome.side_by_side, 6),
        "side_by_side": outcome.side_by_side,
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "reason": trained.reason,
        "validation": {name: round(value, 8) for name, value in curve.best.items() if name in looked_at},
    }

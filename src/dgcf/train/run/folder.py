"""The run folder: the description, the records and the checkpoints of a training.

``run.json``           model, settings, seed, dataset and its fingerprint, versions: written once, before training
``metrics.jsonl``      loss and validation of every epoch; the same bytes for the same training
``timings.jsonl``      seconds of training and validation of every epoch, and the peak memory so far
``last.safetensors``   the state to resume from; ``best.safetensors`` the weights of the best epoch
``validated``          of a training on all pairs: the run that validation watched; ``dataset`` that of an update
``blend.safetensors``  the item weights of a composed ranking, and the validation of every weighting tried
``log.txt``            notes and progress in plain lines; ``curves.png`` loss and validation as a figure
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dgcf.data.columns import ReadOptions, SourceAsRead
from dgcf.data.dataset import Dataset
from dgcf.data.everything import everything
from dgcf.errors import ArtifactError, ConfigError
from dgcf.files import atomic_file, atomic_folder
from dgcf.random import key_of
from dgcf.stored import (
    UncheckedWarning,
    check_type,
    decode_json,
    read_member,
    seal,
    verify_seal,
)
from dgcf.train.blend.result import Blending
from dgcf.train.peak_memory import peak_mb
from dgcf.train.recipe import Recipe, resolve
from dgcf.train.run.checkpoint import Checkpoint, Description, require_format
from dgcf.train.run.description import RunDescription, describe_dataset, environment
from dgcf.train.run.records import Records
from dgcf.train.stopping import EarlyStopping

FORMAT = 1
ABOUT = "run.json"
FIRST_STAGE, DATASET = "validated", "dataset"
"""Folders in a run: the first stage of a training on all pairs; the dataset of an update."""
LAST, BEST, BLEND = "last.safetensors", "best.safetensors", "blend.safetensors"
METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
OTHER_ORDER = "the order of each user's pairs is another one now, or lost"
OTHER_WEIGHTS = "the weights of the pairs are others now, or lost"


@dataclass
class Run:
    """A run folder, open for training or for reading.

    ``autosave``: the most seconds between two checkpoints; ``pictured``: whether training ends by drawing the curves.
    ``checked`` is False for a folder of version 0.1, whose files have no checksums.
    """

    path: Path
    about: Mapping[str, Any]
    autosave: float = 10.0
    pictured: bool = True
    checked: bool = True
    _saved_at: float = field(default_factory=time.monotonic)
    repaired: bool = False  # whether resuming wrote the best weights again
    _best_saved: int | None = None

    def __post_init__(self) -> None:
        self._metrics = Records(self.path / METRICS, ("epoch",), checked=self.checked)
        spent = ("epoch", "seconds", "validation_seconds")
        self._timings = Records(self.path / TIMINGS, spent, checked=self.checked)

    # -- created and opened -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        dataset: Dataset,
        recipe: Recipe,
        *,
        seed: int,
        device: str,
        source: str = "",
        more: Mapping[str, Any] | None = None,
        inside: bool = False,
    ) -> Run:
        """Create a new folder; ``source`` is the name under which the dataset is loaded again.

        ``more`` are optional fields of the description. ``inside``: the folder exists and holds other parts of the run.
        """
        target = Path(path)
        key_of(seed, "run")  # rejects an invalid seed before anything is written
        if not inside:
            cls.refuse_taken(target)
        about = {
            "format": FORMAT,
            "model": recipe.name,
            "preset": recipe.preset,
            "seed": seed,
            "settings": recipe.settings(),
            "dataset": describe_dataset(dataset, source, recipe),
            "environment": environment(device),
            **(more or {}),
        }
        text = json.dumps(seal(about), indent=1, ensure_ascii=False) + "\n"
        if inside:
            with atomic_file(target / ABOUT) as beside:
                beside.write_text(text, encoding="utf-8")
        else:
            with atomic_folder(target) as beside:
                (beside / ABOUT).write_text(text, encoding="utf-8")
        return cls(target, about)

    @staticmethod
    def refuse_taken(target: Path) -> None:
        """Raise ``ConfigError`` if the folder has a run, or anything else."""
        if any((folder / ABOUT).exists() for folder in (target, target / FIRST_STAGE)):
            raise ConfigError(
                f"{target} holds a run already; resume it with --resume {target}, or choose another --out."
            )
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} is taken by something that is no run; choose another --out.")

    @property
    def has_checkpoint(self) -> bool:
        return os.path.lexists(self.path / LAST)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a folder that ``create`` made."""
        target = Path(path)
        try:
            raw = decode_json(read_member(target / ABOUT), dict[str, Any])
            require_format(raw.get("format"), FORMAT, target)
            checked = verify_seal(raw, ABOUT)
            run = cls(target, check_type(raw, RunDescription), checked=checked)
            _ = run.recipe, run.read_options  # rejects settings that no model has
        except (FileNotFoundError, NotADirectoryError) as problem:
            if (target / FIRST_STAGE / ABOUT).exists():
                raise ArtifactError(
                    f"{target} was stopped before it was trained on all pairs; continue it with `dgcf train --resume "
                    f"{target}`, or use {target / FIRST_STAGE}."
                ) from problem
            reason = "it has no run.json" if target.exists() else "it does not exist"
            raise ArtifactError(f"{target} is not a run folder: {reason}; give a folder of `dgcf train`.") from problem
        except (OSError, ValueError, ConfigError) as problem:
            raise ArtifactError(f"{target / ABOUT} is damaged ({str(problem).rstrip('.')}); train again.") from problem
        if not checked:
            warnings.warn(
                f"{target} has no checksums, as it was written by dgcf 0.1: damage to it may go unnoticed.",
                UncheckedWarning,
                stacklevel=2,
            )
        return run

    @cached_property
    def recipe(self) -> Recipe:
        """The model and settings of the run, independent of the current presets."""
        return resolve(self.about["model"], preset=self.about["preset"], settings=self.about["settings"])

    @property
    def seed(self) -> int:
        return int(self.about["seed"])

    @property
    def source(self) -> str:
        """The name or path under which the dataset is loaded: the folder in the run if it has one, else as recorded."""
        own = self.path / DATASET
        return str(own) if own.is_dir() else str(self.about["dataset"]["source"])

    @cached_property
    def read_options(self) -> ReadOptions:
        """The options with which the dataset was read from a file."""
        return ReadOptions.of_record(self.about["dataset"].get("read", {}))

    def source_as_read(self, moved: Any = None) -> SourceAsRead:
        """Return what ``dgcf.data.load`` reads as the run did: its source, or ``moved`` in place of it."""
        return SourceAsRead(self.source if moved is None else moved, self.read_options)

    @property
    def on_everything(self) -> bool:
        """Whether the pairs of all splits are training pairs."""
        return "on" in self.about

    def dataset_of(self, dataset: Dataset) -> Dataset:
        """Return the loaded dataset as the run uses it: with all pairs in train if it was trained on everything."""
        return everything(dataset) if self.on_everything else dataset

    def require_held_out(self) -> None:
        """Raise ``ConfigError`` if no pair was held out of training, so that a measurement would mean nothing."""
        if self.on_everything:
            first = self.path / FIRST_STAGE
            instead = (
                f"; evaluate {first}, its first stage" if first.is_dir() else "; evaluate a run on the train split"
            )
            raise ConfigError(f"{self.path} was trained on the pairs of all splits, so that none is held out{instead}.")

    def changes(self, dataset: Dataset, recipe: Recipe | None = None, seed: int | None = None) -> list[str]:
        """Return the differences of dataset, model, settings and seed from those of the run, as phrases."""
        changes = []
        if dataset.fingerprint != self.about["dataset"]["fingerprint"]:
            changes.append(
                f"dataset {self.about['dataset']['name']} ({self.about['dataset']['fingerprint'][:12]}) is now "
                f"{dataset.name} ({dataset.fingerprint[:12]})"
            )
        if recipe and self.about["dataset"].get("order") and self.about["dataset"]["order"] != dataset.order:
            changes.append(OTHER_ORDER)
        if self.about["dataset"].get("weights") not in (None, dataset.weighting):
            changes.append(OTHER_WEIGHTS)
        now = {"model": recipe.name, **recipe.settings()} if recipe else {}
        if seed is not None:
            now["seed"] = seed
        # A setting that is newer than the run has its default there.
        before = {"model": self.about["model"], "seed": self.seed, **self.recipe.settings()}
        return changes + [
            f"{key} {before.get(key)} is now {value}" for key, value in now.items() if before.get(key) != value
        ]

    def refuse_changes(self, dataset: Dataset, recipe: Recipe | None = None, seed: int | None = None) -> None:
        """Raise ``ConfigError`` if dataset, model, settings or seed differ from those of the run."""
        if changes := self.changes(dataset, recipe, seed):
            raise ConfigError(
                f"{self.path} was trained on another dataset or with other settings: {'; '.join(changes)}; use the "
                "original ones, or start a new run."
            )

    # -- written while training -------------------------------------------------------------------------------------

    def record(self, metrics: Mapping[str, Any], seconds: float, validation_seconds: float) -> None:
        """Append one finished epoch."""
        spent = {"seconds": seconds, "validation_seconds": validation_seconds, **peak_mb()}
        self._metrics.append(metrics)
        self._timings.append({"epoch": metrics["epoch"], **spent})

    def due(self) -> bool:
        return time.monotonic() - self._saved_at >= self.autosave

    def save(self, checkpoint: Checkpoint) -> None:
        """Save the state. ``last`` has the best weights, too, from which ``best`` can be written again."""
        for records in (self._metrics, self._timings):
            records.sync()  # the epochs that the checkpoint counts must be on the disk before it
        Checkpoint(checkpoint.tensors, {**checkpoint.about, **self._identity}).save(self.path / LAST)
        self._save_best(checkpoint)
        self._saved_at = time.monotonic()

    @property
    def _identity(self) -> dict[str, Any]:
        """The identity that every file of weights in this folder records."""
        names = {name: self.about[name] for name in ("model", "settings", "seed")}
        return {**names, "dataset": self.about["dataset"]["fingerprint"]}

    def _save_best(self, checkpoint: Checkpoint) -> None:
        weights = checkpoint.part("best")
        epoch = _best_epoch(checkpoint.about)
        if not weights or (epoch == self._best_saved):
            return  # already saved
        about = {**self._identity, "epoch": epoch}
        Checkpoint({f"model.{name}": tensor for name, tensor in weights.items()}, about).save(self.path / BEST)
        self._best_saved = epoch

    def resume(self) -> Checkpoint | None:
        """Return the state to continue from, or None if none was saved; later epochs are cut from the records."""
        self._saved_at, self._best_saved = time.monotonic(), None
        if not self.has_checkpoint and os.path.lexists(self.path / BEST):
            raise ArtifactError(f"{self.path / LAST} is missing; restore it from a copy, or train again.")
        saved = self._load(LAST) if self.has_checkpoint else None
        for records in (self._metrics, self._timings):
            records.cut(self._epochs)
        if saved:
            with contextlib.suppress(ArtifactError):  # damaged or missing weights are written again
                self._best_saved = int(self._load(BEST).about["epoch"])
            self.repaired = self._best_saved is None and bool(saved.part("best"))
            self._save_best(saved)
        return saved

    def save_blending(self, blending: Blending) -> None:
        """Save the item weights of the composed ranking of the best epoch."""
        about = {**self._identity, "epoch": int(self.best().about["epoch"]), "blending": blending.to_dict()}
        Checkpoint(blending.tensors(), about).save(self.path / BLEND)

    # -- read -------------------------------------------------------------------------------------------------------

    def metrics(self) -> list[dict[str, Any]]:
        """Return a record for every finished epoch: ``{"epoch": 5, "loss": …, "recall@20": …}``."""
        return self._metrics.read(self._epochs).records

    def timings(self) -> list[dict[str, Any]]:
        """Return the cost of every epoch: ``{"epoch": 5, "seconds": …, "validation_seconds": …, "peak_mb": …}``."""
        return self._timings.read(self._epochs).records

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train, and the best weights are saved."""
        if not self.has_checkpoint:
            return False
        about, config = self._describe(LAST), self.recipe.train
        if not self.recipe.entry.solved:
            stopping = EarlyStopping(config.patience, config.min_epochs)
            stopping.restore(about["stopping"])
            if not stopping.over(about["epoch"], about["done"], config.epochs):
                return False
        try:
            epoch = _best_epoch(about)
            composed = not self.recipe.blend.parts or self._describe(BLEND)["epoch"] == epoch
            return composed and self._describe(BEST)["epoch"] == epoch
        except ArtifactError:
            return False  # to be written again

    @property
    def stopped(self) -> str | None:
        """A sentence that says where an interrupted training stopped; None if it is finished."""
        if self.finished:
            return None
        where = f"after {self._epochs} of at most {self.recipe.train.epochs} epochs" if self._epochs else "at its start"
        return (
            f"{self.path} was stopped before its training ended, {where}; continue it with `dgcf train --resume "
            f"{self.path}`."
        )

    @property
    def seconds(self) -> float:
        """Seconds of training and validation, over all sessions."""
        return float(sum(line["seconds"] + line["validation_seconds"] for line in self.timings()))

    @property
    def seconds_per_epoch(self) -> float:
        """Mean seconds of an epoch's training, without validation."""
        timings = self.timings()
        return float(sum(line["seconds"] for line in timings)) / max(len(timings), 1)

    @property
    def peak_mb(self) -> float | None:
        """Peak resident memory of the process while it trained, in MB; None if it was not measured."""
        return max((line["peak_mb"] for line in self.timings() if "peak_mb" in line), default=None)

    def best(self) -> Checkpoint:
        """Return the weights of the best epoch, as ``model.…``."""
        if not os.path.lexists(self.path / BEST):
            raise ArtifactError(
                f"{self.path} has not been validated yet; continue it with `dgcf train --resume {self.path}`."
            )
        best = self._load(BEST)
        if self.has_checkpoint and best.about["epoch"] != (epoch := _best_epoch(self._describe(LAST))):
            # Training was killed between the two files. The last one has the weights of a later best epoch.
            weights = self._load(LAST).part("best")
            return Checkpoint({f"model.{name}": w for name, w in weights.items()}, {**best.about, "epoch": epoch})
        return best

    def blending(self, n_items: int) -> Blending | None:
        """Return the item weights of the composed ranking; None if they have not been chosen for the best epoch."""
        if not os.path.lexists(self.path / BLEND):
            return None
        saved = self._load(BLEND)
        if saved.about["epoch"] != self.best().about["epoch"]:
            return None
        try:
            return Blending.of(saved.about["blending"], saved.part("blend"), n_items)
        except (KeyError, TypeError, ValueError) as problem:
            raise ArtifactError(
                f"{self.path / BLEND} is damaged ({problem}); delete it and train with --resume."
            ) from problem

    # -- files, verified ----------------------------------------------------------------------------------------------

    def _load(self, name: str) -> Checkpoint:
        self._describe(name)
        return Checkpoint.load(self.path / name, checked=self.checked)

    def _describe(self, name: str) -> Description:
        """Return what a file of weights says of itself; one of another run is refused."""
        about = Checkpoint.describe(self.path / name, checked=self.checked)
        for key, value in self._identity.items():
            if key in about and about[key] != value:  # type: ignore[literal-required]
                raise ArtifactError(
                    f"{self.path / name} is of another run: its {key} is not that of {ABOUT}; restore it from a copy, "
                    "or train again."
                )
        needed = {"best_epoch"} if self.recipe.entry.solved else {"best_epoch", "best", "stale"}
        if name == LAST and not needed <= about.get("stopping", {}).keys():
            raise ArtifactError(f"{self.path / name} is no state of training; restore it from a copy, or train again.")
        return about

    @property
    def _epochs(self) -> int:
        """Epochs that are complete in the last checkpoint."""
        return max(self._describe(LAST)["epoch"] - 1, 0) if self.has_checkpoint else 0


def _best_epoch(about: Mapping[str, Any]) -> int:
    """Return the best epoch of a checkpoint; without validation, the last."""
    return int(about["stopping"]["best_epoch"] or about["epoch"] - 1)

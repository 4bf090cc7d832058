"""The run folder: what was trained on what, how it went, and the state from which it can go on.

``run.json``           model, settings, seed, dataset and its fingerprint, versions: written once, before training
``metrics.jsonl``      loss and validation of every epoch; the same bytes for the same training
``timings.jsonl``      seconds that training and validation took in every epoch, and the most memory held so far
``last.safetensors``   everything needed to go on; ``best.safetensors`` the weights of the best epoch
``log.txt``            notes and progress in plain lines; ``curves.png`` loss and validation as a picture
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.files import whole_file, whole_folder
from dgcf.random import key_of
from dgcf.train.checkpoint import Checkpoint
from dgcf.train.config import TrainConfig
from dgcf.train.memory import peak_mb
from dgcf.train.recipe import Recipe, resolve
from dgcf.train.sampler import require_order
from dgcf.train.stopping import EarlyStopping
from dgcf.version import __version__

FORMAT = 1
LAST, BEST = "last.safetensors", "best.safetensors"
METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
OTHER_ORDER = "the order of each user's pairs is another one now, or lost"


@dataclass
class Run:
    """A run folder, open for training or for reading.

    ``autosave`` is the most seconds between two checkpoints; ``pictured``, whether training ends with a picture.
    """

    path: Path
    about: Mapping[str, Any]
    autosave: float = 10.0
    pictured: bool = True
    _saved_at: float = field(default_factory=time.monotonic)

    # -- made, and opened again -------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, path: str | Path, dataset: Dataset, recipe: Recipe, *, seed: int, device: str, source: str = ""
    ) -> Run:
        """A new folder; ``source`` is how the dataset was named, to find it again."""
        target = Path(path)
        key_of(seed, "run")  # refuses what cannot be a seed before anything is written
        cls.refuse_taken(target)
        about = {
            "format": FORMAT,
            "model": recipe.name,
            "preset": recipe.preset,
            "seed": seed,
            "settings": recipe.settings(),
            "dataset": {
                "name": dataset.name,
                "source": source or dataset.name,
                "fingerprint": dataset.fingerprint,
                "n_users": dataset.n_users,
                "n_items": dataset.n_items,
                "train": len(dataset.train),
                **order_of(dataset, used=recipe.train.recency > 0),
            },
            "environment": environment(device),
        }
        with whole_folder(target) as beside:
            (beside / "run.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        return cls(target, about)

    @staticmethod
    def refuse_taken(target: Path) -> None:
        """Refuse a folder that holds a run, or anything else."""
        if (target / "run.json").exists():
            raise ConfigError(
                f"{target} holds a run already; go on with it by --resume {target}, or choose another --out."
            )
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} is taken by something that is no run; choose another --out.")

    @property
    def has_checkpoint(self) -> bool:
        return (self.path / "last.safetensors").exists()

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A folder that ``create`` made."""
        target = Path(path)
        try:
            about = json.loads((target / "run.json").read_text())
            if about["format"] != FORMAT:
                raise ArtifactError(
                    f"{target} was written by another version of dgcf (format {about['format']}, this one reads "
                    f"{FORMAT}); use that version, or train again."
                )
            for key in ("model", "preset", "seed", "settings", "dataset", "environment"):
                about[key]
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise ArtifactError(
                f"{target} is not a run folder: it has no run.json; give a folder that `dgcf train` made."
            ) from problem
        except (OSError, ValueError, KeyError, TypeError) as problem:
            what = f"it has no {problem}" if isinstance(problem, KeyError) else str(problem)
            raise ArtifactError(f"{target}/run.json is damaged ({what}); train again.") from problem
        return cls(target, about)

    @property
    def recipe(self) -> Recipe:
        """The model and settings that were trained, whatever today's presets say."""
        return resolve(self.about["model"], preset=self.about["preset"], settings=self.about["settings"])

    @property
    def seed(self) -> int:
        return int(self.about["seed"])

    def changes(self, dataset: Dataset, recipe: Recipe | None = None, seed: int | None = None) -> list[str]:
        """What of dataset, model, settings and seed is not as this run has it, each in words."""
        changes = []
        if dataset.fingerprint != self.about["dataset"]["fingerprint"]:
            changes.append(
                f"dataset {self.about['dataset']['name']} ({self.about['dataset']['fingerprint'][:12]}) is now "
                f"{dataset.name} ({dataset.fingerprint[:12]})"
            )
        if recipe and self.about["dataset"].get("order") and self.about["dataset"]["order"] != dataset.order:
            changes.append(OTHER_ORDER)
        now = {"model": recipe.name, **recipe.settings()} if recipe else {}
        if seed is not None:
            now["seed"] = seed
        # A setting that came with a later version than the run had its default there.
        before = {"model": self.about["model"], "seed": self.seed, **self.recipe.settings()}
        return changes + [
            f"{key} {before.get(key)} is now {value}" for key, value in now.items() if before.get(key) != value
        ]

    def refuse_changes(self, dataset: Dataset, recipe: Recipe | None = None, seed: int | None = None) -> None:
        """Refuse to go on with another dataset, model, setting or seed, and say which one changed."""
        if changes := self.changes(dataset, recipe, seed):
            raise ConfigError(
                f"{self.path} was trained otherwise: {'; '.join(changes)}; use what it began with, or start a new run."
            )

    # -- the trainer's keeper ---------------------------------------------------------------------------------------

    def record(self, metrics: Mapping[str, Any], seconds: float, validation_seconds: float) -> None:
        """Append one finished epoch."""
        spent = {"seconds": seconds, "validation_seconds": validation_seconds, **peak_mb()}
        timing = {"epoch": metrics["epoch"], **spent}
        for name, line in ((METRICS, metrics), (TIMINGS, timing)):
            append_line(self.path / name, json.dumps(line))

    def due(self) -> bool:
        return time.monotonic() - self._saved_at >= self.autosave

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep the state. ``last`` holds the best weights too, so the two files can never disagree for long."""
        for name in (METRICS, TIMINGS):  # what the checkpoint counts as done must be on the disk before it
            if (self.path / name).exists():
                _sync(self.path / name)
        about = {"model": self.about["model"], "dataset": self.about["dataset"]["fingerprint"], **checkpoint.about}
        Checkpoint(checkpoint.tensors, about).save(self.path / LAST)
        self._save_best(checkpoint)
        self._saved_at = time.monotonic()

    def _save_best(self, checkpoint: Checkpoint) -> None:
        weights = checkpoint.part("best")
        epoch = _best_epoch(checkpoint.about)
        about = {
            "model": self.about["model"],
            "dataset": self.about["dataset"]["fingerprint"],
            "settings": self.about["settings"],
            "epoch": epoch,
        }
        path = self.path / BEST
        if not weights or (path.exists() and _epoch_of(path) == epoch):
            return  # the best of one epoch is always the same
        Checkpoint({f"model.{name}": tensor for name, tensor in weights.items()}, about).save(path)

    def resume(self) -> Checkpoint | None:
        """The state to go on from, or None if none was saved; later epochs are cut from the records."""
        self._saved_at = time.monotonic()
        saved = Checkpoint.load(self.path / LAST) if (self.path / LAST).exists() else None
        epochs = int(saved.about["epoch"]) - 1 if saved else 0
        for name in (METRICS, TIMINGS):
            lines = self._lines(name)
            if lines[:epochs] != lines or not (self.path / name).exists():
                with whole_file(self.path / name) as beside:
                    beside.write_text("".join(json.dumps(line) + "\n" for line in lines[:epochs]))
        if saved and len(self.metrics()) < epochs:
            raise ArtifactError(
                f"{self.path / METRICS} ends at epoch {len(self.metrics())}, but the checkpoint is of epoch {epochs}; "
                "restore it from a copy, or train again."
            )
        if saved:
            self._save_best(saved)
        return saved

    # -- read -------------------------------------------------------------------------------------------------------

    def metrics(self) -> list[dict[str, Any]]:
        """Every finished epoch: ``{"epoch": 5, "loss": …, "recall@20": …}``."""
        return self._lines(METRICS)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train, and the best state is the one that training ended with."""
        if not self.has_checkpoint:
            return False
        about, recipe = Checkpoint.describe(self.path / LAST), self.recipe
        over = recipe.entry.at_once or _over(about, recipe.train)
        return over and _epoch_of(self.path / BEST) == _best_epoch(about)

    @property
    def seconds(self) -> float:
        """Time spent in training and validation, over all sittings."""
        return float(sum(line["seconds"] + line["validation_seconds"] for line in self._lines(TIMINGS)))

    @property
    def seconds_per_epoch(self) -> float:
        """Mean time of an epoch's training, validation not counted."""
        timings = self._lines(TIMINGS)
        return float(sum(line["seconds"] for line in timings)) / max(len(timings), 1)

    @property
    def peak_mb(self) -> float | None:
        """The most resident memory of the process while it trained, in MB; None where that was not measured."""
        return max((line["peak_mb"] for line in self._lines(TIMINGS) if "peak_mb" in line), default=None)

    def best(self) -> Checkpoint:
        """The weights of the best epoch."""
        if not (self.path / BEST).exists():
            raise ArtifactError(
                f"{self.path} has no best state yet; let it train up to its first validation: --resume {self.path}."
            )
        return Checkpoint.load(self.path / BEST)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of a record; one that was being written when the power failed is no line."""
        path = self.path / name
        found: list[dict[str, Any]] = []
        for text in path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []:
            try:
                found.append(json.loads(text))
            except ValueError:
                break
        return found


def environment(device: str) -> dict[str, Any]:
    """What may change the last bits of a result."""
    packages = ("torch", "numpy", "scipy", "safetensors")
    return {
        "dgcf": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "device": device,
        "threads": torch.get_num_threads(),
    }


def append_line(path: Path, line: str) -> None:
    """Add a line to a record. One that a full disk tears apart is no line, and is cut off when the run goes on."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as problem:
        raise DataError(
            f"cannot write {path}: {problem.strerror}; free some space or mend the folder, then go on with --resume."
        ) from problem


def _over(about: Mapping[str, Any], config: TrainConfig) -> bool:
    """Whether a checkpoint of the training loop is its last."""
    stopping = EarlyStopping(config.patience, config.min_epochs)
    stopping.restore(about["stopping"])
    return stopping.over(about["epoch"], about["done"], config.epochs)


def _best_epoch(about: Mapping[str, Any]) -> int:
    """The best epoch of a checkpoint; without validation the last one counts as best."""
    return int(about["stopping"]["best_epoch"] or about["epoch"] - 1)


def _epoch_of(path: Path) -> int | None:
    try:
        return int(Checkpoint.describe(path)["epoch"])
    except ArtifactError:
        return None  # damaged: to be written again


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def order_of(dataset: Dataset, *, used: bool) -> dict[str, str | None]:
    """The order of the pairs beside a fingerprint, where it decides what is drawn, and so has to be known."""
    if not used:
        return {}
    require_order(dataset.train)
    return {"order": dataset.order}

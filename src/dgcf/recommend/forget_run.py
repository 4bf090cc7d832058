"""Forget users in a run folder: the description, the weights, the recommender and the dataset; needs torch.

The folder is replaced as a whole. The run then has its own dataset in it, without the users, so that nothing reads its
source again. Rows of weights are removed and all others stay as they are; metrics stay as they were measured.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.dataset import ABOUT as DATASET_ABOUT
from dgcf.data.forget import others
from dgcf.data.forget import without_users as dataset_without
from dgcf.data.paths import is_read
from dgcf.data.prepare import Preparation
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ArtifactError, DataError
from dgcf.files import atomic_folder, exclusive_lock, explain_os_errors, sweep
from dgcf.ranking.arrays import Indices
from dgcf.recommend import artifact, loading
from dgcf.recommend.container import hash_of
from dgcf.recommend.forget import (
    Forgetting,
    Place,
    counts,
    influence,
    is_listed,
    link_or_copy,
    original,
    present,
    sources,
    without_users,
)
from dgcf.recommend.snapshot import Snapshot
from dgcf.stored import seal
from dgcf.text import Notify
from dgcf.train import Recipe, Run
from dgcf.train.run.checkpoint import Checkpoint
from dgcf.train.run.description import describe_dataset
from dgcf.train.run.folder import ABOUT, BEST, BLEND, DATASET, FIRST_STAGE, LAST
from dgcf.train.run.moved import explain_moved

WRITTEN = frozenset((ABOUT, LAST, BEST, BLEND, loading.BESIDE_WEIGHTS))
KEPT = frozenset(("metrics.jsonl", "timings.jsonl", "log.txt", "curves.png", "mlflow.json", "tensorboard", FIRST_STAGE))
_SIZES = (7, 6), 5
"""Numbers of users, and of items, of two small models by which the dimensions that grow with the users are known."""


@dataclass
class Stage:
    """A run with its dataset and recommender, as they are before the users are removed."""

    run: Run
    data: Any = None
    notify: Notify | None = None

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """The recommender of the run; None if no epoch is saved yet."""
        if not (self.run.path / BEST).exists():
            return None
        return loading.load(self.run.path, data=self.data, notify=self.notify).snapshot

    @cached_property
    def loaded(self) -> Dataset:
        """The dataset that the run's source has now, with its splits; times are read too, if there are some."""
        run, source = self.run, self.run.source_as_read(self.data)
        ordered = run.recipe.train.recency > 0
        with explain_moved(run, self.data):
            if is_read(source.source):
                with contextlib.suppress(DataError):  # no times, or not of every row
                    return load_data(source, Preparation(keep_times=True, keep_order=ordered), notify=self.notify)
            return load_data(source, Preparation(keep_order=ordered), notify=self.notify)

    @cached_property
    def users(self) -> Vocabulary:
        """The users that the weights have rows of."""
        if not self.run.changes(self.run.dataset_of(self.loaded)) or self.snapshot is None:
            return self.loaded.users
        return self.snapshot.users

    def without(self, users: Collection[str], at: float) -> Dataset:
        """Return the dataset without users, who may have been removed from it already."""
        used = self.run.dataset_of(self.loaded)
        if self.run.changes(used) and self.snapshot is not None:
            kept = self.snapshot.of_users(others(self.snapshot.users, users))
            if (kept.users, kept.train) == (used.users, used.train):
                return self.loaded
        self.run.refuse_changes(used)
        return dataset_without(self.loaded, users, at)


@dataclass
class RunFolder:
    """A run folder; ``data`` is its dataset if it has moved, and ``out`` another folder for the result."""

    path: Path
    data: Any = None
    out: Path | None = None
    notify: Notify | None = None
    stages: dict[str, Stage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sweep(self.path.resolve())
        for name in (".", FIRST_STAGE):
            if (self.path / name / ABOUT).is_file():
                run = Run.open(self.path / name)
                if not run.checked:
                    raise ArtifactError(
                        f"{self.path} was written by dgcf 0.1, whose files have no checksums; export it with `dgcf "
                        "export`, forget the users in the exported file, and delete the folder."
                    )
                self.stages[name] = Stage(run, self.data, self.notify)
        if not self.stages:
            Run.open(self.path)  # raises

    @property
    def main(self) -> Stage:
        """The last stage that has begun."""
        return next(iter(self.stages.values()))

    def model(self) -> tuple[Snapshot, Dataset | None] | None:
        stage = self.main
        used = stage.run.dataset_of(stage.loaded)
        known = used.users == stage.users and not stage.run.changes(used)
        return None if stage.snapshot is None else (stage.snapshot, used if known else None)

    def vocabularies(self) -> Sequence[Vocabulary]:
        return [stage.users for stage in self.stages.values()]

    def knows(self, user: str) -> bool:
        return any(user in stage.users or is_listed(user, stage.loaded.record) for stage in self.stages.values())

    def remove(self, forgetting: Forgetting) -> Place:
        held = {name: present(stage.users, forgetting.users) for name, stage in self.stages.items()}
        users = tuple(dict.fromkeys(user for some in held.values() for user in some))
        if not users:
            return Place("run", str(self.path))
        place = self._place(users, forgetting)
        target, source = (self.out or self.path).resolve(), self.path.resolve()
        mode = source.stat().st_mode & 0o7777
        with ExitStack() as stack:
            for stage in self.stages.values():
                stack.enter_context(exclusive_lock(stage.run.path))
            beside = stack.enter_context(atomic_folder(target, overwrite=self.out is None))
            copy_tree(source, beside, link=self.out is None)
            for name, stage in self.stages.items():
                if held[name]:
                    rewrite_run(stage, beside / name, target / name, held[name], forgetting.at)
        target.chmod(mode)
        return place

    def _place(self, users: tuple[str, ...], forgetting: Forgetting) -> Place:
        snapshot, run = self.main.snapshot, self.main.run
        files = {name for stage in self.stages.values() for name in _files(stage.run.path) if name in WRITTEN}
        if snapshot is not None:
            pairs, held_out = counts(snapshot, present(snapshot.users, users))
        else:
            train = run.dataset_of(self.main.loaded).train
            index = [self.main.users.index_of(user) for user in present(self.main.users, users)]
            pairs, held_out = int(train.user_degrees[index].sum()), 0
        return Place(
            "run",
            str(self.path),
            users,
            pairs,
            held_out,
            files=(*sorted(files), DATASET),
            stays=None if snapshot is None else influence(snapshot, users),
            elsewhere=self._elsewhere(users, forgetting),
        )

    def _elsewhere(self, users: tuple[str, ...], forgetting: Forgetting) -> tuple[str, ...]:
        run, sentences = self.main.run, list[str]()
        source = run.source if self.data is None else str(self.data)
        own = (run.path / DATASET).is_dir() or forgetting.covers(source)
        if not own and present(self.main.loaded.users, users):
            how = "delete their rows there" if is_read(source) else "a known dataset is never changed"
            if (Path(source) / DATASET_ABOUT).is_file():
                how = f"use `dgcf forget {source}` for it as well"
            sentences.append(f"{source}, which the run was trained on, still holds the users; {how}.")
        for sentence in sources({**self.main.loaded.record, "where": run.read_options.where}, users):
            if not (sentences and sentence.startswith(f"{source},")):
                sentences.append(sentence)
        parent = (run.about.get("update", {}).get("parent") or {}).get("path")
        if parent and Path(parent).exists() and not forgetting.covers(parent):
            sentences.append(f"{parent}, which the run updates, may hold the users; use `dgcf forget` for it as well.")
        for stage in self.stages.values():
            if unknown := sorted(_files(stage.run.path) - WRITTEN - KEPT - {DATASET}):
                named = ", ".join(unknown)
                sentences.append(f"{named} in {stage.run.path} is not a file of a run and stays; check it yourself.")
        return tuple(dict.fromkeys([*sentences, *original(self.path, self.out)]))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not _temporary(path)}


def _temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix in (".part", ".old")


def copy_tree(source: Path, target: Path, *, link: bool) -> None:
    """Fill an empty folder with the files of another one; ``link``: as second names of these."""
    for path in sorted(source.iterdir()):
        if _temporary(path):
            continue
        if path.is_dir() and not path.is_symlink():
            (target / path.name).mkdir()
            copy_tree(path, target / path.name, link=link)
            (target / path.name).chmod(path.stat().st_mode & 0o7777)
        elif link:
            link_or_copy(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name, follow_symlinks=False)


def rewrite_run(stage: Stage, folder: Path, final: Path, users: Collection[str], at: float) -> None:
    """Rewrite the files of a run in ``folder``, which becomes ``final``."""
    before, run = stage.run.path, stage.run
    snapshot, kept = stage.snapshot, others(stage.users, users)
    dataset = replace(stage.without(users, at), read_options=_read_options(run))
    used = run.dataset_of(dataset)
    with explain_os_errors(final):
        shutil.rmtree(folder / DATASET, ignore_errors=True)
        (folder / DATASET).mkdir()
        dataset.write_files(folder / DATASET)
    entry = describe_dataset(used, str(final / DATASET), run.recipe)
    _write(folder / ABOUT, seal(_without_seal({**run.about, "dataset": entry})), before / ABOUT)
    dimensions = user_dimensions(run.recipe, run.seed)
    for name in (BEST, LAST, BLEND):
        if (before / name).exists():
            saved = Checkpoint.load(before / name)
            about = {**_without_seal(saved.about), "dataset": used.fingerprint}
            _replace(folder / name, Checkpoint(_of_users(saved.tensors, dimensions, stage.users, kept), about))
            shutil.copystat(before / name, folder / name)
    (folder / loading.BESIDE_WEIGHTS).unlink(missing_ok=True)
    if snapshot is not None:
        fewer = without_users(snapshot, users, at)
        named = {**fewer.about["dataset"], "fingerprint": used.fingerprint}
        about = {**fewer.about, "dataset": named, "weights": hash_of(folder / BEST)}
        artifact.save(replace(fewer, about=about), folder / loading.BESIDE_WEIGHTS)


def _read_options(run: Run) -> dict[str, Any]:
    """Return how the run read its source, for the rows of an update; the titles are in the dataset now."""
    options = run.about["dataset"].get("read", {})
    return {name: value for name, value in options.items() if not name.startswith("titles")}


def _without_seal(about: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if name not in ("sha256", "tensors")}


def _write(path: Path, about: Mapping[str, Any], before: Path) -> None:
    path.unlink()  # it may be a second name of the old file
    path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copystat(before, path)


def _replace(path: Path, checkpoint: Checkpoint) -> None:
    path.unlink()
    checkpoint.save(path)


def user_dimensions(recipe: Recipe, seed: int) -> dict[str, int]:
    """Return the dimension along which each tensor of a model grows with the users, who come first in it."""
    (more, fewer), items = _SIZES
    models = [recipe.entry.build(users, items, recipe.model, seed) for users in (more, fewer)]
    shapes = [{name: tensor.shape for name, tensor in model.state_dict().items()} for model in models]
    return {
        name: next(place for place, size in enumerate(shape) if size != shapes[1][name][place])
        for name, shape in shapes[0].items()
        if shape != shapes[1][name]
    }


def _of_users(
    tensors: Mapping[str, Tensor], dimensions: Mapping[str, int], users: Vocabulary, kept: Indices
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint without the rows of the users that are not kept, Adam's state included."""
    return {name: _rows(tensor, _dimension(name, tensor, dimensions), users, kept) for name, tensor in tensors.items()}


def _dimension(name: str, tensor: Tensor, dimensions: Mapping[str, int]) -> int | None:
    parameter = name.partition(".")[2]
    for known in (parameter, parameter.rpartition(".")[0]):  # the second of layer0.exp_avg
        if known in dimensions and tensor.ndim > 0:
            return dimensions[known]
    return None


def _rows(tensor: Tensor, dimension: int | None, users: Vocabulary, kept: Indices) -> Tensor:
    if dimension is None:
        return tensor
    more = torch.arange(len(users), tensor.shape[dimension])  # items, whose rows come after those of the users
    return tensor.index_select(dimension, torch.cat([torch.from_numpy(kept), more]))

"""Originals of crafted files: small valid files, how each kind is used, and how its checksums are updated."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dgcf
from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.data.synthetic import planted
from dgcf.errors import DgcfError
from dgcf.evaluate.validation import validator
from dgcf.experiments.progress import Progress
from dgcf.experiments.search import Search, search_for
from dgcf.experiments.tune import tune
from dgcf.recommend import Recommender
from dgcf.stored import chain_line, file_entry, seal
from dgcf.train import Observer, Run, resolve, train
from dgcf.train import load as load_run
from dgcf.train.run.checkpoint import _digest
from dgcf.train.run.observer import EpochReport
from tests.fuzz.mutations import tensors_of

SETTINGS = {"dim": 4, "layers": 2, "epochs": 4, "evaluate_every": 1, "patience": 0, "batch_size": 256}


def one_line(problem: DgcfError) -> str:
    return " ".join(str(problem).splitlines())[:2000]


@dataclass(frozen=True)
class Kind:
    """A kind of stored files; ``originals`` have the same structure, so that their files can be swapped."""

    name: str
    originals: list[Path]
    use: Callable[[Path, bool], str]
    reseal: Callable[[Path], None]


# -- artefacts --------------------------------------------------------------------------------------------------------


def use_artifact(path: Path, thorough: bool) -> str:
    """Call every method of a recommender; return all answers."""
    rec = dgcf.load(path)
    snapshot = rec.snapshot
    users, items = list(snapshot.users), list(snapshot.items)
    answers = [repr(rec), repr(rec.get_params()), rec.recommend(users, 4), rec.score(users[0], items)]
    calls: list[Callable[[], Any]] = [
        lambda: rec.recommend_for(items[:2], 3),
        lambda: rec.explain(users[0], items[0]).to_dict(),
        lambda: rec.explain_for(items[:2], items[-1]).to_dict(),
        lambda: rec.similar_items(items[0], 3),
        lambda: rec.similar_users(users[0], 3),
        lambda: rec.audience_for(users[:2], 3),
        lambda: rec.recommend(snapshot.users.title_of(0), 1),
    ]
    return "\n".join(map(str, [*answers, *map(_answer, calls)]))


def _answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DgcfError as problem:
        return one_line(problem)


def pack_artifact(path: Path, members: dict[str, bytes]) -> None:
    """Write members under a manifest with their checksums."""
    sealed = dict(members)
    with contextlib.suppress(Exception):  # an invalid manifest stays invalid
        manifest = json.loads(members["manifest.json"])
        entries = {name: file_entry(data) for name, data in members.items() if name != "manifest.json"}
        manifest["files"] = {name: entries.get(name, entry) for name, entry in manifest["files"].items()}
        manifest.pop("sha256", None)
        sealed["manifest.json"] = json.dumps(seal(manifest)).encode()
    if path.suffix == ".dgcf":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in sealed.items():
                archive.writestr(zipfile.ZipInfo(name), data)
    else:
        for name, data in sealed.items():
            (path / name).write_bytes(data)


def reseal_artifact(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    pack_artifact(folder, files)


def make_artifacts(base: Path) -> list[Kind]:
    """Return recommenders of all kinds of rankings, each as a file and as a folder, with two seeds."""
    films = planted(n_users=24, n_items=20)
    few: dict[str, Any] = {"dim": 4, "epochs": 1}
    models: dict[str, dict[str, Any]] = {
        "dgcf": {**few, "layers": 2}, "bpr-mf": few, "ease": {}, "item-knn": {},
        "popularity": {}, "ials": {"factors": 4},
    }  # fmt: skip
    files, folders = [], []
    for model, settings in models.items():
        for seed in (0, 1):
            rec = Recommender(model, seed=seed, device="cpu", **settings).fit(films)
            files.append(rec.save(base / f"{model}-{seed}.dgcf"))
            folders.append(rec.save(base / f"{model}-{seed}"))
    return [
        Kind("artifact-file", files, use_artifact, lambda path: None),
        Kind("artifact-folder", folders, use_artifact, reseal_artifact),
    ]


# -- datasets ---------------------------------------------------------------------------------------------------------


def use_dataset(path: Path, thorough: bool) -> str:
    dataset = Dataset.load(path)
    fields = [dataset.name, dataset.fingerprint, dataset.order, dict(dataset.repeats), json.dumps(dataset.record)]
    sides = [(side.kind, list(side), side.titles) for side in (dataset.users, dataset.items)]
    if thorough:
        recipe = resolve("popularity")
        validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
        train(dataset, recipe, device="cpu", validate=validate)
        Recommender.of(Recommender("popularity").fit(dataset).snapshot).recommend(dataset.users.texts[:2], 2)
    return repr((fields, sides))


def reseal_dataset(folder: Path) -> None:
    """Update fingerprint, list of files and checksum of ``dataset.json``, as far as its folder can be read."""
    about = json.loads((folder / "dataset.json").read_bytes())
    arrays = {}
    for path in folder.glob("*.npy"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                arrays[path.stem] = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
        sides = [Vocabulary(side, arrays[f"{side}_ids"], arrays[f"{side}_offsets"]) for side in ("user", "item")]
        splits = [
            Pairs(arrays[f"{name}_indptr"], arrays[f"{name}_indices"], 1, arrays.get(f"{name}_place"))
            for name in ("train", "validation", "test")
        ]
        rebuilt = Dataset("", *sides, *splits)
        about.update(fingerprint=rebuilt.fingerprint, order=rebuilt.order)
    if isinstance(about.get("files"), dict):
        for path in folder.iterdir():
            if path.name in about["files"] and path.is_file() and not path.is_symlink():
                about["files"][path.name] = file_entry(path.read_bytes())
    reseal_json(folder / "dataset.json", about)


def reseal_json(path: Path, about: dict[str, Any] | None = None) -> None:
    about = json.loads(path.read_bytes()) if about is None else about
    path.write_text(json.dumps(seal({key: value for key, value in about.items() if key != "sha256"})))


def make_datasets(base: Path) -> list[Kind]:
    folders = []
    for seed in (0, 1):
        films = planted(n_users=24, n_items=20, seed=seed)
        folders.append(films.save(base / f"films-{seed}"))
    return [Kind("dataset", folders, use_dataset, reseal_dataset)]


# -- runs -------------------------------------------------------------------------------------------------------------


class Stop(Observer):
    """Ends training in its third epoch, as Ctrl-C does."""

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        if epoch == 3:
            raise KeyboardInterrupt


def use_run(dataset: Dataset, path: Path, thorough: bool) -> str:
    """Read a run, evaluate it, and (``thorough``) train it to its end."""
    run = Run.open(path)
    state = [run.finished, run.metrics(), run.seconds >= 0, run.peak_mb is None]
    _, _, ranking = load_run(run, dataset)
    scores = validator(dataset, run.recipe.train.metric)(ranking)
    answers = [json.dumps(run.about["settings"], sort_keys=True), state, dict(scores)]
    if not thorough:
        return repr(answers)
    validate = validator(dataset, run.recipe.train.metric)
    trained = train(dataset, run.recipe, seed=run.seed, device="cpu", validate=validate, run=run)
    end = hashlib.sha256((path / "best.safetensors").read_bytes()).hexdigest()
    rec = dgcf.load(path, data=dataset)
    return repr([*answers, trained.epochs, end, rec.recommend(dataset.users.texts[:3], 3)])


def reseal_run(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
            if path.name == "run.json":
                reseal_json(path)
            elif path.suffix == ".jsonl":
                check, text = "", ""
                for line in path.read_text().splitlines():
                    record = json.loads(line)
                    record.pop("check", None)
                    made, check = chain_line(record, check)
                    text += made
                path.write_text(text)
            elif path.suffix == ".safetensors":
                path.write_bytes(resealed_checkpoint(path.read_bytes()))


def resealed_checkpoint(data: bytes) -> bytes:
    """Return a checkpoint with updated checksums of its tensors and its description."""
    from safetensors.torch import load

    header, content = tensors_of(data)
    about = json.loads(header["__metadata__"]["dgcf"])
    about.pop("sha256", None)
    with contextlib.suppress(Exception):  # the tensors cannot be read
        about["tensors"] = _digest(load(data))
    header["__metadata__"]["dgcf"] = json.dumps(seal(about), sort_keys=True)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def make_runs(base: Path) -> list[Kind]:
    """Return finished and interrupted runs of two seeds, of other models, solved and composed."""
    films = planted(n_users=24, n_items=20)
    films.save(base / "films")
    runs = []
    composed = {**SETTINGS, "blend": "gf-cf(rank=3)+ease(l2=20)"}
    for name, model, seed, stopped, settings in (
        ("dgcf-0", "dgcf", 0, False, SETTINGS), ("dgcf-1", "dgcf", 1, False, SETTINGS),
        ("stopped-0", "dgcf", 0, True, SETTINGS), ("stopped-1", "dgcf", 1, True, SETTINGS),
        ("lightgcn", "lightgcn", 0, False, SETTINGS), ("ease", "ease", 0, False, {}),
        ("composed-0", "dgcf", 0, False, composed), ("composed-1", "dgcf", 1, False, composed),
    ):  # fmt: skip
        recipe = resolve(model, preset="plain", settings=settings)
        run = Run.create(base / name, films, recipe, seed=seed, device="cpu", source=str(base / "films"))
        run.autosave, run.pictured = 0.0, False
        observer = Stop() if stopped else None
        validate = validator(films, recipe.train.metric)
        with contextlib.suppress(KeyboardInterrupt):
            train(films, recipe, seed=seed, device="cpu", validate=validate, run=run, observer=observer)
        runs.append(run.path)
    return [Kind("run", runs, partial(use_run, films), reseal_run)]


# -- studies ----------------------------------------------------------------------------------------------------------

TRIALS = 3


class StopTrial(Progress):
    """Ends tuning in the last trial, as Ctrl-C does."""

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        if job == f"trial {TRIALS - 1}" and report.epoch == 2:
            raise KeyboardInterrupt


def search_at(dataset: Dataset, path: Path) -> Search:
    """Return the search of a folder whose name ends with its seed."""
    settings = {"loss": "bpr", "epochs": 3, "batch_size": 256, "evaluate_every": 1, "min_epochs": 1}
    return search_for(dataset, "bpr-mf", preset="plain", settings=settings, seed=int(path.name[-1]), out=path)


def use_study(dataset: Dataset, path: Path, thorough: bool) -> str:
    """Read the trials of a study and (``thorough``) train the missing ones."""
    search = search_at(dataset, path)
    study = search.open()
    rows, importance = study.summaries(), study.importance()
    if thorough:
        rows = tune(search, trials=TRIALS, device="cpu", save_every=0).trials
    return repr(
        [(row.trial, row.state, row.value, row.epoch, sorted(row.settings.items())) for row in rows] + [importance]
    )


def reseal_study(folder: Path) -> None:
    for run in folder.glob("trials/**/run.json"):
        reseal_run(run.parent)
    reseal_json(folder / "study.json")
    check, text = "", ""
    for line in (folder / "journal.jsonl").read_text().splitlines():
        event = json.loads(line)
        event.pop("check", None)
        if event.get("event") == "study":
            event["study"] = json.loads((folder / "study.json").read_bytes())["sha256"]
        made, check = chain_line(event, check)
        text += made
    (folder / "journal.jsonl").write_text(text)


def make_studies(base: Path) -> list[Kind]:
    """Return finished and interrupted studies of two seeds."""
    films = planted(n_users=24, n_items=20)
    studies = []
    for name in ("whole-0", "whole-1", "stopped-0", "stopped-1"):
        progress = StopTrial() if name.startswith("stopped") else None
        with contextlib.suppress(KeyboardInterrupt):
            tune(search_at(films, base / name), trials=TRIALS, device="cpu", save_every=0, progress=progress)
        studies.append(base / name)
    return [Kind("study", studies, partial(use_study, films), reseal_study)]


MAKERS = {"artifact": make_artifacts, "dataset": make_datasets, "run": make_runs, "study": make_studies}

"""Crafted files: ``python -m tests.fuzz.crafted --count 5000 --seed 0``.

Valid artefacts, datasets, runs and studies are changed at random, in one of two ways:

- damage: bytes are changed and no checksum is. The file is refused in one line, or gives the same as before;
- crafted: content is replaced and all checksums fit. The file is refused in one line, or what it holds can be used.

A failure is reported as KIND INDEX; ``--only KIND INDEX`` with the same seed makes that file again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import dgcf
from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.data.synthetic import planted
from dgcf.errors import DgcfError
from dgcf.evaluate.validation import validator
from dgcf.recommend import Recommender
from dgcf.stored import UncheckedWarning, chained, file_entry, seal
from dgcf.train import Observer, Run, resolve, train
from dgcf.train import load as load_run
from dgcf.train.checkpoint import _digest
from tests.fuzz.mutations import damaged, no_file, other_content, other_zip, tensors_of

SECONDS, MEMORY = 30, 2**31
SETTINGS = {"dim": 4, "layers": 2, "epochs": 4, "evaluate_every": 1, "patience": 0, "batch_size": 256}


@dataclass(frozen=True)
class Kind:
    """What is crafted: ``originals`` are alike, so that their files can be swapped."""

    name: str
    originals: list[Path]
    use: Callable[[Path, bool], str]
    reseal: Callable[[Path], None]


# -- artefacts --------------------------------------------------------------------------------------------------------


def use_artifact(path: Path, thorough: bool) -> str:
    """Ask everything that a recommender can be asked; return all answers."""
    rec = dgcf.load(path)
    known = rec.snapshot
    users, items = list(known.users), list(known.items)
    answers = [repr(rec), repr(rec.get_params()), rec.recommend(users, 4), rec.score(users[0], items)]
    asked: list[Callable[[], Any]] = [
        lambda: rec.recommend_for(items[:2], 3),
        lambda: rec.explain(users[0], items[0]).to_dict(),
        lambda: rec.explain_for(items[:2], items[-1]).to_dict(),
        lambda: rec.similar_items(items[0], 3),
        lambda: rec.similar_users(users[0], 3),
        lambda: rec.audience_for(users[:2], 3),
        lambda: rec.recommend(known.users.title_of(0), 1),
    ]
    return "\n".join(map(str, [*answers, *map(_answer, asked)]))


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except DgcfError as problem:
        return _one_line(problem)


def pack_artifact(path: Path, members: dict[str, bytes]) -> None:
    """Write members under a manifest that fits them."""
    whole = dict(members)
    with contextlib.suppress(Exception):  # a manifest that is none stays so
        manifest = json.loads(members["manifest.json"])
        entries = {name: file_entry(data) for name, data in members.items() if name != "manifest.json"}
        manifest["files"] = {name: entries.get(name, entry) for name, entry in manifest["files"].items()}
        manifest.pop("sha256", None)
        whole["manifest.json"] = json.dumps(seal(manifest)).encode()
    if path.suffix == ".dgcf":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in whole.items():
                archive.writestr(zipfile.ZipInfo(name), data)
    else:
        for name, data in whole.items():
            (path / name).write_bytes(data)


def reseal_artifact(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    pack_artifact(folder, files)


def make_artifacts(base: Path) -> list[Kind]:
    """Recommenders of every way of ranking, each as a file and as a folder, with two seeds."""
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
    known = [dataset.name, dataset.fingerprint, dataset.order, dict(dataset.repeats), json.dumps(dataset.record)]
    sides = [(side.kind, list(side), side.titles) for side in (dataset.users, dataset.items)]
    if thorough:
        recipe = resolve("popularity")
        validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
        train(dataset, recipe, device="cpu", validate=validate)
        Recommender.of(Recommender("popularity").fit(dataset).snapshot).recommend(dataset.users.texts[:2], 2)
    return repr((known, sides))


def reseal_dataset(folder: Path) -> None:
    """Make fingerprint, list of files and checksum of ``dataset.json`` fit its folder, as far as it can be read."""
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
    """Ends training as Ctrl-C does, in its third epoch."""

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        if epoch == 3:
            raise KeyboardInterrupt


def use_run(dataset: Dataset, path: Path, thorough: bool) -> str:
    """Read a run, evaluate it, and (``thorough``) train it to its end."""
    run = Run.open(path)
    known = [run.finished, run.metrics(), run.seconds >= 0, run.peak_mb is None]
    _, _, ranking = load_run(run, dataset)
    scores = validator(dataset, run.recipe.train.metric)(ranking)
    answers = [json.dumps(run.about["settings"], sort_keys=True), known, dict(scores)]
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
                    made, check = chained(record, check)
                    text += made
                path.write_text(text)
            elif path.suffix == ".safetensors":
                path.write_bytes(resealed_checkpoint(path.read_bytes()))


def resealed_checkpoint(data: bytes) -> bytes:
    """A checkpoint whose description has the checksum of its tensors and its own."""
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
    """Finished and interrupted runs of two seeds, of another model, and of one that is solved at once."""
    films = planted(n_users=24, n_items=20)
    films.save(base / "films")
    runs = []
    for name, model, seed, stopped in (
        ("dgcf-0", "dgcf", 0, False), ("dgcf-1", "dgcf", 1, False), ("stopped-0", "dgcf", 0, True),
        ("stopped-1", "dgcf", 1, True), ("lightgcn", "lightgcn", 0, False), ("ease", "ease", 0, False),
    ):  # fmt: skip
        recipe = resolve(model, preset="plain", settings={} if model == "ease" else SETTINGS)
        run = Run.create(base / name, films, recipe, seed=seed, device="cpu", source=str(base / "films"))
        run.autosave, run.pictured = 0.0, False
        observer = Stop() if stopped else None
        validate = validator(films, recipe.train.metric)
        with contextlib.suppress(KeyboardInterrupt):
            train(films, recipe, seed=seed, device="cpu", validate=validate, run=run, observer=observer)
        runs.append(run.path)
    return [Kind("run", runs, partial(use_run, films), reseal_run)]


MAKERS = {"artifact": make_artifacts, "dataset": make_datasets, "run": make_runs}


# -- cases ------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One crafted file: what was done to which original."""

    kind: Kind
    original: Path
    path: Path
    damage: bool
    thorough: bool
    what: str


def craft(kind: Kind, seed: int, index: int, folder: Path) -> Case:
    """Make the crafted file number ``index`` of a kind."""
    rng = Random(f"{seed} {kind.name} {index}")
    original = rng.choice(kind.originals)
    path = folder / original.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if original.is_dir():
        shutil.copytree(original, path)
    else:
        shutil.copy(original, path)
    damage, thorough = rng.random() < 0.35, rng.random() < 0.15
    what = (_damage if damage else _craft)(rng, kind, path, folder / "elsewhere")
    return Case(kind, original, path, damage, thorough, what)


def _damage(rng: Random, kind: Kind, path: Path, elsewhere: Path) -> str:
    file = rng.choice(sorted(path.iterdir())) if path.is_dir() else path
    file.write_bytes(damaged(rng, file.read_bytes()))
    return f"damage {file.name}"


def _craft(rng: Random, kind: Kind, path: Path, elsewhere: Path) -> str:
    if not path.is_dir():
        return _craft_file(rng, kind, path)
    file = rng.choice(sorted(path.iterdir()))
    how = rng.random()
    if how < 0.1:
        return f"{file.name} is {no_file(rng, file, elsewhere)}"
    if how < 0.25:
        donor = rng.choice(kind.originals) / file.name
        if donor.exists():
            shutil.copy(donor, file)
        what = f"{file.name} of {donor.parent.name}"
    else:
        file.write_bytes(_other(rng, file.name, file.read_bytes()))
        what = f"other {file.name}"
    with contextlib.suppress(Exception):
        kind.reseal(path)  # where the description can still be read
    return what


def _craft_file(rng: Random, kind: Kind, path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    how = rng.random()
    if how < 0.3:
        path.write_bytes(other_zip(rng, members))
        return "other ZIP"
    if how < 0.45:
        with zipfile.ZipFile(rng.choice(kind.originals)) as archive:
            members[name] = archive.read(name) if name in archive.namelist() else members[name]
    else:
        members[name] = _other(rng, name, members[name])
    pack_artifact(path, members)
    return f"other {name}"


def _other(rng: Random, name: str, data: bytes) -> bytes:
    """Other content; of a checkpoint often another description, which is JSON within JSON."""
    if name.endswith(".safetensors") and rng.random() < 0.5:
        header, content = tensors_of(data)
        if "dgcf" in header.get("__metadata__", {}):
            text = other_content(rng, "about.json", header["__metadata__"]["dgcf"].encode())
            header["__metadata__"]["dgcf"] = text.decode("utf-8", "replace")
            made = json.dumps(header).encode()
            return len(made).to_bytes(8, "little") + made + content
    return other_content(rng, name, data)


# -- judgement --------------------------------------------------------------------------------------------------------


def judge(case: Case, before: dict[tuple[Path, bool], str]) -> tuple[bool, str]:
    """Whether the file was refused, and what is wrong with how it was treated ("" if nothing)."""
    unchecked = False
    try:
        with _limited(SECONDS), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            result = case.kind.use(case.path, case.thorough)
        unchecked = any(issubclass(one.category, UncheckedWarning) for one in heard)
        loud = [one for one in heard if not issubclass(one.category, UncheckedWarning)]
        if loud:
            return False, f"warns: {loud[0].category.__name__} {loud[0].message}"
    except DgcfError as problem:
        text = str(problem)
        return True, "" if _one_line(problem) == text else f"refused in several lines: {text!r}"
    except Exception as problem:
        return False, "".join(traceback.format_exception(problem)[-4:])
    if case.damage and not unchecked and result != before[case.original, case.thorough]:
        return False, "another result, in silence"
    return False, ""


def _one_line(problem: DgcfError) -> str:
    return " ".join(str(problem).splitlines())[:2000]


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


class Fuzzer:
    """The originals, made once, and what they give when they are as they were."""

    def __init__(self, base: Path, seed: int, names: Iterable[str] = ()) -> None:
        self.base, self.seed = base, seed
        torch.set_num_threads(1)
        self.kinds = {}
        for name in names or MAKERS:
            (base / name).mkdir(parents=True)
            self.kinds |= {kind.name: kind for kind in MAKERS[name](base / name)}
        self.before: dict[tuple[Path, bool], str] = {}
        for kind in self.kinds.values():
            for original in kind.originals:
                for thorough in (False, True):
                    copy = base / "as-it-was" / original.name
                    shutil.rmtree(copy.parent, ignore_errors=True)
                    copy.parent.mkdir()
                    (shutil.copytree if original.is_dir() else shutil.copy)(original, copy)
                    self.before[original, thorough] = kind.use(copy, thorough)

    def case(self, kind: str, index: int) -> tuple[Case, bool, str]:
        case = craft(self.kinds[kind], self.seed, index, self.base / "case")
        return case, *judge(case, self.before)

    def run(self, count: int) -> tuple[int, list[str]]:
        """Craft ``count`` files of all kinds in turn; return how many were refused, and the failures."""
        refused, failures = 0, []
        names = list(self.kinds)
        for number in range(count):
            kind, index = names[number % len(names)], number // len(names)
            case, was_refused, problem = self.case(kind, index)
            refused += was_refused
            if problem:
                failures.append(f"{kind} {index} ({case.original.name}, {case.what}): {problem}")
        return refused, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(MAKERS), choices=list(MAKERS))
    parser.add_argument("--only", nargs=2, metavar=("KIND", "INDEX"))
    given = parser.parse_args()
    os.environ.pop("DGCF_VERIFY_KEY", None)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dgcf-crafted-") as folder:
        fuzzer = Fuzzer(Path(folder), given.seed, given.kinds)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        if given.only:
            case, refused, problem = fuzzer.case(given.only[0], int(given.only[1]))
            print(f"{case.original.name}, {case.what}: {'refused' if refused else 'accepted'} {problem}")
            return int(bool(problem))
        refused, failures = fuzzer.run(given.count)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    print(
        f"crafted files: {given.count}, refused: {refused}, failures: {len(failures)} "
        f"({time.monotonic() - began:.0f} s, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB)"
    )
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())

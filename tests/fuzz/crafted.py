"""Crafted files: ``python -m tests.fuzz.crafted --count 5000 --seed 0``.

Valid artefacts, datasets, runs and studies are changed at random, in one of two ways:

- damage: bytes are changed, checksums are not. The file must be refused in one line, or give the same results;
- crafted: content is replaced and checksums are updated. The file must be refused in one line, or be usable.

A failure is reported as KIND INDEX; ``--only KIND INDEX`` with the same seed makes that file again.
"""

from __future__ import annotations

import argparse
import contextlib
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
from pathlib import Path
from random import Random
from typing import Any

import torch

from dgcf.errors import DgcfError
from dgcf.stored import UncheckedWarning
from tests.fuzz.kinds import MAKERS, Kind, one_line, pack_artifact
from tests.fuzz.mutations import damaged, no_file, other_content, other_zip, tensors_of

SECONDS, MEMORY = 30, 2**31


# -- cases ------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A crafted file: its original and the change."""

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
    path = _copied(original, folder)
    damage, thorough = rng.random() < 0.35, rng.random() < 0.15
    what = (_damage if damage else _craft)(rng, kind, path, folder / "elsewhere")
    return Case(kind, original, path, damage, thorough, what)


def _copied(original: Path, folder: Path) -> Path:
    """Copy a file or folder into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / original.name
    if original.is_dir():
        shutil.copytree(original, path)
    else:
        shutil.copy(original, path)
    return path


def _files(path: Path) -> list[Path]:
    """Return all files of a folder, or the file itself."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _damage(rng: Random, kind: Kind, path: Path, elsewhere: Path) -> str:
    file = rng.choice(_files(path))
    file.write_bytes(damaged(rng, file.read_bytes()))
    return f"damage {file.name}"


def _craft(rng: Random, kind: Kind, path: Path, elsewhere: Path) -> str:
    if not path.is_dir():
        return _craft_file(rng, kind, path)
    file = rng.choice(_files(path))
    how = rng.random()
    if how < 0.1:
        return f"{file.name} is {no_file(rng, file, elsewhere)}"
    if how < 0.25:
        donor = rng.choice(kind.originals)
        if (donor / file.relative_to(path)).exists():
            shutil.copy(donor / file.relative_to(path), file)
        what = f"{file.name} of {donor.name}"
    else:
        file.write_bytes(_other(rng, file.name, file.read_bytes()))
        what = f"other {file.name}"
    with contextlib.suppress(Exception):
        kind.reseal(path)  # if the description can still be read
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
    """Return other content; for a checkpoint often another description, which is JSON within JSON."""
    if name.endswith(".safetensors") and rng.random() < 0.5:
        header, content = tensors_of(data)
        if "dgcf" in header.get("__metadata__", {}):
            text = other_content(rng, "about.json", header["__metadata__"]["dgcf"].encode())
            header["__metadata__"]["dgcf"] = text.decode("utf-8", "replace")
            made = json.dumps(header).encode()
            return len(made).to_bytes(8, "little") + made + content
    return other_content(rng, name, data)


# -- judgement --------------------------------------------------------------------------------------------------------


def judge(case: Case, before: Callable[[Case], str]) -> tuple[bool, str]:
    """Return whether the file was refused, and the problem in its handling ("" if none)."""
    unchecked = False
    try:
        with _limited(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = case.kind.use(case.path, case.thorough)
        unchecked = any(issubclass(warning.category, UncheckedWarning) for warning in caught)
        others = [warning for warning in caught if not issubclass(warning.category, UncheckedWarning)]
        if others:
            return False, f"warns: {others[0].category.__name__} {others[0].message}"
    except DgcfError as problem:
        text = str(problem)
        return True, "" if one_line(problem) == text else f"refused in several lines: {text!r}"
    except Exception as problem:
        return False, "".join(traceback.format_exception(problem)[-4:])
    if case.damage and not unchecked and result != before(case):
        return False, "another result without a warning"
    return False, ""


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
    """The originals, made once, and their unchanged results."""

    def __init__(self, base: Path, seed: int, names: Iterable[str] = ()) -> None:
        self.base, self.seed = base, seed
        torch.set_num_threads(1)
        self.kinds = {}
        for name in names or MAKERS:
            (base / name).mkdir(parents=True)
            self.kinds |= {kind.name: kind for kind in MAKERS[name](base / name)}
        self._before: dict[tuple[Path, bool], str] = {}

    def before(self, case: Case) -> str:
        """Return the result of the original of a case."""
        key = case.original, case.thorough
        if key not in self._before:
            copy = _copied(case.original, self.base / "as-it-was")
            self._before[key] = case.kind.use(copy, case.thorough)
        return self._before[key]

    def case(self, kind: str, index: int) -> tuple[Case, bool, str]:
        case = craft(self.kinds[kind], self.seed, index, self.base / "case")
        return case, *judge(case, self.before)

    def run(self, count: int) -> tuple[int, list[str]]:
        """Craft ``count`` files of all kinds in turn; return the number of refused ones and the failures."""
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

"""Write the packages of the images from ``requirements.lock``, of which they are parts: ``python deploy/lock.py``.

``requirements.lock`` beside this file has what serving needs, without torch; ``requirements-train.lock`` has torch and
what it needs beyond that, for the image that trains too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "requirements.lock"
EXTRAS = ("serve", "postgres", "s3")
HEADER = """\
# Made by `python deploy/lock.py` from requirements.lock; do not edit.
"""
_PIN = re.compile(r"^([^#\s=]+)==.*\n    --hash=.*\n", re.MULTILINE)


def closure(lines: Iterable[str], without: Iterable[str] = ()) -> set[str]:
    """Return the names of the packages that these requirements need on this system, where all are installed."""
    left_out, names = set(without), set[str]()
    waiting, visited = [(line, frozenset({""})) for line in lines], set[tuple[str, frozenset[str]]]()
    while waiting:
        line, extras = visit = waiting.pop()
        requirement = Requirement(line)
        name, marker = canonicalize_name(requirement.name), requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if visit in visited or name in left_out or not wanted:
            continue
        visited.add(visit)
        names.add(name)
        chosen = frozenset({"", *requirement.extras})
        waiting += [(needed, chosen) for needed in distribution(name).requires or []]
    return names


def needed_to_serve() -> list[str]:
    """Return the requirements of pyproject.toml that the service has."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]


def pins() -> dict[str, str]:
    """Return the lines of ``requirements.lock`` by the name of the package."""
    return {match[1]: match[0] for match in _PIN.finditer(SOURCE.read_text())}


def locks() -> dict[str, str]:
    """Return the contents of the two files by their names; raise SystemExit if a package is not locked."""
    pinned = pins()
    serve = closure(needed_to_serve(), without=["torch"])
    train = closure(["torch"]) - serve
    if absent := sorted((serve | train) - pinned.keys()):
        raise SystemExit(f"requirements.lock has no {', '.join(absent)}; run `make lock`.")
    return {
        name: HEADER + "".join(pinned[package] for package in sorted(packages))
        for name, packages in (("requirements.lock", serve), ("requirements-train.lock", train))
    }


def main() -> None:
    for name, text in locks().items():
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()

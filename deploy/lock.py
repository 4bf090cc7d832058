"""Write the packages of the images from ``requirements.lock``, of which they are parts: ``python deploy/lock.py``.

``requirements.lock`` beside this file has what serving needs, without torch; ``requirements-train.lock`` has torch and
what it needs beyond that, for the image that trains too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "requirements.lock"
EXTRAS = frozenset({"serve", "postgres", "s3"})
HEADER = """\
# Made by `python deploy/lock.py` from requirements.lock; do not edit.
"""
_PIN = re.compile(r"^([^#\s=]+)==.*\n    --hash=.*\n", re.MULTILINE)


def closure(name: str, extras: frozenset[str] = frozenset(), without: Iterable[str] = ()) -> set[str]:
    """Return the names of the packages that an installed one needs on this system, itself among them."""
    left_out, names = set(without), set[str]()
    waiting, visited = [(name, extras)], set[tuple[str, frozenset[str]]]()
    while waiting:
        package, chosen = visit = waiting.pop()
        if visit in visited:
            continue
        visited.add(visit)
        names.add(package)
        for line in distribution(package).requires or []:
            requirement = Requirement(line)
            marker, needed = requirement.marker, canonicalize_name(requirement.name)
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *chosen))
            if wanted and needed not in left_out:
                waiting.append((needed, frozenset(requirement.extras)))
    return names


def pins() -> dict[str, str]:
    """Return the lines of ``requirements.lock`` by the name of the package."""
    return {match[1]: match[0] for match in _PIN.finditer(SOURCE.read_text())}


def locks() -> dict[str, str]:
    """Return the contents of the two files by their names; raise SystemExit if a package is not locked."""
    pinned = pins()
    serve = closure("dgcf", EXTRAS, without=["torch"]) - {"dgcf"}
    train = closure("torch") - serve
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

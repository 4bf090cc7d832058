"""What a shell completes: names of models and datasets, run folders and files.

A completion must be fast, so nothing that imports torch is imported.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

Test = Callable[[Path], bool]


def models(incomplete: str) -> list[str]:
    """Return the models whose names begin so, in the order of the catalogue, which is read as text."""
    package = find_spec("dgcf")
    assert package is not None
    assert package.submodule_search_locations is not None
    source = Path(package.submodule_search_locations[0]) / "models" / "catalog.py"
    names = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="Entry"), args=[ast.Constant(value=str(name)), *_]):
                names.append(name)
    return [name for name in names if name.startswith(incomplete)]


def datasets(incomplete: str) -> list[str]:
    """Return the known datasets whose names begin so, then folders and files."""
    from dgcf.data.catalog import listing

    names = [str(dataset["name"]) for dataset in listing()]
    return [name for name in names if name.startswith(incomplete)] + _paths(incomplete, _is_visible)


def runs(incomplete: str) -> list[str]:
    """Return run folders, and folders that may hold some."""
    return _paths(incomplete, _is_run)


def recommenders(incomplete: str) -> list[str]:
    """Return run folders and saved recommenders, and folders that may hold some."""
    return _paths(incomplete, lambda path: _is_run(path) or path.suffix == ".dgcf")


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file()


def _is_visible(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _paths(incomplete: str, test: Test) -> list[str]:
    """Return the paths that begin so and pass the test, and all other folders with a slash at the end."""
    folder, _, start = incomplete.rpartition("/")
    base = Path(f"{folder}/" if "/" in incomplete else ".").expanduser()
    try:
        names = sorted(entry.name for entry in os.scandir(base) if entry.name.startswith(start))
    except OSError:
        return []
    offered = []
    for name in names:
        path, text = base / name, f"{folder}/{name}" if "/" in incomplete else name
        if test(path):
            offered.append(text)
        elif path.is_dir() and not name.startswith("."):
            offered.append(f"{text}/")
    return offered

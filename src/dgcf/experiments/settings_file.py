"""Tuned settings as a TOML file for ``dgcf train --config``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from dgcf.experiments.study.folder import BEST
from dgcf.experiments.study.trials import TrialSummary
from dgcf.files import atomic_file
from dgcf.train import Recipe


def write_best(folder: Path, recipe: Recipe, about: Mapping[str, Any], best: TrialSummary, trials: int) -> Path:
    """Write the best settings of a study to its folder; return the path of the file."""
    dataset, path = about["dataset"], folder / BEST
    reached = f"validation {about['metric']} {best.value:.6f} at epoch {best.epoch}"
    header = (
        f"The best of {trials} trials of `dgcf tune` on {dataset['name']} ({dataset['fingerprint'][:12]}):",
        f"trial {best.trial}, {reached}, seed {about['seed']}.",
        f"Use it by: dgcf train {quote(dataset['source'])} --config {quote(str(path))}",
    )
    write_settings(path, recipe, best.settings, header)
    return path


def write_settings(path: Path, recipe: Recipe, searched: Collection[str], header: Sequence[str]) -> bool:
    """Write model, preset and every setting, so that no change of the preset changes them; the searched ones first.

    ``header`` holds the lines of the comment on top. Returns False, and writes nothing, if the file has this content.
    """
    settings = recipe.settings()
    rest = {name: value for name, value in settings.items() if name not in searched and value is not None}
    lines = [
        *(f"# {line}" for line in header),
        f"model = {_toml(recipe.name)}",
        f"preset = {_toml(recipe.preset)}",
        "",
        *(f"{name} = {_toml(settings[name])}" for name in searched),
        *(["", "# Not searched:"] if rest else []),
        *(f"{name} = {_toml(value)}" for name, value in rest.items()),
    ]
    text = "\n".join(lines) + "\n"
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    with atomic_file(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return True


def _toml(value: Any) -> str:
    """Return a value as TOML, which writes strings, numbers and booleans as JSON does."""
    return json.dumps(value, ensure_ascii=False)

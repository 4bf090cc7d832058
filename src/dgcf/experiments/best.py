"""The best settings of a study as a file that ``dgcf train --config`` takes as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from dgcf.experiments.study import BEST, Row
from dgcf.files import whole_file
from dgcf.train import Recipe


def write_best(folder: Path, recipe: Recipe, about: Mapping[str, Any], best: Row, trials: int) -> Path:
    """Model, preset and every setting: what was searched first, then the rest, so that no later preset changes it."""
    dataset, found = about["dataset"], recipe.settings()
    rest = {name: value for name, value in found.items() if name not in best.settings and value is not None}
    reached = f"validation {about['metric']} {best.value:.6f} at epoch {best.epoch}"
    lines = [
        f"# The best of {trials} trials of `dgcf tune` on {dataset['name']} ({dataset['fingerprint'][:12]}):",
        f"# trial {best.trial}, {reached}, seed {about['seed']}.",
        f"# Use it by: dgcf train {quote(dataset['source'])} --config {quote(str(folder / BEST))}",
        f"model = {_toml(recipe.name)}",
        f"preset = {_toml(recipe.preset)}",
        "",
        *(f"{name} = {_toml(found[name])}" for name in best.settings),
        *(["", "# Not searched:"] if rest else []),
        *(f"{name} = {_toml(value)}" for name, value in rest.items()),
    ]
    with whole_file(folder / BEST) as beside:
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / BEST


def _toml(value: Any) -> str:
    """A setting's value as TOML: its strings, numbers and truth values are written as JSON writes them."""
    return json.dumps(value, ensure_ascii=False)

"""The committed recipes: each is still understood as it is written, and is the best of its recorded trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgcf.config import read_toml
from dgcf.train import resolve
from tests.conftest import PROJECT

RECIPES = sorted(set((PROJECT / "recipes" / "ml-100k").glob("*.toml")) - {PROJECT / "recipes/ml-100k/best.toml"})


@pytest.fixture(scope="module")
def trials() -> list[dict[str, Any]]:
    lines = (PROJECT / "results" / "tuning-ml-100k.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_the_best_of_its_trials_and_says_every_setting(path: Path, trials: list[dict[str, Any]]) -> None:
    written = read_toml(path)
    model, preset = written.pop("model"), written.pop("preset")
    assert model == path.stem
    resolved = resolve(model, preset=preset, settings=written).settings()
    defaults = resolve(model, preset="plain").settings()  # of settings that are younger than the recipe
    assert {**resolved, **written} == resolved
    assert {name: defaults[name] for name in resolved.keys() - written} == {
        name: resolved[name] for name in resolved.keys() - written
    }
    spent = [trial for trial in trials if trial["model"] == model]
    assert len({trial["trial"] for trial in spent}) == len(spent) == 30
    best = max((trial for trial in spent if trial["state"] == "complete"), key=lambda trial: trial["value"])
    assert best["settings"].items() <= written.items()
    assert f"trial {best['trial']}, validation recall@20 {best['value']:.6f}" in path.read_text()

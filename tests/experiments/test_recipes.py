"""Recipes that `dgcf tune` wrote for ML-100K: they still resolve, and are the best of their trials or candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgcf.config import read_toml
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.train import resolve
from tests.conftest import PROJECT

TUNED = [PROJECT / "recipes" / "ml-100k" / f"{model}.toml" for model in ("ease", "ials", "item-knn")]


@pytest.fixture(scope="module")
def trials() -> list[dict[str, Any]]:
    lines = (PROJECT / "results" / "tuning-ml-100k.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def best_of(trials: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """Return the best of the thirty trials of a model."""
    spent = [trial for trial in trials if trial["model"] == model]
    assert len({trial["trial"] for trial in spent}) == len(spent) == 30
    return max((trial for trial in spent if trial["state"] == "complete"), key=lambda trial: trial["value"])


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_recipe_has_every_setting_of_its_best_trial(path: Path, trials: list[dict[str, Any]]) -> None:
    written = read_toml(path)
    model, preset = written.pop("model"), written.pop("preset")
    assert model == path.stem
    resolved = resolve(model, preset=preset, settings=written).settings()
    defaults = resolve(model, preset="plain").settings()  # of settings that are younger than the recipe
    assert {**resolved, **written} == resolved
    assert {name: defaults[name] for name in resolved.keys() - written} == {
        name: resolved[name] for name in resolved.keys() - written
    }
    best = best_of(trials, model)
    assert best["settings"].items() <= written.items()
    assert f"trial {best['trial']}, validation recall@20 {best['value']:.6f}" in path.read_text()


def test_best_settings_of_each_paper_model_are_among_its_candidates(trials: list[dict[str, Any]]) -> None:
    cells = [cell for cell in Recipes.read(PROJECT / "recipes").experiment("tuning").trials if cell.settings == "tuned"]
    tried: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        if cell.source.family == "ml-100k" and cell.recipe is not None and cell.seed == 0:
            tried.setdefault((cell.source.name, cell.model), []).append(cell.recipe.settings())
    assert len(tried) == 2 * 9
    assert {len(candidates) for candidates in tried.values()} == {7}  # the same number for every model
    for (_, model), candidates in tried.items():
        best = best_of(trials, model)["settings"].items()
        assert any(best <= settings.items() and settings["loss"] == "bpr" for settings in candidates)

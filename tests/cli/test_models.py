"""``dgcf models``: every model is listed, and every setting is described."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from dgcf.config import Between, OneOf, field_descriptions, parameters, tunable
from dgcf.data.synthetic import planted
from dgcf.models.catalog import CATALOG
from dgcf.train.config import TrainConfig
from tests.cli.in_process import invoke
from tests.conftest import Run


@pytest.fixture
def models_output(dgcf: Run) -> Callable[..., str]:
    """The output on a wide terminal, of a new process, since each reads the width once."""

    def shown(*words: str) -> str:
        done = dgcf("models", *words, env={**os.environ, "COLUMNS": "200"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return shown


def test_every_model_and_setting_is_listed_and_described(dgcf_json: Callable[..., dict[str, Any]]) -> None:
    answer = dgcf_json("models")
    assert [model["name"] for model in answer["models"]] == list(CATALOG)
    for model in answer["models"]:
        entry = CATALOG[model["name"]]
        assert model["about"] == entry.about
        assert model["trained"] == ("at once" if entry.solved else "in epochs")
        assert model["source"]
        assert [setting["name"] for setting in model["parameters"]] == entry.keys
        for setting in model["parameters"]:
            assert len(setting["about"]) > 10, setting
            assert setting["default"] == getattr(entry.config, setting["name"])
    assert [setting["name"] for setting in answer["training"]] == [field.name for field in fields(TrainConfig)]
    assert all(len(setting["about"]) > 10 for setting in answer["training"])


def test_model_is_shown_with_its_settings_and_those_of_training(models_output: Callable[..., str]) -> None:
    shown = models_output("dgcf")
    for name in (*CATALOG["dgcf"].keys, *(field.name for field in fields(TrainConfig))):
        assert f" {name} " in shown
    assert "Add the identity I to the propagation matrix, as in `L + Lc + I`." in shown
    assert "0.0001 … 0.01 (log)" in shown
    assert "learning_rate" not in models_output("popularity")
    assert json.loads(models_output("popularity", "--json"))["training"] == []
    listed = models_output()
    assert all(name in listed for name in CATALOG)


def test_unknown_model_is_refused_with_a_suggestion(refused: Callable[..., str]) -> None:
    assert "there is no model 'lightgnc'; did you mean 'lightgcn'?" in refused("models", "lightgnc")


@dataclass(frozen=True)
class Base:
    """Settings to read."""

    depth: int = tunable(3, OneOf((1, 3)))
    """How deep,
    in ``layers``."""
    kind: Literal["a", "b"] | None = None


@dataclass(frozen=True)
class Derived(Base):
    """Inherits one description and overrides another."""

    kind: Literal["a", "b"] | None = "a"
    """Which one."""
    rate: float = tunable(0.5, Between(0.1, 1.0, log=True))


@pytest.mark.parametrize("settings", [Base(), Derived()], ids=["base", "derived"])
def test_settings_are_described_by_their_docstrings(settings: Base) -> None:
    derived = isinstance(settings, Derived)
    depth, kind, *rest = (parameter.to_dict() for parameter in parameters(settings))
    explained = {"name": "depth", "default": 3, "type": "int", "about": "How deep, in `layers`."}
    assert depth == {**explained, "space": {"values": (1, 3)}}
    assert (kind["type"], kind["default"], kind["about"]) == (
        "a | b | none",
        "a" if derived else None,
        "Which one." if derived else "",
    )
    assert [setting["space"] for setting in rest] == [{"low": 0.1, "high": 1.0, "log": True}] * derived
    assert field_descriptions(type(settings)) is field_descriptions(type(settings))  # read once


def settings_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each setting, those that depend on the size of the data as None."""
    (model,) = answer["models"]
    return {
        setting["name"]: None if setting["from_data"] else setting["value"]
        for part in (model["parameters"], answer["training"], answer["blending"])
        for setting in part
    }


@pytest.mark.parametrize("model", ["dgcf", "lightgcn", "ease", "ials"])
def test_values_are_those_of_a_default_training(model: str, tmp_path: Path) -> None:
    """What ``dgcf models`` shows is what ``dgcf train`` uses, with --data for every setting."""
    planted(80, 60).save(tmp_path / "data")
    short = () if CATALOG[model].solved else ("--set", "epochs=1")
    words = ("--model", model, *short, "--device", "cpu", "--out", tmp_path / "run")
    used = invoke("train", tmp_path / "data", *words)["settings"]
    shown = settings_of(invoke("models", model))
    from_data = {name for name, value in shown.items() if value is None and used[name] is not None}
    assert from_data == (set() if CATALOG[model].solved else {"batch_size", "epochs"})
    assert {**used, **shown} == {**used, **dict.fromkeys(from_data)}
    resolved = settings_of(invoke("models", model, "--data", tmp_path / "data"))
    assert {**resolved, "epochs": 1} == {**used, "epochs": 1}


def test_settings_from_the_size_of_the_data_are_marked(models_output: Callable[..., str]) -> None:
    shown = models_output("dgcf")
    (line,) = [line for line in shown.splitlines() if line.startswith("│ batch_size")]
    assert "by data" in line
    (line,) = [line for line in shown.splitlines() if line.startswith("│ loss ")]
    assert "bpr-hardest" in line
    assert "Values of a training with the preset default;" in shown
    assert "--data DATA" in shown
    assert "│ blend " in shown
    assert "with the preset paper" in models_output("dgcf", "--preset", "paper")


def test_data_without_a_model_is_refused(refused: Callable[..., str]) -> None:
    assert "name a model" in refused("models", "--data", "planted")
    assert "there is no preset 'papr'; did you mean 'paper'?" in refused("models", "dgcf", "--preset", "papr")

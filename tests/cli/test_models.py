"""``dgcf models``: every model is listed, and every setting is described."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from dgcf.config import Between, OneOf, field_descriptions, parameters, tunable
from dgcf.models.catalog import CATALOG
from dgcf.train.config import TrainConfig
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

"""``dgcf models``: everything that can be trained is listed, and every setting is explained."""

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
def told(dgcf: Run) -> Callable[..., str]:
    """What a wide terminal shows; a process of its own, since the width is asked for once in each."""

    def shown(*words: str) -> str:
        done = dgcf("models", *words, env={**os.environ, "COLUMNS": "200"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return shown


def test_everything_in_the_catalogue_is_listed_and_explained(dgcf_json: Callable[..., dict[str, Any]]) -> None:
    found = dgcf_json("models")
    assert [model["name"] for model in found["models"]] == list(CATALOG)
    for model in found["models"]:
        entry = CATALOG[model["name"]]
        assert model["about"] == entry.about
        assert model["trained"] == ("at once" if entry.solved else "in epochs")
        assert model["source"]
        assert [one["name"] for one in model["parameters"]] == entry.keys
        for one in model["parameters"]:
            assert len(one["about"]) > 10, one
            assert one["default"] == getattr(entry.config, one["name"])
    assert [one["name"] for one in found["training"]] == [field.name for field in fields(TrainConfig)]
    assert all(len(one["about"]) > 10 for one in found["training"])


def test_one_model_is_shown_with_its_settings_and_those_of_the_loop(told: Callable[..., str]) -> None:
    shown = told("dgcf")
    for name in (*CATALOG["dgcf"].keys, *(field.name for field in fields(TrainConfig))):
        assert f" {name} " in shown
    assert "Add the identity I to the propagation matrix, as in `L + Lc + I`." in shown
    assert "0.0001 … 0.01 (log)" in shown
    assert "learning_rate" not in told("popularity")
    assert json.loads(told("popularity", "--json"))["training"] == []
    listed = told()
    assert all(name in listed for name in CATALOG)


def test_an_unknown_model_is_refused_with_the_nearest(refused: Callable[..., str]) -> None:
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
    """Inherits what is explained, and says one thing anew."""

    kind: Literal["a", "b"] | None = "a"
    """Which one."""
    rate: float = tunable(0.5, Between(0.1, 1.0, log=True))


@pytest.mark.parametrize("settings", [Base(), Derived()], ids=["base", "derived"])
def test_settings_are_read_from_the_source(settings: Base) -> None:
    derived = isinstance(settings, Derived)
    depth, kind, *rest = (one.to_dict() for one in parameters(settings))
    explained = {"name": "depth", "default": 3, "type": "int", "about": "How deep, in `layers`."}
    assert depth == {**explained, "space": {"values": (1, 3)}}
    assert (kind["type"], kind["default"], kind["about"]) == (
        "a | b | none",
        "a" if derived else None,
        "Which one." if derived else "",
    )
    assert [one["space"] for one in rest] == [{"low": 0.1, "high": 1.0, "log": True}] * derived
    assert field_descriptions(type(settings)) is field_descriptions(type(settings))  # read once

"""Settings: parsed words, checked dataclasses, and errors of one sentence."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.config import configure, parse_settings, read_toml, require_one_of, require_range
from dgcf.errors import ConfigError


@dataclass(frozen=True)
class Knobs:
    layers: int = 3
    rate: float = 0.1
    epsilon: float | Literal["auto"] = "auto"
    on: bool = True

    def __post_init__(self) -> None:
        require_range("layers", self.layers, 1, 9)


def test_parse_settings_returns_typed_values() -> None:
    words = ["layers=3", "rate=.5", "small=1e-3", "on=False", "epsilon=auto", 'text="a b"', "list=[1, 2]", "eq=a=b"]
    assert parse_settings(words) == {
        "layers": 3,
        "rate": 0.5,
        "small": 1e-3,
        "on": False,
        "epsilon": "auto",
        "text": "a b",
        "list": [1, 2],
        "eq": "a=b",
    }


def test_last_of_a_repeated_setting_counts() -> None:
    assert parse_settings(["layers=3", "layers=4"]) == {"layers": 4}


@given(st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False)))
def test_any_scalar_round_trips_as_a_word(value: object) -> None:
    assert parse_settings([f"key={value}"]) == {"key": value}


@pytest.mark.parametrize("word", ["layers", "=3", "", " = "])
def test_word_without_key_or_value_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_settings([word])


def test_settings_override_defaults() -> None:
    assert configure(Knobs(rate=0.2), {"layers": 2, "epsilon": 0.5}, "knobs") == Knobs(2, 0.2, 0.5)
    assert configure(Knobs(), {"rate": 1}, "knobs").rate == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 2}, "knobs has no setting 'layer'; did you mean 'layers'?"),
        ({"zzz": 2}, "knobs has no setting 'zzz'; it has epsilon, layers, on, rate."),
        ({"layers": "two"}, "layers of knobs is 'two', expected integer; change it with --set layers=…"),
        ({"layers": 2.5}, "layers of knobs is 2.5, expected"),
        ({"layers": True}, "layers of knobs is True, expected integer"),
        ({"on": 1}, "on of knobs is 1, expected boolean"),
        ({"epsilon": "atuo"}, "epsilon of knobs is 'atuo', expected"),
        ({"layers": 0}, "layers is 0, expected from 1 to 9; change it with --set layers=…"),
        ({"layers": 500}, "layers is 500, expected from 1 to 9; change it with --set layers=…"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(Knobs(), settings, "knobs")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_settings_are_checked_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pydantic"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert configure(Knobs(), {"layers": 2}, "knobs") == Knobs(2)
    for wrong in ({"layer": 2}, {"layers": 0}):
        with pytest.raises(ConfigError):
            configure(Knobs(), wrong, "knobs")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-9, 0.0])
def test_number_outside_the_range_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="rate is"):
        require_range("rate", value, 0, 1, open_low=True)


def test_unknown_choice_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        require_one_of("readout", "meen", ("mean", "last"))


def test_toml_files(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('layers = 2\nloss = "bpr"\n')
    assert read_toml(path) == {"layers": 2, "loss": "bpr"}
    path.write_text("layers = = 2")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_toml(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_toml(tmp_path / "absent.toml")

"""The description of a propagation: its presets, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

from dgcf.errors import ConfigError
from dgcf.graph import PropagationSpec


def test_the_presets_name_the_readings() -> None:
    assert PropagationSpec.preset("paper") == PropagationSpec()
    official = PropagationSpec.preset("official-code", epsilon=0.004)
    assert (official.self_loop, official.cross_below_one, official.epsilon) == (False, True, 0.004)
    lightgcn = PropagationSpec.preset("lightgcn")
    assert (lightgcn.direct, lightgcn.cross, lightgcn.self_loop) == (True, "none", False)
    gcn = PropagationSpec.preset("gcn")
    assert (gcn.direct, gcn.cross, gcn.self_loop, gcn.renormalised) == (True, "none", False, True)


def test_it_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        PropagationSpec().direct = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cross": "filter"}, "did you mean 'filtered'"),
        ({"epsilon": -1.0}, "epsilon is -1.0, expected a number from 0 to 1"),
        ({"epsilon": 1.5}, "epsilon is 1.5, expected a number from 0 to 1"),
        ({"epsilon": math.nan}, "epsilon is nan, expected a number from 0 to 1"),
        ({"direct": False, "cross": "none", "self_loop": False}, "always zero"),
        ({"spectral": 0}, "spectral is 0, expected a whole number from 1 on, or 'all'"),
        ({"spectral": "some"}, "spectral is 'some', expected"),
        ({"spectral": 3, "cross": "matrix-free"}, "needs a stored matrix"),
        ({"direct": False, "renormalised": True}, "renormalised is about a stored L; turn on direct"),
        ({"cross": "matrix-free", "renormalised": True}, "choose cross='filtered' or 'none'"),
    ],
)
def test_settings_without_meaning_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PropagationSpec(**settings)  # type: ignore[arg-type]


def test_an_unknown_preset_or_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'official-code'"):
        PropagationSpec.preset("official")
    with pytest.raises(ConfigError, match="did you mean 'self_loop'"):
        PropagationSpec.preset("paper", self_loops=True)

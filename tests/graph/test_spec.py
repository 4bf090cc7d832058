"""The specification of a propagation: its named values, and the settings that it refuses."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

from dgcf.errors import ConfigError
from dgcf.graph import PropagationSpec
from dgcf.graph.spec import DIRECT, RENORMALISED


def test_the_defaults_are_the_papers_operator() -> None:
    paper = PropagationSpec()
    assert (paper.direct, paper.cross, paper.self_loop, paper.epsilon) == (True, "filtered", True, "auto")
    assert (paper.cross_below_one, paper.renormalised, paper.spectral) == (False, False, None)


def test_named_specs_leave_out_cross_hop_and_self_term() -> None:
    assert (DIRECT.direct, DIRECT.cross, DIRECT.self_loop, DIRECT.renormalised) == (True, "none", False, False)
    gcn = RENORMALISED
    assert (gcn.direct, gcn.cross, gcn.self_loop, gcn.renormalised) == (True, "none", False, True)


def test_the_spec_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        PropagationSpec().direct = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cross": "filter"}, "did you mean 'filtered'"),
        ({"epsilon": -1.0}, "epsilon is -1.0, expected a number from 0 to 1"),
        ({"epsilon": 1.5}, "epsilon is 1.5, expected a number from 0 to 1"),
        ({"epsilon": math.nan}, "epsilon is nan, expected a number from 0 to 1"),
        ({"direct": False, "cross": "none", "self_loop": False}, "would be zero"),
        ({"spectral": 0}, "spectral is 0, expected a whole number from 1 on, or 'all'"),
        ({"spectral": "some"}, "spectral is 'some', expected"),
        ({"spectral": 3, "cross": "matrix-free"}, "needs a stored matrix"),
        ({"direct": False, "renormalised": True}, "renormalised needs a stored L; turn on direct"),
        ({"cross": "matrix-free", "renormalised": True}, "choose cross='filtered' or 'none'"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PropagationSpec(**settings)  # type: ignore[arg-type]

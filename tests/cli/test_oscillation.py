"""``dgcf oscillation`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.data("deoscirec/ml-100k")
def test_oscillation_on_ml_100k(dgcf_json: Any, tmp_path: Path) -> None:
    picture = tmp_path / "gap.png"
    answer = dgcf_json("oscillation", "deoscirec/ml-100k", "--plot", picture)
    limit = answer["gap_limit"]
    assert limit["L"] > 1e-3
    assert limit["L+Lc"] < 1e-8
    assert limit["L+Lc+I"] < 1e-8
    for name in ("L", "L+I", "L+Lc", "L+Lc+I"):
        assert 0 < answer["decay_per_step"][name] < 1
        assert answer["pi_error"][name] < 1e-12
        assert answer["within_bound"][name] is True
        gaps, bound = answer["gaps"][name], answer["bound"][name]
        assert len(gaps) == len(bound) == 40
        assert all(gap <= most * (1 + 1e-12) for gap, most in zip(gaps, bound, strict=True))
    assert answer["condition"]["L"] == pytest.approx(limit["L"] / 2)
    assert answer["components"][0] == {
        "users": 928,
        "items": 1077,
        "direct_edges": 29730,
        "cross_edges": 29724,
        "gap_limit": pytest.approx(2 * 149 / 2005),
        "one_limit_with_cross": True,
    }
    assert answer["isolated_nodes"] == 95
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_disconnected_graph_is_reported_by_component(dgcf: Any, dgcf_json: Any, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 0 1 2\n1 0 1\n2 3\n")
    (tmp_path / "test.txt").write_text("0 3\n")
    answer = dgcf_json("oscillation", tmp_path)
    assert [(part["users"], part["items"]) for part in answer["components"]] == [(2, 3), (1, 1)]
    assert answer["connected"] is False
    shown = dgcf("oscillation", tmp_path)
    assert shown.returncode == 0
    assert "2 connected components" in shown.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("checkerboard", "--epsilon", "2"), "epsilon is 2.0, expected a number from 0 to 1"),
        (("no-such-data",), "no-such-data"),
    ],
)
def test_bad_input_is_one_sentence(refused: Any, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("oscillation", *words)


def test_help_has_an_example(dgcf: Any) -> None:
    assert "dgcf oscillation deoscirec/" in dgcf("oscillation", "--help").stdout

"""``dgcf graph`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.data("deoscirec/ml-1m")
@pytest.mark.parametrize(("epsilon", "cross"), [("0.1", 0), ("0.001", 445255)])
def test_edges_of_ml_1m_equal_the_papers(dgcf_json: Any, epsilon: str, cross: int) -> None:
    answer = dgcf_json("graph", "deoscirec/ml-1m", "--epsilon", epsilon, "--no-histogram")
    assert (answer["cross_edges"], answer["direct_edges"], answer["epsilon"]) == (cross, 296598, float(epsilon))
    assert bool(answer["warnings"]) == (cross == 0)
    assert answer["ratio"] == (None if cross == 0 else max(cross / 296598, 296598 / cross))


@pytest.mark.data("deoscirec/ml-100k")
def test_auto_epsilon_histogram_and_plot_on_ml_100k(dgcf_json: Any, tmp_path: Path) -> None:
    picture = tmp_path / "values.png"
    answer = dgcf_json("graph", "deoscirec/ml-100k", "--plot", picture)
    assert answer["ratio"] <= 1.05
    assert sum(answer["histogram"]["counts"]) == 552_815
    assert len(answer["histogram"]["edges"]) == len(answer["histogram"]["counts"]) + 1
    assert answer["memory_bytes"]["filtered"] < answer["memory_bytes"]["unfiltered"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert answer["build_seconds"] > 0


def test_table_shows_counts_and_marks_epsilon(dgcf: Any) -> None:
    shown = dgcf("graph", "checkerboard", "--epsilon", "0.01")
    assert shown.returncode == 0, shown.stderr
    assert "cross-hop edges" in shown.stdout
    assert "← epsilon" in shown.stdout


def test_epsilon_without_cross_hop_edges_is_warned_about(dgcf: Any) -> None:
    shown = dgcf("graph", "checkerboard", "--epsilon", "1")
    assert shown.returncode == 0
    assert "leaves no cross-hop edge" in shown.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("checkerboard", "--epsilon", "-0.1"), "epsilon is -0.1, expected a number from 0 to 1"),
        (("checkerboard", "--epsilon", "1.5"), "epsilon is 1.5, expected a number from 0 to 1"),
        (("checkerboard", "--epsilon", "nan"), "epsilon is nan, expected a number from 0 to 1"),
        (("checkerboard", "--epsilon", "small"), "epsilon is 'small', expected a number from 0 to 1"),
        (("checkerboard", "--plot", "values.pdf"), "give a name that ends in .png"),
    ],
)
def test_bad_input_is_one_sentence(refused: Any, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("graph", *words)


def test_help_has_an_example(dgcf: Any) -> None:
    assert "dgcf graph deoscirec/" in dgcf("graph", "--help").stdout

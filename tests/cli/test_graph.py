"""``dgcf graph`` and ``dgcf oscillation`` as a person uses them: real processes, real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.data("deoscirec/ml-1m")
@pytest.mark.parametrize(("epsilon", "cross"), [("0.1", 0), ("0.001", 445255)])
def test_the_edges_of_ml_1m_are_those_of_the_paper(dgcf_json: Any, epsilon: str, cross: int) -> None:
    found = dgcf_json("graph", "deoscirec/ml-1m", "--epsilon", epsilon, "--no-histogram")
    assert (found["cross_edges"], found["direct_edges"], found["epsilon"]) == (cross, 296598, float(epsilon))
    assert bool(found["warnings"]) == (cross == 0)
    assert found["ratio"] == (None if cross == 0 else max(cross / 296598, 296598 / cross))


@pytest.mark.data("deoscirec/ml-100k")
def test_auto_on_ml_100k_with_its_histogram_and_picture(dgcf_json: Any, tmp_path: Path) -> None:
    picture = tmp_path / "values.png"
    found = dgcf_json("graph", "deoscirec/ml-100k", "--plot", picture)
    assert found["ratio"] <= 1.05
    assert sum(found["histogram"]["counts"]) == 552_815
    assert len(found["histogram"]["edges"]) == len(found["histogram"]["counts"]) + 1
    assert found["memory_bytes"]["filtered"] < found["memory_bytes"]["unfiltered"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert found["build_seconds"] > 0


@pytest.mark.data("deoscirec/ml-100k")
def test_oscillation_on_ml_100k(dgcf_json: Any, tmp_path: Path) -> None:
    picture = tmp_path / "gap.png"
    found = dgcf_json("oscillation", "deoscirec/ml-100k", "--plot", picture)
    limit = found["gap_limit"]
    assert limit["L"] > 1e-3
    assert limit["L+Lc"] < 1e-8
    assert limit["L+Lc+I"] < 1e-8
    for name in ("L", "L+I", "L+Lc", "L+Lc+I"):
        assert 0 < found["decay_per_step"][name] < 1
        assert found["pi_error"][name] < 1e-12
        assert found["within_bound"][name] is True
        gaps, bound = found["gaps"][name], found["bound"][name]
        assert len(gaps) == len(bound) == 40
        assert all(gap <= most * (1 + 1e-12) for gap, most in zip(gaps, bound, strict=True))
    assert found["condition"]["L"] == pytest.approx(limit["L"] / 2)
    assert found["components"][0] == {
        "users": 928,
        "items": 1077,
        "direct_edges": 29730,
        "cross_edges": 29724,
        "gap_limit": pytest.approx(2 * 149 / 2005),
        "one_limit_with_cross": True,
    }
    assert found["isolated_nodes"] == 95
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_disconnected_graph_is_reported_part_by_part(dgcf: Any, dgcf_json: Any, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 0 1 2\n1 0 1\n2 3\n")
    (tmp_path / "test.txt").write_text("0 3\n")
    found = dgcf_json("oscillation", tmp_path)
    assert [(part["users"], part["items"]) for part in found["components"]] == [(2, 3), (1, 1)]
    assert found["connected"] is False
    shown = dgcf("oscillation", tmp_path)
    assert shown.returncode == 0
    assert "2 connected components" in shown.stdout


def test_the_terminal_shows_counts_and_marks_epsilon(dgcf: Any) -> None:
    shown = dgcf("graph", "checkerboard", "--epsilon", "0.01")
    assert shown.returncode == 0, shown.stderr
    assert "cross-hop edges" in shown.stdout
    assert "← epsilon" in shown.stdout


def test_a_useless_epsilon_is_warned_about_on_stderr(dgcf: Any) -> None:
    shown = dgcf("graph", "checkerboard", "--epsilon", "1")
    assert shown.returncode == 0
    assert "leaves no cross-hop edge" in shown.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("graph", "checkerboard", "--epsilon", "-0.1"), "epsilon is -0.1, expected a number from 0 to 1"),
        (("graph", "checkerboard", "--epsilon", "1.5"), "epsilon is 1.5, expected a number from 0 to 1"),
        (("graph", "checkerboard", "--epsilon", "nan"), "epsilon is nan, expected a number from 0 to 1"),
        (("graph", "checkerboard", "--epsilon", "small"), "epsilon is 'small', expected a number from 0 to 1"),
        (("graph", "checkerboard", "--plot", "values.pdf"), "give a name that ends in .png"),
        (("oscillation", "checkerboard", "--epsilon", "2"), "epsilon is 2.0, expected a number from 0 to 1"),
        (("oscillation", "no-such-data"), "no-such-data"),
    ],
)
def test_bad_input_is_one_sentence(refused: Any, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*words)


@pytest.mark.parametrize("verb", ["graph", "oscillation"])
def test_help_has_an_example(dgcf: Any, verb: str) -> None:
    assert f"dgcf {verb} deoscirec/" in dgcf(verb, "--help").stdout

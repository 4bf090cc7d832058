"""Cells that are computed, and what is recorded of them."""

from __future__ import annotations

import numpy as np
import pytest

from dgcf.experiments.reproduce.cells.computed import TIMED_EPOCHS, paired
from dgcf.experiments.reproduce.datasets import open_dataset
from dgcf.experiments.reproduce.results import Store
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.theory.oscillation import oscillation
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import QUICK, Workspace


def test_comparison_pairs_users_and_depends_on_the_trainings(small: Workspace) -> None:
    grid = f'[[grid]]\ndata = ["small"]\nsettings = ["paper"]\nset = {{ {QUICK.partition(", epsilon")[0]} }}\n'
    text = f'title = "A"\n{grid}models = ["dgcf", "lightgcn"]\n'
    text += '[[grid]]\nkind = "comparison"\ndata = ["small"]\nsettings = ["paper"]\nmodels = ["lightgcn"]\n'
    small.write("fourth", text)
    small.runner.run("fourth")
    *trained, compared = small.lines("fourth")
    assert compared["kind"] == "comparison"
    means = {
        model: np.mean([line["test"]["train"]["ndcg@20"] for line in trained if line["label"] == model])
        for model in ("dgcf", "lightgcn")
    }
    ndcg = compared["computed"]["ndcg@20"]
    assert ndcg["difference"] == pytest.approx(means["lightgcn"] - means["dgcf"], abs=1e-6)
    assert ndcg["interval"][0] <= ndcg["difference"] <= ndcg["interval"][1]
    assert ndcg["users"] == trained[0]["n_users"]
    assert compared["computed"]["seeds"] == [2, 2]
    small.write("fourth", text.replace("dim = 8", "dim = 4"))  # what it compares is another training now
    assert small.runner.run("fourth", only="comparison").known == []
    assert 0 < ndcg["p_permutation"] <= 1
    assert paired(np.ones((2, 9)), np.ones((2, 9)))["p_permutation"] == 1


def test_computed_cells_equal_the_graph_package(small: Workspace) -> None:
    grid = '[[grid]]\ndata = ["small"]\n'
    timed = f'kind = "epochs"\nmodels = ["dgcf"]\nsettings = ["paper"]\nset = {{ {QUICK} }}\n'
    edges = 'kind = "edges"\nsweep = { epsilon = [1.0, 0.02] }\n'
    small.write("fourth", f'title = "A"\n{grid}{edges}{grid}kind = "walks"\n{grid}{timed}')
    tally = small.runner.run("fourth")
    assert tally.missing == {}
    none, some, walked, epochs = (line["computed"] for line in small.lines("fourth"))
    R = open_dataset(small.recipes.sources["small"], 0, small.root / "data").train.to_scipy()
    assert (none["cross_edges"], none["ratio"]) == (0, None)
    assert some["cross_edges"] == cross_hop(interaction_matrix(R), 0.02).edges > 0
    assert walked["walks"]["L"]["gap_limit"] == pytest.approx(oscillation(R).walks["L"].gap_limit)
    assert epochs["epochs_timed"] == TIMED_EPOCHS - 1
    assert epochs["seconds_per_epoch"] > 0


def test_comparison_without_user_values_stays_missing(small: Workspace) -> None:
    grid = f'[[grid]]\ndata = ["small"]\nsettings = ["paper"]\nset = {{ {QUICK}, layers = 1 }}\n'
    text = f'title = "A"\n{grid}models = ["dgcf"]\n'
    text += '[[grid]]\nkind = "comparison"\ndata = ["small"]\nsettings = ["paper"]\nmodels = ["lightgcn"]\n'
    small.write("fourth", text)
    assert list(small.runner.run("fourth", seeds=1).missing) == ["small:comparison:lightgcn:paper"]


def test_recorded_edges_of_table_4() -> None:
    lines = Store(PROJECT / "results").lines("table4")
    edges = {line["varied"]["epsilon"]: line["computed"] for line in lines if line["kind"] == "edges"}
    assert {epsilon: counts["cross_edges"] for epsilon, counts in edges.items()} == {
        0.1: 0,
        0.01: 1752,
        0.001: 445_255,
        0.0005: 2_614_123,
    }
    assert {counts["direct_edges"] for counts in edges.values()} == {296_598}


def test_four_statements_hold_in_recorded_walks() -> None:
    lines = Store(PROJECT / "results").lines("theory")
    assert len(lines) == 4
    for line in lines:
        walks = line["computed"]["walks"]
        assert [name for name, walk in walks.items() if walk["two_limits"]] == ["L"]
        for name, walk in walks.items():
            assert walk["limit_error"] < 1e-6
            assert walk["within_bound"]
            assert (walk["gap_limit_exact"] > 0.1) == (name == "L")
        assert abs(walks["L+I"]["flip_per_step"]) < 1e-6
        assert walks["L+Lc"]["flip_per_step"] < walks["A+I"]["flip_per_step"] < 1
        assert walks["L"]["condition"] == pytest.approx(walks["L"]["gap_limit_exact"] / 2)

"""Fold-in against the trained layers, plain loops, and a line that the gates were made from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset
from dgcf.errors import DataError
from dgcf.recommend import Recommender, Snapshot
from dgcf.recommend.foldin import FoldIn, Neighbours
from dgcf.recommend.snapshot import Layers, sigmoid
from tests.recommend.conftest import MODELS, dense_layer0_map, dense_matrix, gates_of, graphs, random_dataset, untrained

GRAPH_MODELS = [chosen for chosen in MODELS if chosen[0] != "bpr-mf"]


@given(graphs(), st.sampled_from(GRAPH_MODELS))
def test_known_node_folds_in_to_its_trained_layers(dataset: Dataset, chosen: Any) -> None:
    snapshot = untrained(dataset, chosen[0], **chosen[1])
    folding = FoldIn(snapshot)
    assert snapshot.layers is not None
    for side, first, rows in (("user", 0, snapshot.user_rows), ("item", snapshot.n_users, snapshot.item_rows)):
        for node in range(len(rows)):
            folded = folding.fold(side, folding.neighbours.of(side, node), node)  # type: ignore[arg-type]
            stored = snapshot.layers.embeddings[:, first + node]
            np.testing.assert_allclose(folded.layers, stored, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(folded.ranked, rows[node], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chosen", GRAPH_MODELS, ids=str)
def test_ranked_row_is_mean_of_layers_and_has_unit_length_after_cosine_loss(chosen: Any) -> None:
    snapshot = untrained(random_dataset(), chosen[0], **chosen[1])
    folding = FoldIn(snapshot)
    assert snapshot.layers is not None
    depth = snapshot.layers.depth
    new_users = [folding.fold("user", np.array([item])) for item in range(snapshot.n_items)]
    known = [folding.fold("item", folding.neighbours.of("item", node), node) for node in range(snapshot.n_items)]
    means = [snapshot.layer_weights(depth) @ folded.layers for folded in (*new_users, *known)]
    for folded, mean in zip((*new_users, *known), means, strict=True):
        length = float(np.linalg.norm(mean))
        expected = max(length, 1e-12) if snapshot.cosine else 1.0
        assert folded.length == pytest.approx(expected)
        np.testing.assert_allclose(folded.ranked, mean / expected, rtol=1e-6)
        assert len(folded.gates) == depth
    assert min(map(np.linalg.norm, means)) < 1 < max(map(np.linalg.norm, means)), "both shorter and longer rows occur"


@given(st.integers(0, 1000), st.sampled_from(GRAPH_MODELS), st.sets(st.integers(0, 10), min_size=1, max_size=6))
def test_new_user_equals_plain_loops(seed: int, chosen: Any, likes: set[int]) -> None:
    """One node more in a dense M whose degrees, all but the new one's, are those of training."""
    dataset = random_dataset(seed=seed)
    snapshot = untrained(dataset, chosen[0], **chosen[1])
    degree = dataset.train.item_degrees
    mine = np.array([item for item in sorted(likes) if degree[item] > 0], dtype=np.int64)
    folding = FoldIn(snapshot)
    folded = folding.fold("user", np.array(sorted(likes), dtype=np.int64))
    layers, rule = snapshot.layers, snapshot.rule
    assert layers is not None
    assert rule is not None
    R = np.asarray(dataset.train.to_scipy().todense(), dtype=float)
    n_users, gates, weights = len(R), gates_of(snapshot), np.zeros(sum(R.shape))
    own = float(rule.self_loop)
    if len(mine):
        weights[n_users + mine] = 1 / np.sqrt(len(mine) * degree[mine])
        for user in range(n_users):
            shared = R[user, mine].sum()
            value = shared / np.sqrt(degree[mine].sum() * max((R[user] @ degree), 1.0))
            weights[user] = value if rule.cross and value > (rule.epsilon or 0) else 0.0
        diagonal = len(mine) / degree[mine].sum()
        passes = diagonal > (rule.epsilon or 0) and (diagonal < 1 or not rule.cross_below_one)
        own += diagonal if rule.cross and passes else 0.0
    x = np.zeros(6)
    if len(mine):
        users, items = np.split(layers.embeddings[0].astype(float), [n_users])
        blocks = dense_layer0_map(users, items, dataset.train)
        powers = ((block, degree[mine] ** -power) for block, power in zip(blocks, (0.0, 0.5, 1.0), strict=True))
        x = sum(
            weight * items[j] @ block / len(mine) for block, by in powers for j, weight in zip(mine, by, strict=True)
        )
    kept = [x]
    for layer in range(layers.depth):
        heard = sum(weights[j] * gates[layer, j] * layers.embeddings[layer, j] for j in range(sum(R.shape)))
        x = heard + own * folded.gates[layer] * x
        kept.append(x)
    np.testing.assert_allclose(folded.layers, kept, rtol=1e-9, atol=1e-12)


def test_row_of_a_user_is_estimated_only_for_new_users_with_known_items() -> None:
    dataset = random_dataset(seed=8, density=0.25)
    alone = np.flatnonzero(dataset.train.item_degrees == 0)
    assert len(alone)
    folding = FoldIn(untrained(dataset))
    known = np.flatnonzero(dataset.train.item_degrees > 0)[:2]
    assert folding.fold("user", known).estimated
    assert folding.fold("user", known).layers[0].any()
    for side, across, node in (("user", alone[:1], None), ("user", known, 0), ("item", np.array([0, 1]), None)):
        folded = folding.fold(side, across, node)  # type: ignore[arg-type]
        assert not folded.estimated
        assert node is not None or not folded.layers[0].any()


def test_items_without_training_pairs_change_no_estimate() -> None:
    snapshot = untrained(random_dataset(seed=8, density=0.8))
    folding = FoldIn(snapshot)
    liked = np.flatnonzero(snapshot.train.item_degrees > 0)[:3]
    wide = replace(snapshot, train=replace(snapshot.train, n_items=snapshot.n_items + 2))
    with_new = np.append(liked, snapshot.n_items + 1)
    expected = folding.fold("user", liked).layers.tobytes()
    assert FoldIn(wide).fold("user", with_new).layers.tobytes() == expected
    wider = folding.with_items(wide)
    assert wider.layer0_map is folding.layer0_map
    assert wider.fold("user", with_new).layers.tobytes() == expected


@pytest.mark.parametrize("size", [(30, 25), (4, 5)])
def test_gates_of_new_node_follow_the_line_of_its_degree(size: tuple[int, int]) -> None:
    """Gates that are made from a line give that line back; a new node's gate is its value at that degree."""
    dataset = random_dataset(*size, seed=2, density=0.9)
    snapshot = untrained(dataset, layers=2)
    assert snapshot.layers is not None
    planted_lines = {"user": np.array([[0.3, -0.5], [-1.0, 0.2]]), "item": np.array([[0.1, 0.4], [0.7, -0.3]])}
    degrees = {"user": dataset.train.user_degrees, "item": dataset.train.item_degrees}
    sides = [line[:, :1] + line[:, 1:] * np.log1p(degrees[side]) for side, line in planted_lines.items()]
    logits = np.concatenate(sides, axis=1).astype(np.float32)
    planted = replace(snapshot, load_layers=lambda: Layers(snapshot.layers.embeddings, logits))  # type: ignore[union-attr]
    folding = FoldIn(planted)
    for side, line in planted_lines.items():
        np.testing.assert_allclose(folding.gate_lines[side], line, atol=1e-5)  # type: ignore[index]
    likes = np.flatnonzero(dataset.train.item_degrees > 0)[:4]
    expected = sigmoid(np.array([0.3 - 0.5 * np.log1p(4), -1.0 + 0.2 * np.log1p(4)]))
    np.testing.assert_allclose(folding.fold("user", likes).gates, expected, atol=1e-5)


@pytest.mark.parametrize("n_users", [5, 7])  # of seven equal degrees the mean is off by its last bit
def test_gate_lines_if_all_degrees_are_equal(n_users: int) -> None:
    """All users have all items: the slope is undetermined, and the mean gate is used."""
    snapshot = untrained(random_dataset(n_users, 4, density=1e9))
    assert snapshot.layers is not None
    assert snapshot.layers.gate_logits is not None
    line = FoldIn(snapshot).gate_lines["user"]
    np.testing.assert_allclose(line[:, 1], 0)
    np.testing.assert_allclose(line[:, 0], snapshot.layers.gate_logits[:, :n_users].mean(1), rtol=1e-6)


def test_new_items_change_a_known_user_as_the_graph_would() -> None:
    """Against the dense M of the graph with the new pair, where the degrees of all others are put back."""
    dataset = random_dataset(7, 8, seed=5, density=0.6)
    snapshot = untrained(dataset, epsilon=0.0)
    folding = FoldIn(snapshot)
    user = int(np.argmax(dataset.train.user_degrees))
    have = folding.neighbours.of("user", user)
    new = next(i for i in range(8) if i not in have and dataset.train.item_degrees[i] > 0)
    folded = folding.fold("user", np.union1d(have, [new]), user)
    assert new in folded.row.across
    degree = len(have) + 1
    before = dense_matrix(dataset.train, snapshot)[user, 7 + have]
    place = np.isin(folded.row.across, have)
    np.testing.assert_allclose(folded.row.across_weight[place], before * np.sqrt((degree - 1) / degree))
    assert snapshot.layers is not None
    np.testing.assert_array_equal(folded.layers[0], snapshot.layers.embeddings[0, user])


def test_model_without_graph_cannot_fold_in() -> None:
    with pytest.raises(DataError, match="bpr-mf cannot fold in"):
        FoldIn(untrained(random_dataset(), "bpr-mf"))


def test_snapshot_without_layers_cannot_fold_in() -> None:
    bare: Snapshot = replace(untrained(random_dataset()), load_layers=None)
    with pytest.raises(DataError, match="cannot fold in"):
        FoldIn(bare)


@pytest.mark.slow
@pytest.mark.data("deoscirec/ml-100k")
def test_fold_in_quality_on_movielens() -> None:
    """One draw of the benchmark: its means over five draws are in docs/recommend.md."""
    from benchmarks.foldin import mean_of, measure

    unfitted = Recommender("dgcf", preset="paper", seed=0, device="cpu", dim=64, epochs=100)
    quality = mean_of([measure("deoscirec/ml-100k", unfitted, 0)])
    assert quality["overlap"] >= 0.75
    assert quality["fold-in / popularity"] >= 1.4
    assert quality["fold-in / trained"] >= 0.85  # 120 users: ±.06 from draw to draw


@pytest.mark.parametrize("chosen", GRAPH_MODELS, ids=str)
def test_more_items_without_pairs_change_no_fold_in(chosen: Any) -> None:
    """What a snapshot with more items folds in is what one that was made from the wider pairs does."""
    snapshot = untrained(random_dataset(seed=4), chosen[0], **chosen[1])
    n_items = snapshot.n_items + 3
    wider = replace(snapshot, train=replace(snapshot.train, n_items=n_items))
    plain, extended = FoldIn(snapshot), FoldIn(snapshot).with_items(wider)
    anew = Neighbours(wider.train, extended.neighbours.rule)
    for items in (np.array([1]), np.array([0, 4, 7])):
        for user in (None, 2):
            expected = plain.fold("user", items, user)
            for more in (items, np.append(items, n_items - 1)):  # an item without pairs adds nothing
                np.testing.assert_array_equal(extended.fold("user", more, user).ranked, expected.ranked)
                np.testing.assert_array_equal(anew.row("user", more, user).alike, expected.row.alike)
    users = np.array([0, 3, 5])
    np.testing.assert_array_equal(extended.fold("item", users).ranked, plain.fold("item", users).ranked)
    np.testing.assert_array_equal(anew.row("item", users).across_weight, extended.fold("item", users).row.across_weight)

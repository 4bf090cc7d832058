"""Solved models as recommenders: what they add to the contract of all models (``test_contract``)."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import save as encode

from dgcf.data import Dataset, Pairs
from dgcf.errors import ArtifactError, DataError
from dgcf.models import CATALOG, Entry
from dgcf.models.popularity import Popularity
from dgcf.ranking.rankings import ItemWeights
from dgcf.ranking.topk import WeightIndex, top_k
from dgcf.ranking.torch_backend import top_k_by_scores
from dgcf.ranking.user_rules import ConstantRow
from dgcf.ranking.weights import SparseWeights
from dgcf.recommend import Recommender, load
from dgcf.recommend.export import export
from dgcf.train import build, resolve
from tests.recommend.conftest import random_dataset
from tests.recommend.test_artifact import lied

SOLVED = [name for name, entry in CATALOG.items() if entry.solved]
BY_ITEMS = ["ease", "item-knn", "gf-cf", "bspm", "chebycf"]
EXPLAINED = [*BY_ITEMS, "ials", "popularity"]
SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {"l2": 20.0},
    "item-knn": {"neighbours": 12},
    "ials": {"factors": 8, "regularization": 2.0},
}


def recommender(model: str, data: Dataset, **more: Any) -> Recommender:
    return Recommender(model, seed=3, **{**SETTINGS.get(model, {}), **more}).fit(data)


@pytest.fixture(scope="module")
def fitted_to(films: Dataset) -> dict[str, Recommender]:
    return {model: recommender(model, films) for model in SOLVED}


def seen(data: Dataset) -> Pairs:
    return data.train.union(data.validation, data.test)


def train_items(data: Dataset, user: int) -> list[str]:
    return [data.items.texts[item] for item in data.train[user]]


@pytest.mark.parametrize("model", SOLVED)
class TestContract:
    def test_recommendations_are_the_ranking_of_the_solved_model(
        self, model: str, films: Dataset, fitted_to: dict[str, Recommender]
    ) -> None:
        recipe = resolve(model, settings=SETTINGS.get(model, {}))
        net, _ = build(films, recipe)
        net.solve(films.train, 3)
        ranked = top_k_by_scores(net.ranking(films.train), np.arange(films.n_users), seen(films), 10)
        table = fitted_to[model].recommend(films.users.texts, 10)
        assert table["user"] == [user for user in films.users.texts for _ in range(10)]
        assert table["item"] == [films.items.texts[item] for item in ranked.item_idx.flatten().tolist()]
        np.testing.assert_allclose(table["score"], ranked.scores.flatten().numpy(), rtol=1e-5, atol=1e-7)

    def test_fit_on_everything_solves_once_on_all_pairs(self, model: str, films: Dataset) -> None:
        rec = Recommender(model, **SETTINGS.get(model, {})).fit(films, on="everything")
        assert len(rec.snapshot.train) == len(seen(films))
        assert rec.snapshot.about["epochs"] == 1


@pytest.mark.parametrize("model", EXPLAINED)
def test_explanations_sum_to_the_score(model: str, films: Dataset, fitted_to: dict[str, Recommender]) -> None:
    rec = fitted_to[model]
    for user in range(0, 150, 10):
        raw = films.users.texts[user]
        for row in rec.recommend(raw, 3):
            explanation = rec.explain(raw, row["item"])
            assert explanation.score == row["score"]
            assert abs(explanation.residual) < 1e-4 * max(abs(part.value) for part in explanation.parts)
            assert explanation.user == raw
            if model != "popularity":
                assert sorted(part.id for part in explanation.parts) == sorted(train_items(films, user))  # type: ignore[type-var]
                assert explanation.by_kind["item"] == pytest.approx(explanation.score, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("model", [*BY_ITEMS, "ials"])
def test_new_user_with_the_items_of_a_known_one_gets_the_same_ranking(
    model: str, films: Dataset, fitted_to: dict[str, Recommender]
) -> None:
    """To the bit if users are represented by their items alone; up to rounding if the row is solved for again."""
    rec = fitted_to[model]
    for user in range(0, 150, 7):
        raw, items = films.users.texts[user], train_items(films, user)
        known = rec.recommend(raw, 12, exclude_seen=False)
        new = rec.recommend_for(items, 12, exclude_seen=False)
        assert new["item"] == known["item"]
        if model in BY_ITEMS:
            assert new["score"] == known["score"]
        np.testing.assert_allclose(new["score"], known["score"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", BY_ITEMS)
def test_scores_of_a_new_user_are_the_product_with_the_weights(model: str, fitted_to: dict[str, Recommender]) -> None:
    rec = fitted_to[model]
    assert isinstance(rec.snapshot.ranking, ItemWeights)
    W = rec.snapshot.ranking.weights
    whole = np.stack([W.sum_rows(np.array([item])) for item in range(160)])
    x = np.zeros(160)
    liked = [3, 50, 77, 120]
    x[liked] = 1
    texts = rec.snapshot.items.texts
    table = rec.recommend_for([texts[item] for item in liked], 160, exclude_seen=False)
    order = [rec.snapshot.items.index_of(item) for item in table["item"]]
    np.testing.assert_allclose(table["score"], (x @ whole)[order], rtol=1e-12, atol=1e-15)
    explanation = rec.explain_for([texts[item] for item in liked], table["item"][0])
    assert {part.id: part.value for part in explanation.parts} == {texts[item]: whole[item, order[0]] for item in liked}
    assert "because you liked" in explanation.text()


@pytest.mark.parametrize("model", [*BY_ITEMS, "ials"])
def test_new_items_of_a_known_user_change_the_scores(
    model: str, films: Dataset, fitted_to: dict[str, Recommender]
) -> None:
    rec = fitted_to[model]
    before = rec.recommend("u00007", 20)
    mine = train_items(films, films.users.index_of("u00007"))
    same = rec.recommend_for(mine[:1], 20, user="u00007")
    assert same["item"] == before["item"]
    after = rec.recommend_for(before["item"][:2], 20, user="u00007")
    assert not set(after["item"]) & set(before["item"][:2])
    assert after["score"][:10] != before["score"][2:12]
    explanation = rec.explain_for(before["item"][:2], after["item"][0], user="u00007")
    assert explanation.user == "u00007"
    assert len(explanation.parts) == len(mine) + 2
    assert explanation.score == after["score"][0]


def test_popularity_recommends_the_same_to_a_new_user(films: Dataset, fitted_to: dict[str, Recommender]) -> None:
    rec = fitted_to["popularity"]
    degrees = films.train.item_degrees
    order = sorted(range(160), key=lambda item: (-degrees[item], item))
    table = rec.recommend_for(films.items.texts[:2], 5, exclude_seen=False)
    assert table["item"] == [films.items.texts[item] for item in order[:5]]
    assert table["score"] == [float(degrees[item]) for item in order[:5]]
    explanation = rec.explain("u00000", films.items.texts[order[0]])
    assert explanation.text().endswith(f": {degrees[order[0]]} of 150 similar users have it (100% of the score).")


def test_random_order_neither_folds_in_nor_explains(fitted_to: dict[str, Recommender]) -> None:
    with pytest.raises(DataError, match=r"model random cannot fold in a new user or item: .*; train one"):
        fitted_to["random"].recommend_for(["i00001"])
    with pytest.raises(DataError, match="cannot be split exactly"):
        fitted_to["random"].explain("u00000", "i00001")


# -- likeness, and what needs embeddings ----------------------------------------------------------------------------


@pytest.mark.parametrize("model", BY_ITEMS)
def test_similar_items_are_ordered_by_the_weights(model: str, fitted_to: dict[str, Recommender]) -> None:
    rec = fitted_to[model]
    assert isinstance(rec.snapshot.ranking, ItemWeights)
    W = rec.snapshot.ranking.weights
    row = W.sum_rows(np.array([5]))
    row[5] = 0
    order = [item for item in np.argsort(-row, kind="stable").tolist() if row[item] > 0]
    table = rec.similar_items("i00005", 160)
    assert table["item"] == [rec.snapshot.items.texts[item] for item in order]
    assert table["score"] == row[order].tolist()
    assert table.notes == (f"k is 160, but only {len(order)} items are left; the list is shorter.",)


@pytest.mark.parametrize("model", BY_ITEMS)
def test_what_needs_embeddings_is_refused_in_one_sentence(
    model: str, fitted_to: dict[str, Recommender], tmp_path: Path
) -> None:
    rec = fitted_to[model]
    with pytest.raises(
        DataError, match=f"model {model} has no embeddings, which this needs, but weights between items"
    ):
        rec.similar_users("u00001")
    for kind in ("npy", "parquet"):
        with pytest.raises(DataError, match="has no embeddings"):
            export(rec.snapshot, tmp_path / kind, kind)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="cannot fold in a new user or item"):
        rec.audience_for(["u00001"])
    assert export(rec.snapshot, tmp_path / "rec.dgcf")["dim"] is None


@pytest.mark.parametrize("model", ["random", "ials"])
def test_embeddings_are_compared_and_exported(model: str, fitted_to: dict[str, Recommender], tmp_path: Path) -> None:
    rec = fitted_to[model]
    assert len(rec.similar_items("i00005", 3)) == len(rec.similar_users("u00005", 3)) == 3
    export(rec.snapshot, tmp_path / "rows")
    np.testing.assert_array_equal(np.load(tmp_path / "rows" / "items.npy"), rec.snapshot.item_rows)


def test_popularity_refuses_similarity(fitted_to: dict[str, Recommender]) -> None:
    for likeness in (fitted_to["popularity"].similar_items, fitted_to["popularity"].similar_users):
        with pytest.raises(DataError, match=r"one number for each (item|user) and no similarity between two"):
            likeness("i00005" if likeness.__name__ == "similar_items" else "u00005")


# -- the artefact ---------------------------------------------------------------------------------------------------


def test_embeddings_are_written_in_format_1(films: Dataset, fitted_to: dict[str, Recommender], tmp_path: Path) -> None:
    """So a dgcf that knew no item weights still reads embeddings."""
    formats = {}
    for model, rec in fitted_to.items():
        rec.save(tmp_path / model)
        formats[model] = (tmp_path / model / "manifest.json").read_text().partition('"format": ')[2][0]
    assert formats == {**dict.fromkeys(BY_ITEMS, "2"), "ials": "1", "popularity": "1", "random": "1"}


@pytest.mark.parametrize(
    ("model", "damage"), [*((m, d) for m in BY_ITEMS for d in ("shape", "dtype", "nan")), ("item-knn", "indices")]
)
def test_damaged_weights_are_refused(
    model: str, damage: str, fitted_to: dict[str, Recommender], tmp_path: Path
) -> None:
    snapshot = fitted_to[model].snapshot
    assert isinstance(snapshot.ranking, ItemWeights)
    arrays = {name: array.copy() for name, array in snapshot.ranking.weights.arrays().items()}
    if damage == "shape":
        arrays["values"] = arrays["values"][:-1]
    elif damage == "dtype":
        arrays["values"] = arrays["values"].astype(np.float64)
    elif damage == "nan":
        arrays["values"].flat[0] = np.nan
    else:
        arrays["indices"][0] = 160
    path = lied(snapshot, tmp_path, "weights.safetensors", encode(arrays))
    with pytest.raises(ArtifactError, match="is damaged or not a recommender"):
        load(path)


def test_isolated_users_and_items() -> None:
    """A user without training pairs gets recommendations; an item without training pairs can be explained."""
    data = random_dataset(9, 11, seed=2, density=0.15)
    alone = int(np.flatnonzero(data.train.user_degrees == 0)[0])
    unmet = int(np.flatnonzero(data.train.item_degrees == 0)[0])
    for model in SOLVED:
        rec = recommender(model, data)
        assert len(rec.recommend(alone, 3, exclude_seen=False)) == 3
        if model in EXPLAINED:
            assert rec.explain(alone, 0).residual == 0
            with pytest.raises(DataError, match="no user has any of these items in training"):
                rec.recommend_for([unmet])


def test_ranking_by_weights_holds_only_a_block_of_scores() -> None:
    """2,000 users and 20,000 items: all their scores would be 320 MB."""
    pairs = Pairs.from_indices(np.arange(2000), np.arange(2000) * 10, 2000, 20_000)
    others = np.roll(np.arange(20_000, dtype=np.int32), 1)
    weights = SparseWeights(np.arange(20_001), others, np.ones(20_000, np.float32), 20_000)
    tracemalloc.start()
    ranked = top_k(WeightIndex(weights), pairs, pairs, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6
    assert ranked.item_idx[5, 0] == others[50]


def test_artefact_without_least_squares_field_loads(fitted_to: dict[str, Recommender], tmp_path: Path) -> None:
    rec = fitted_to["popularity"]
    about = json.loads((rec.save(tmp_path / "now") / "about.json").read_text())
    del about["least_squares"]
    old = lied(rec.snapshot, tmp_path, "about.json", json.dumps(about).encode())
    assert load(old).recommend("u00003", 5) == rec.recommend("u00003", 5)


class LeastPopular(Popularity):
    """A new model in which every user has the same row."""

    def solve(self, pairs: Pairs, seed: int, device: Any = "cpu") -> None:
        super().solve(pairs, seed, device)
        self.items.neg_()


def test_constant_rule_of_any_model_survives_saving(
    films: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(CATALOG["popularity"], name="least-popular", kind=LeastPopular)
    monkeypatch.setitem(cast(dict[str, Entry], CATALOG), "least-popular", entry)
    rec = Recommender("least-popular").fit(films)
    loaded = load(rec.save(tmp_path / "least-popular.dgcf"))
    assert loaded.snapshot.ranking.user_rule == ConstantRow()
    assert loaded.recommend_for(["i00001"], 5) == rec.recommend_for(["i00001"], 5)
    assert loaded.explain("u00003", "i00001").to_dict() == rec.explain("u00003", "i00001").to_dict()


def test_popularity_written_before_the_rule_was_stored_loads(fitted_to: dict[str, Recommender], tmp_path: Path) -> None:
    rec = fitted_to["popularity"]
    about = json.loads((rec.save(tmp_path / "now") / "about.json").read_text())
    assert about.pop("users") == "constant"
    loaded = load(lied(rec.snapshot, tmp_path, "about.json", json.dumps(about).encode()))
    assert loaded.recommend_for(["i00001"], 5) == rec.recommend_for(["i00001"], 5)


@pytest.mark.parametrize("model", BY_ITEMS)
def test_similar_items_of_an_empty_list_are_refused(model: str, fitted_to: dict[str, Recommender]) -> None:
    with pytest.raises(DataError, match="the list of items is empty; give at least one item"):
        fitted_to[model].similar_items([])

"""Composed rankings in a recommender: recommendations, fold-in, explanations and artefacts, against dense arrays."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load as decode
from safetensors.numpy import save as encode

from dgcf.data import Dataset
from dgcf.errors import ArtifactError, DataError
from dgcf.evaluate.validation import validator
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings, ItemWeights
from dgcf.ranking.user_rules import BlendedRule, embeddings_rule
from dgcf.ranking.weights import SparseWeights
from dgcf.recommend import Recommender, Snapshot, artifact, container, load
from dgcf.recommend.batch import Batch
from dgcf.recommend.explain import POPULAR
from dgcf.recommend.export import export
from dgcf.train import Size, resolve, train
from tests.ranking.test_blend import sparse
from tests.recommend.conftest import MODELS, graphs, random_dataset, untrained

Dense = NDArray[np.float64]
WEIGHTS = "weights.safetensors"


def with_weights(snapshot: Snapshot, seed: int = 0, share: float = 0.5, prior: bool = False) -> Snapshot:
    """The snapshot of the same model with random weights between items added, some negative, and with a prior."""
    rng = np.random.default_rng(seed)
    n = snapshot.n_items
    W = (rng.normal(size=(n, n)) * (rng.random((n, n)) < share)).astype(np.float32)
    base = snapshot.embeddings
    p = rng.random(n).astype(np.float32) if prior else None
    return replace(snapshot, ranking=Blend(base, snapshot.train, sparse(W), p))


def composed(dataset: Dataset, model: str = "dgcf", seed: int = 0, **settings: Any) -> Snapshot:
    """An untrained model with random weights between items; with a prior if the number of items is even."""
    return with_weights(untrained(dataset, model, seed, **settings), seed, prior=dataset.n_items % 2 == 0)


def prior_of(snapshot: Snapshot) -> Dense:
    assert isinstance(snapshot.ranking, Blend)
    prior = snapshot.ranking.prior
    return np.zeros(snapshot.n_items) if prior is None else prior.astype(float)


def weights_of(snapshot: Snapshot) -> Dense:
    weights = snapshot.ranking.item_weights
    assert isinstance(weights, SparseWeights)
    W = np.zeros(weights.shape)
    for row in range(snapshot.n_items):
        entries = slice(weights.indptr[row], weights.indptr[row + 1])
        W[row, weights.indices[entries]] = weights.values[entries]
    return W


def added(snapshot: Snapshot, items: Any) -> Dense:
    """``d^-½ Σ_j W[j, i]`` over d items, (n_items,)."""
    total = np.zeros(snapshot.n_items)
    for item in items:
        total += weights_of(snapshot)[item]
    return total / np.sqrt(len(items)) if len(items) else total


def dense_scores(snapshot: Snapshot) -> Dense:
    """All scores in float64, (n_users, n_items)."""
    products = snapshot.user_rows.astype(float) @ snapshot.item_rows.astype(float).T
    weighted = np.stack([added(snapshot, snapshot.train[user]) for user in range(snapshot.n_users)])
    return np.asarray(products + weighted + prior_of(snapshot))


def best(scores: Dense, allowed: NDArray[np.bool_], k: int) -> list[int]:
    items = np.flatnonzero(allowed)
    return [int(item) for item in items[np.argsort(-scores[items], kind="stable")][:k]]


# -- recommendations --------------------------------------------------------------------------------------------------


@given(graphs(), st.sampled_from(MODELS), st.integers(1, 10), st.booleans(), st.sampled_from([None, "cpu"]))
def test_recommendations_are_a_full_sort_of_dense_scores(
    dataset: Dataset, chosen: Any, k: int, exclude_seen: bool, device: str | None
) -> None:
    snapshot = composed(dataset, chosen[0], **chosen[1])
    rec, scores = Recommender.of(snapshot), dense_scores(snapshot)
    some = list(range(0, dataset.n_items, 2))
    for only in (None, some):
        table = rec.recommend(list(range(dataset.n_users)), k, exclude_seen=exclude_seen, only=only, device=device)
        for user in range(dataset.n_users):
            allowed = np.ones(dataset.n_items, dtype=bool) if only is None else np.isin(range(dataset.n_items), some)
            if exclude_seen:
                allowed[snapshot.seen[user]] = False
            rows = [row for row in table if row["user"] == user]
            assert [row["item"] for row in rows] == best(scores[user], allowed, k)
            expected = [scores[user, row["item"]] for row in rows]
            np.testing.assert_allclose([row["score"] for row in rows], expected, rtol=1e-9, atol=1e-9)
            if rows:
                assert rec.score(user, [row["item"] for row in rows]).tolist() == [row["score"] for row in rows]


@given(graphs(), st.sampled_from([chosen for chosen in MODELS if chosen[0] != "bpr-mf"]), st.data())
def test_a_new_user_has_the_folded_row_and_the_weights_of_the_items(
    dataset: Dataset, chosen: Any, data: st.DataObject
) -> None:
    """An item that nobody has in training adds nothing and does not count."""
    snapshot = composed(dataset, chosen[0], **chosen[1])
    rec = Recommender.of(snapshot)
    items = sorted(data.draw(st.sets(st.integers(0, dataset.n_items - 1), min_size=1)))
    known = [item for item in items if dataset.train.item_degrees[item]]
    if not known:
        with pytest.raises(DataError, match="no user has any of these items in training"):
            rec.recommend_for(items)
        return
    row = rec.folding.fold("user", np.array(items)).ranked.astype(float)
    scores = snapshot.item_rows.astype(float) @ row + added(snapshot, known) + prior_of(snapshot)
    table = rec.recommend_for(items, dataset.n_items)
    assert table["item"] == best(scores, ~np.isin(range(dataset.n_items), items), dataset.n_items)
    np.testing.assert_allclose(table["score"], scores[table["item"]], rtol=1e-9, atol=1e-9)


@given(graphs(), st.sampled_from([chosen for chosen in MODELS if chosen[0] != "bpr-mf"]))
def test_a_training_user_folded_in_has_the_trained_weights_to_the_bit(dataset: Dataset, chosen: Any) -> None:
    """What the items add for a new user with a training user's items is what they add for that user."""
    snapshot = composed(dataset, chosen[0], **chosen[1])
    rec = Recommender.of(snapshot)
    only_weights = Recommender.of(
        replace(
            snapshot,
            ranking=Blend(
                Embeddings(0 * snapshot.user_rows, 0 * snapshot.item_rows, embeddings_rule(snapshot.ranking.user_rule)),
                snapshot.train,
                snapshot.ranking.item_weights,  # type: ignore[arg-type]
            ),
        )
    )
    for user in range(dataset.n_users):
        items = dataset.train[user].tolist()
        if not items:
            continue
        for item in range(dataset.n_items):
            trained = [part for part in rec.explain(user, item).parts if part.kind == "weights"]
            assert [part for part in rec.explain_for(items, item).parts if part.kind == "weights"] == trained
            assert [part for part in rec.explain_for(items, item, user=user).parts if part.kind == "weights"] == trained
        every = range(dataset.n_items)
        folded = only_weights.recommend_for(items, dataset.n_items, exclude_seen=False)
        known = only_weights.recommend(user, dataset.n_items, exclude_seen=False)
        assert folded["item"] == known["item"]
        assert folded["score"] == known["score"] == only_weights.score(user, known["item"]).tolist()
        assert len(known["item"]) == len(every)


def test_a_known_user_with_new_items_counts_all_of_them() -> None:
    dataset = random_dataset(seed=2, density=0.6)
    snapshot = composed(dataset, epsilon=0.0)
    rec, user = Recommender.of(snapshot), 4
    new = np.setdiff1d(np.flatnonzero(dataset.train.item_degrees), dataset.train[user]).tolist()
    items = sorted({*dataset.train[user].tolist(), new[0]})
    row = rec.folding.fold("user", np.array(items), user).ranked.astype(float)
    scores = snapshot.item_rows.astype(float) @ row + added(snapshot, items)
    table = rec.recommend_for([new[0]], 4, user=user, exclude_seen=False)
    np.testing.assert_allclose(table["score"], scores[table["item"]], rtol=1e-9)
    assert table["item"] == best(scores, np.ones(dataset.n_items, dtype=bool), 4)


# -- explanations -----------------------------------------------------------------------------------------------------


@given(graphs(), st.sampled_from(MODELS))
def test_parts_sum_to_the_score(dataset: Dataset, chosen: Any) -> None:
    snapshot = composed(dataset, chosen[0], **chosen[1])
    rec, plain = Recommender.of(snapshot), Recommender.of(replace(snapshot, ranking=snapshot.ranking.base))  # type: ignore[attr-defined]
    scores, W = dense_scores(snapshot), weights_of(snapshot)
    for user in range(dataset.n_users):
        mine = dataset.train[user].tolist()
        for item in range(dataset.n_items):
            result = rec.explain(user, item)
            assert result.score == pytest.approx(rec.score(user, item)[0], rel=1e-9, abs=1e-9)
            assert result.score == pytest.approx(scores[user, item], rel=1e-9, abs=1e-9)
            assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))
            assert sum(part.value for part in result.parts) == pytest.approx(result.score, rel=1e-5, abs=1e-5)
            values = {part.id: part.value for part in result.parts if part.kind == "weights"}
            assert values == pytest.approx({j: W[j, item] / np.sqrt(len(mine)) for j in mine})
            assert list(values.values()) == sorted(values.values(), reverse=True)
            assert sum(result.by_kind.values()) == pytest.approx(result.score, abs=1e-4)
            without = plain.explain(user, item)
            popular = [part.value for part in result.parts if part.title == POPULAR]
            assert popular == ([] if snapshot.ranking.prior is None else [prior_of(snapshot)[item]])  # type: ignore[attr-defined]
            rest = tuple(part for part in result.parts if part.kind != "weights" and part.title != POPULAR)
            assert rest == without.parts
            assert result.by_layer == without.by_layer
            blended = result.by_kind["weights"] + sum(popular)
            assert sum(result.by_layer) + blended == pytest.approx(result.score, abs=1e-4)
            short = result.top(1)
            assert sum(part.value for part in short.parts) == pytest.approx(result.score - result.residual, abs=1e-9)
            assert sum(part.count for part in short.parts) == len(result.parts)


@given(graphs(), st.sampled_from([chosen for chosen in MODELS if chosen[0] != "bpr-mf"]), st.data())
def test_parts_sum_to_the_score_of_a_new_user(dataset: Dataset, chosen: Any, data: st.DataObject) -> None:
    rec = Recommender.of(composed(dataset, chosen[0], **chosen[1]))
    items = sorted(data.draw(st.sets(st.integers(0, dataset.n_items - 1), min_size=1)))
    known = {item for item in items if dataset.train.item_degrees[item]}
    if not known:
        return
    user = data.draw(st.sampled_from([None, 0]))
    table = rec.recommend_for(items, dataset.n_items, user=user, exclude_seen=False)
    for item, score in zip(table["item"], table["score"], strict=True):
        result = rec.explain_for(items, item, user=user)
        assert result.score == pytest.approx(score, rel=1e-6, abs=1e-6)
        assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))
        mine = known if user is None else known | set(dataset.train[user].tolist())
        assert {part.id for part in result.parts if part.kind == "weights"} == mine


SOLVED: list[tuple[str, dict[str, Any]]] = [
    ("ials", {"factors": 6, "regularization": 2.0, "blend": "gf-cf(rank=8)+ease(l2=20)", "blend_weights": "0.6+0.4"}),
    ("popularity", {"blend": "item-knn", "blend_weights": 0.5}),
    ("lightgcn", {"dim": 6, "epochs": 2, "blend": "bspm(rank=8)+popularity", "blend_weights": "0.5+0.3"}),
    ("dgcf", {"dim": 6, "epochs": 2}),
]


@pytest.fixture(scope="module", params=SOLVED, ids=lambda param: param[0])
def trained(request: pytest.FixtureRequest, films: Dataset) -> Recommender:
    """Models of every rule by which users are represented, trained and composed, the last one by default."""
    name, settings = request.param
    return Recommender(name, seed=3, device="cpu", **settings).fit(films)


class TestTrained:
    def test_is_composed(self, trained: Recommender) -> None:
        rule = trained.snapshot.ranking.user_rule
        assert isinstance(rule, BlendedRule)
        assert isinstance(trained.snapshot.ranking, Blend)
        assert np.abs(weights_of(trained.snapshot)).max() > 0

    def test_recommends_by_dense_scores(self, trained: Recommender, films: Dataset) -> None:
        snapshot, scores = trained.snapshot, dense_scores(trained.snapshot)
        table = trained.recommend(films.users.texts, 8)
        for user, name in enumerate(films.users.texts[:40]):
            allowed = np.ones(films.n_items, dtype=bool)
            allowed[snapshot.seen[user]] = False
            expected = best(scores[user], allowed, 8)
            rows = [row for row in table if row["user"] == name]
            assert [row["item"] for row in rows] == [films.items.texts[item] for item in expected]
            np.testing.assert_allclose([row["score"] for row in rows], scores[user, expected], rtol=1e-9)

    def test_batch_equals_single_requests(self, trained: Recommender, films: Dataset, tmp_path: Path) -> None:
        table = trained.recommend(films.users.texts, 8)
        Batch(trained.snapshot, 8, chunk=40).write(tmp_path / "all.parquet")
        rows = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path / 'all.parquet'}')").fetchall()
        assert rows == [tuple(row.values()) for row in table]
        assert list(table) == [row for user in films.users.texts for row in trained.recommend(user, 8)]

    def test_explains_every_recommendation(self, trained: Recommender) -> None:
        for row in trained.recommend(["u00001", "u00017"], 5):
            result = trained.explain(row["user"], row["item"])
            assert result.score == pytest.approx(row["score"], rel=1e-9)
            assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))
            assert any(part.kind == "weights" for part in result.parts)
            assert result.to_dict()["by_kind"]["weights"] == result.by_kind["weights"]

    def test_folds_in_and_explains_a_new_user(self, trained: Recommender, films: Dataset) -> None:
        table = trained.recommend_for(films.items.texts[:4], 5)
        for item, score in zip(table["item"], table["score"], strict=True):
            result = trained.explain_for(films.items.texts[:4], item)
            assert result.score == pytest.approx(score, rel=1e-6)
            assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))

    def test_similar_items_add_weights_to_cosines(self, trained: Recommender, films: Dataset) -> None:
        snapshot = trained.snapshot
        if snapshot.embeddings.dim == 1:
            with pytest.raises(DataError, match="has one number for each item and no similarity between two"):
                trained.similar_items("i00003")
            return
        users, items = snapshot.user_rows.astype(float), snapshot.item_rows.astype(float)
        length = np.linalg.norm(users, axis=1).mean() * np.linalg.norm(items, axis=1).mean()
        unit = items / np.maximum(np.linalg.norm(items, axis=1, keepdims=True), 1e-12)
        scores = unit[3] @ unit.T + weights_of(snapshot)[3] / length
        table = trained.similar_items("i00003", 6)
        assert table["item"] == [films.items.texts[item] for item in best(scores, np.arange(len(items)) != 3, 6)]
        np.testing.assert_allclose(table["score"], np.sort(np.delete(scores, 3))[::-1][:6], rtol=1e-4)

    def test_similar_users_and_new_items_go_by_the_embeddings(self, trained: Recommender) -> None:
        plain = Recommender.of(replace(trained.snapshot, ranking=trained.snapshot.ranking.base))  # type: ignore[attr-defined]
        if trained.snapshot.embeddings.dim > 1:
            assert trained.similar_users("u00003", 6) == plain.similar_users("u00003", 6)
        if trained.snapshot.rule is not None:
            fans = ["u00003", "u00004"]
            assert trained.audience_for(fans, 6) == plain.audience_for(fans, 6)
            assert trained.similar_items_for(fans, 6) == plain.similar_items_for(fans, 6)

    def test_is_the_same_after_saving(self, trained: Recommender, films: Dataset, tmp_path: Path) -> None:
        for name in ("kept", "kept.dgcf"):
            again = load(trained.save(tmp_path / name))
            assert again.get_params() == {**trained.get_params(), "device": "auto", **again.settings}
            assert again.recommend(films.users.texts, 8) == trained.recommend(films.users.texts, 8)
            assert again.recommend_for(["i00001", "i00002"], 5) == trained.recommend_for(["i00001", "i00002"], 5)
            assert again.explain("u00001", "i00002") == trained.explain("u00001", "i00002")

    def test_the_same_training_gives_the_same_file(self, trained: Recommender, films: Dataset, tmp_path: Path) -> None:
        again = Recommender(**trained.get_params()).fit(films)
        one, other = (rec.save(tmp_path / name) for rec, name in ((trained, "1.dgcf"), (again, "2.dgcf")))
        assert one.read_bytes() == other.read_bytes()

    def test_export(self, trained: Recommender, tmp_path: Path) -> None:
        """Arrays are those of the embeddings; an exported recommender is composed."""
        export(trained.snapshot, tmp_path / "arrays")
        np.testing.assert_array_equal(np.load(tmp_path / "arrays" / "items.npy"), trained.snapshot.item_rows)
        export(trained.snapshot, tmp_path / "rec.dgcf")
        assert load(tmp_path / "rec.dgcf").recommend("u00004", 5) == trained.recommend("u00004", 5)


def test_trained_on_everything_with_the_weights_that_validation_chose(films: Dataset) -> None:
    given = {"dim": 6, "blend": "auto"}
    recipe = resolve("lightgcn", dataset=films.name, settings=given, size=Size.of(films))
    watched = train(films, recipe, seed=3, device="cpu", validate=validator(films, recipe.train.metric))
    assert watched.blending is not None
    chosen = watched.blending.settings()
    rec = Recommender("lightgcn", seed=3, device="cpu", **given).fit(films, on="everything")
    settings = rec.snapshot.about["settings"]
    assert {key: settings[key] for key in chosen} == chosen
    assert settings["epochs"] == watched.best_epoch
    assert len(rec.snapshot.train) == len(films.train) + len(films.validation) + len(films.test)
    assert isinstance(rec.snapshot.ranking, Blend)
    assert not same(rec.snapshot, Recommender("lightgcn", seed=3, device="cpu", **given).fit(films).snapshot)


@pytest.mark.parametrize("model", ["ngcf", "gc-mc"])
def test_a_model_without_a_rule_ranks_by_both_and_refuses_the_rest(model: str, tmp_path: Path) -> None:
    snapshot = composed(random_dataset(), model)
    rec = Recommender.of(snapshot)
    scores = dense_scores(snapshot)
    for one in (rec, load(rec.save(tmp_path / "kept.dgcf"))):
        table = one.recommend(2, 4, exclude_seen=False)
        assert table["item"] == best(scores[2], np.ones(11, dtype=bool), 4)
        with pytest.raises(DataError, match="cannot fold in"):
            one.recommend_for([0])
        with pytest.raises(DataError, match="are not sums over linear layers"):
            one.explain(0, 0)


# -- the artefact -----------------------------------------------------------------------------------------------------


def same(one: Snapshot, other: Snapshot) -> bool:
    arrays, others = one.ranking.arrays(), other.ranking.arrays()
    equal = all(
        array.dtype == others[name].dtype and np.array_equal(array, others[name]) for name, array in arrays.items()
    )
    return arrays.keys() == others.keys() and equal and one.train == other.train and one.seen == other.seen


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}


def format_of(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return int(json.loads(archive.read("manifest.json"))["format"])


@given(graphs(), st.sampled_from(MODELS), st.booleans())
def test_every_model_survives_saving(
    tmp_path_factory: pytest.TempPathFactory, dataset: Dataset, chosen: Any, folder: bool
) -> None:
    snapshot = composed(dataset, chosen[0], **chosen[1])
    path = tmp_path_factory.mktemp("a") / ("kept" if folder else "kept.dgcf")
    again = artifact.load(artifact.save(snapshot, path))
    assert same(again, snapshot)
    users = list(range(dataset.n_users))
    assert Recommender.of(again).recommend(users, 4) == Recommender.of(snapshot).recommend(users, 4)


def test_format_is_the_oldest_that_can_hold_the_members(tmp_path: Path) -> None:
    """Earlier versions of dgcf refuse a format that they do not know, and read the others as before."""
    plain = untrained(random_dataset())
    both = with_weights(plain)
    alone = replace(plain, ranking=ItemWeights(plain.train, both.ranking.item_weights), load_layers=None)  # type: ignore[arg-type]
    every = (plain, alone, both, with_weights(plain, prior=True))
    saved = [artifact.save(one, tmp_path / f"{number}.dgcf") for number, one in enumerate(every)]
    assert [format_of(path) for path in saved] == [1, 2, 3, 4]
    kinds = [decode(members_of(path)[WEIGHTS])["indices"].dtype for path in saved[1:]]
    assert kinds == [np.int32, np.uint16, np.uint16]
    assert all(same(artifact.load(path), one) for path, one in zip(saved, every, strict=True))


@pytest.mark.parametrize(("n_items", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_column_indices_are_as_wide_as_they_must_be(n_items: int, dtype: Any, tmp_path: Path) -> None:
    dataset = random_dataset(3, n_items, density=0.001)
    plain = untrained(dataset, "bpr-mf", dim=1)
    last = np.array([0, 255, 2**15, n_items - 1], dtype=np.int32)
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    indptr[2:], indptr[-1] = 4, 8
    weights = SparseWeights(indptr, np.concatenate([last, last]), np.arange(1, 9, dtype=np.float32), n_items)
    snapshot = replace(plain, ranking=Blend(plain.embeddings, plain.train, weights))
    path = artifact.save(snapshot, tmp_path / "large.dgcf")
    assert decode(members_of(path)[WEIGHTS])["indices"].dtype == dtype
    again = artifact.load(path)
    assert same(again, snapshot)
    assert again.ranking.item_weights is not None
    assert again.ranking.item_weights.sum_rows(np.array([1, n_items - 1]))[n_items - 1] == 4 + 8


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, Path]:
    snapshot = composed(random_dataset(4, 5), layers=1, dim=2)
    return snapshot, artifact.save(snapshot, tmp_path_factory.mktemp("small") / "small.dgcf")


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: {**a, "values": a["values"][:-1]}, "values has the shape"),
        (lambda a: {**a, "values": np.full_like(a["values"], np.nan)}, "not finite"),
        (lambda a: {**a, "values": np.full_like(a["values"], 3e38)}, "not finite, or beyond"),
        (lambda a: {**a, "values": a["values"].astype(np.int32)}, "int32, expected float32"),
        (lambda a: {**a, "indices": a["indices"] + np.uint16(4)}, "indices are not item indices below 5"),
        (lambda a: {**a, "indices": a["indices"] - np.uint16(1)}, "indices are not item indices below 5"),
        (lambda a: {**a, "indices": a["indices"].astype(np.int32) - 5}, "indices are not item indices below 5"),
        (lambda a: {**a, "indices": a["indices"][::-1].copy()}, "indices are not ascending"),
        (lambda a: {**a, "indices": a["indices"].astype(np.int64)}, "int64, expected int32"),
        (lambda a: {**a, "indices": a["indices"].astype(np.uint8)}, "uint8, expected int32"),
        (lambda a: {**a, "indices": a["indices"][:-1]}, "indptr does not give each row a place"),
        (lambda a: {**a, "indptr": a["indptr"][:-1]}, "indptr does not give each row a place"),
        (lambda a: {**a, "indptr": np.append(a["indptr"], a["indptr"][-1:])}, "indptr does not give each row a place"),
        (lambda a: {**a, "indptr": a["indptr"].astype(np.int32)}, "int32, expected int64"),
        (lambda a: {name: a[name] for name in ("indptr", "values")}, "there is no array indices"),
        (lambda a: {name: a[name] for name in ("indices", "values")}, "values has the shape"),
        (lambda a: {"values": np.zeros((5, 5), np.float32)}, r"beside embeddings\.safetensors is dense, expected spar"),
        (lambda a: {}, "there is no array values"),
    ],
)
def test_weights_of_another_form_are_refused(
    change: Change, reason: str, small: tuple[Snapshot, Path], tmp_path: Path
) -> None:
    """With checksums that fit, as an attacker would write them."""
    members = members_of(small[1])
    path = tmp_path / "crafted.dgcf"
    container.write(path, {**members, WEIGHTS: encode(change(dict(decode(members[WEIGHTS]))))})
    with pytest.raises(ArtifactError, match=reason) as caught:
        artifact.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_int32_indices_are_read_too(small: tuple[Snapshot, Path], tmp_path: Path) -> None:
    members = members_of(small[1])
    arrays = dict(decode(members[WEIGHTS]))
    arrays["indices"] = arrays["indices"].astype(np.int32)
    path = container.write(tmp_path / "wide.dgcf", {**members, WEIGHTS: encode(arrays)})
    assert same(artifact.load(path), small[0])


def test_any_flipped_byte_of_the_weights_is_refused(small: tuple[Snapshot, Path], tmp_path: Path) -> None:
    folder = artifact.save(small[0], tmp_path / "kept")
    content = (folder / WEIGHTS).read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (folder / WEIGHTS).write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"weights\.safetensors does not match its checksum"):
            artifact.load(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ArtifactError, match=r"there is no weights\.safetensors|weights\.safetensors"):
        artifact.load(folder)
    (folder / WEIGHTS).write_bytes(content)
    assert same(artifact.load(folder), small[0])


def test_embeddings_alone_are_another_recommender(small: tuple[Snapshot, Path], tmp_path: Path) -> None:
    """Leaving out the weights in a crafted file gives the ranking of the embeddings, never a wrong composition."""
    members = members_of(small[1])
    del members[WEIGHTS]
    again = artifact.load(container.write(tmp_path / "plain.dgcf", members))
    assert isinstance(again.ranking, Embeddings)
    np.testing.assert_array_equal(again.item_rows, small[0].item_rows)


def test_pairs_of_other_items_do_not_load(small: tuple[Snapshot, Path], tmp_path: Path) -> None:
    """Weights of an artefact with another number of items."""
    other = artifact.save(composed(random_dataset(4, 6), layers=1, dim=2), tmp_path / "other.dgcf")
    members = {**members_of(small[1]), WEIGHTS: members_of(other)[WEIGHTS]}
    with pytest.raises(ArtifactError, match="indptr does not give each row a place"):
        artifact.load(container.write(tmp_path / "mixed.dgcf", members))

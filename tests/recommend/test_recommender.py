"""The recommender from Python: fitting, requests, refusals, cloning."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dgcf.data import Dataset
from dgcf.errors import ConfigError, DataError, NotFittedError
from dgcf.recommend import Recommender
from tests.recommend.conftest import random_dataset, untrained


def likes(dataset: Dataset, user: str) -> set[str]:
    index = dataset.users.index_of(user)
    pairs = dataset.train.union(dataset.validation, dataset.test)
    return {dataset.items.texts[item] for item in pairs[index]}


# -- recommendations ------------------------------------------------------------------------------------------------


def test_known_user_gets_unseen_items_of_own_tastes(fitted: Recommender, films: Dataset) -> None:
    """Planted tastes: what is recommended is of the two genres that the user took most, not by chance (a quarter)."""
    right = []
    for user in films.users.texts[:60]:
        table = fitted.recommend(user, 5)
        assert table.columns == ["user", "item", "rank", "score", "title"]
        assert table["rank"] == [1, 2, 3, 4, 5]
        assert table["score"] == sorted(table["score"], reverse=True)
        assert not set(table["item"]) & likes(films, user)
        genres = [films.items.title_of(films.items.index_of(item))[-7:] for item in likes(films, user)]
        favourites = sorted(set(genres), key=genres.count)[-2:]
        right += [title[-7:] in favourites for title in table["title"]]
    assert np.mean(right) > 0.6


def test_list_is_empty_with_note_if_user_has_all_allowed_items(fitted: Recommender, films: Dataset) -> None:
    table = fitted.recommend("u00000", 5, only=likes(films, "u00000"))
    assert list(table["item"]) == []
    assert "only 0 items are left" in table.notes[0]


def test_seen_items_are_recommended_on_request(fitted: Recommender, films: Dataset) -> None:
    table = fitted.recommend("u00000", 160, exclude_seen=False)
    assert set(table["item"]) == set(films.items.texts)
    assert fitted.recommend("u00000", 160)["item"] == [i for i in table["item"] if i not in likes(films, "u00000")]


def test_only_and_exclude(fitted: Recommender, films: Dataset) -> None:
    everything = fitted.recommend("u00001", 160)["item"]
    some = everything[10:30:3]
    assert fitted.recommend("u00001", 160, only=some)["item"] == some
    assert fitted.recommend("u00001", 160, exclude=some)["item"] == [i for i in everything if i not in some]
    assert fitted.recommend("u00001", 2, only=some, exclude=some[0])["item"] == some[1:3]


def test_many_users_equal_single_calls(fitted: Recommender) -> None:
    users = ["u00005", "u00001", "u00005", "u00099"]
    table = fitted.recommend(users, 4)
    singles = [fitted.recommend(user, 4) for user in users]
    for name in table.columns:
        assert table[name] == [value for single in singles for value in single[name]]


def test_torch_ranks_the_same(fitted: Recommender, films: Dataset) -> None:
    users = films.users.texts
    assert fitted.recommend(users, 7, device="cpu") == fitted.recommend(users, 7)


def test_note_if_fewer_than_k_items_are_left(fitted: Recommender, films: Dataset) -> None:
    left = 160 - len(likes(films, "u00002"))
    table = fitted.recommend("u00002", 500)
    assert len(table) == left
    assert table.notes == (f"k is 500, but only {left} items are left; the list is shorter.",)
    assert fitted.recommend("u00002", left).notes == ()


def test_scores_of_pairs(fitted: Recommender) -> None:
    table = fitted.recommend("u00003", 6)
    np.testing.assert_array_equal(fitted.score("u00003", table["item"]), table["score"])
    pairs = fitted.score(["u00001", "u00002"], ["i00001", "i00002"])
    assert pairs.tolist() == [fitted.score("u00001", "i00001")[0], fitted.score("u00002", "i00002")[0]]
    with pytest.raises(DataError, match="2 users cannot be paired with 3 items"):
        fitted.score(["u00001", "u00002"], ["i00001", "i00002", "i00003"])


# -- new users ------------------------------------------------------------------------------------------------------


def test_new_user_gets_items_of_same_taste(fitted: Recommender, films: Dataset) -> None:
    """A new user with films of one genre gets that genre."""
    titles = films.items.titles
    assert titles is not None
    noir = [title for title in titles if title.endswith("(Noir)")][:5]
    table = fitted.recommend_for(noir, 5)
    assert table["user"] == [None] * 5
    assert not set(table["title"]) & set(noir)
    assert sum(title.endswith("(Noir)") for title in table["title"]) >= 4


def test_folded_in_known_user_gets_nearly_same_ranking(fitted: Recommender, films: Dataset) -> None:
    overlap = []
    for user in range(60):
        items = [films.items.texts[item] for item in films.train[user]]
        trained = fitted.recommend(films.users.texts[user], 10)["item"]
        folded = fitted.recommend_for(items, 40)["item"]
        seen = likes(films, films.users.texts[user])
        overlap.append(len(set(trained) & set([i for i in folded if i not in seen][:10])) / 10)
    assert np.mean(overlap) > 0.7


def test_new_interactions_of_a_known_user(fitted: Recommender, films: Dataset) -> None:
    """Nothing new changes nothing; something new is no longer recommended and moves the scores."""
    user = "u00007"
    mine = [films.items.texts[item] for item in films.train[films.users.index_of(user)]]
    before = fitted.recommend(user, 20)
    same = fitted.recommend_for(mine[:1], 20, user=user)
    assert same["item"] == before["item"]
    assert same["user"] == [user] * 20
    np.testing.assert_allclose(same["score"], before["score"], rtol=1e-4)
    new = before["item"][:2]
    after = fitted.recommend_for(new, 20, user=user)
    assert not set(after["item"]) & set(new)
    assert not np.allclose(after["score"][:18], before["score"][2:], rtol=1e-4)


def test_new_item_gets_similar_items_and_audience(fitted: Recommender, films: Dataset) -> None:
    """An existing film folded in as new by its users: itself among the similar items, and other users as audience."""
    item = int(np.argmax(films.train.item_degrees))
    takers = [films.users.texts[user] for user in films.train.user_idx[films.train.indices == item]]
    like = fitted.similar_items_for(takers, 3)
    assert films.items.texts[item] in like["item"]
    audience = fitted.audience_for(takers, 10)
    assert audience.columns == ["new", "user", "rank", "score"]
    assert not set(audience["user"]) & set(takers)


def test_similarity_is_the_cosine(fitted: Recommender) -> None:
    known = fitted.snapshot
    rows = known.item_rows.astype(float) / np.linalg.norm(known.item_rows, axis=1, keepdims=True)
    cosines = rows @ rows[3]
    cosines[3] = -2
    best = np.argsort(-cosines, kind="stable")[:5]
    table = fitted.similar_items("i00003", 5)
    assert table["item"] == [known.items.texts[i] for i in best]
    np.testing.assert_allclose(table["score"], cosines[best], atol=1e-6)
    assert fitted.similar_users("u00003", 2).columns == ["of_user", "user", "rank", "score"]


# -- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rec: rec.recommend("u0000", 3), "unknown user 'u0000' among 150; did you mean 'u00"),
        (lambda rec: rec.recommend_for([], 3), "the list of items is empty; give at least one item"),
        (lambda rec: rec.recommend_for(["no such film"], 3), "no item has the id or the title 'no such film'"),
        (lambda rec: rec.recommend_for(["Noir"], 3), "'Noir' matches 20 titles"),
        (lambda rec: rec.recommend("u00000", 0), "k is 0; give a whole number from 1 on"),
        (lambda rec: rec.recommend("u00000", 2.5), "k is 2.5; give a whole number"),
        (lambda rec: rec.recommend("u00000", only=[]), "the list of items is empty"),
        (lambda rec: rec.recommend(3.5), "3.5 is no id"),
        (lambda rec: rec.audience_for([]), "the list of users is empty"),
        (lambda rec: rec.similar_items([]), "the list of items is empty; give at least one item"),
        (lambda rec: rec.similar_users([]), "the list of users is empty; give at least one user"),
        (lambda rec: rec.recommend("u00000", device="nowhere"), "device 'nowhere' cannot be used here"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(fitted: Recommender, call: Any, message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message) as caught:
        call(fitted)
    assert "\n" not in str(caught.value)


def test_repeated_item_counts_once_with_note(fitted: Recommender) -> None:
    table = fitted.recommend_for(["i00001", "i00002", "i00001"], 3)
    assert table["item"] == fitted.recommend_for(["i00002", "i00001"], 3)["item"]
    assert len(table.notes) == 1
    assert "was given more than once and counts once" in table.notes[0]


def test_items_without_training_pairs_are_refused() -> None:
    dataset = random_dataset(4, 6, seed=1, density=0.3)
    rec = Recommender.of(untrained(dataset))
    nobody = int(np.flatnonzero(dataset.train.item_degrees == 0)[0])
    with pytest.raises(DataError, match="no user has any of these items in training"):
        rec.recommend_for([nobody])


def test_unfitted_recommender_raises_not_fitted() -> None:
    rec = Recommender()
    for call in (lambda: rec.recommend(1), lambda: rec.save("x"), lambda: rec.explain(1, 2)):
        with pytest.raises(NotFittedError, match="call fit"):
            call()
    assert "not fitted" in repr(rec)


# -- an estimator ---------------------------------------------------------------------------------------------------


def test_get_and_set_params() -> None:
    rec = Recommender("lightgcn", layers=2, dim=8, seed=3)
    wanted = {"model": "lightgcn", "preset": "default", "seed": 3, "device": "auto", "layers": 2, "dim": 8}
    assert rec.get_params().items() >= wanted.items()
    again = Recommender(**rec.get_params())
    assert again.get_params() == rec.get_params()
    assert again.set_params(dim=4, seed=5) is again
    assert again.get_params() == rec.get_params() | {"dim": 4, "seed": 5}
    assert rec.get_params().items() >= wanted.items()


def test_sklearn_clone(fitted: Recommender) -> None:
    sklearn = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    copy = sklearn.clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not copy.__sklearn_is_fitted__()


def test_misspelt_setting_is_refused_before_reading_data() -> None:
    with pytest.raises(ConfigError, match="no setting 'layrs'; did you mean 'layers'"):
        Recommender("dgcf", layrs=3)
    with pytest.raises(ConfigError, match="on is 'all', expected 'train' or 'everything'"):
        Recommender().fit("no-such-data.csv", on="all")  # type: ignore[arg-type]


def test_same_seed_gives_same_recommender(films: Dataset) -> None:
    def one(seed: int) -> Recommender:
        return Recommender("dgcf", layers=1, dim=4, epochs=2, seed=seed, device="cpu").fit(films)

    users = films.users.texts
    assert one(0).recommend(users, 3) == one(0).recommend(users, 3)
    assert one(0).recommend(users, 3) != one(1).recommend(users, 3)


def test_refit_replaces_old_data(films: Dataset) -> None:
    rec = Recommender("lightgcn", layers=1, dim=4, epochs=1, device="cpu").fit(films)
    rec.recommend("u00000", 1)
    rec.recommend_for("i00001", 1)
    rec.fit(random_dataset(5, 5, density=0.9))
    assert rec.recommend(0, 1)["user"] == [0]
    assert rec.recommend_for(1, 1)["item"][0] in range(5)


def test_fit_accepts_frames_and_matrices() -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    met = rng.random((12, 9)) < 0.6
    users, items = np.nonzero(met)
    settings: dict[str, Any] = {"layers": 1, "dim": 4, "epochs": 2, "device": "cpu"}
    frame = pd.DataFrame({"user": [f"ü{u}" for u in users], "item": items})
    rec = Recommender(**settings).fit(frame)
    table = rec.recommend("ü3", 2)
    assert table["user"] == ["ü3"] * 2
    assert all(isinstance(item, int) for item in table["item"])
    assert len(Recommender(**settings).fit(scipy.sparse.csr_array(met.astype(float))).recommend(3, 2)) == 2


def test_fit_on_everything(films: Dataset) -> None:
    """All pairs become edges; epochs are as given, or as many as were best on the split."""
    rec = Recommender("lightgcn", layers=1, dim=8, epochs=3, device="cpu").fit(films, on="everything")
    assert len(rec.snapshot.train) == len(films.train) + len(films.validation) + len(films.test)
    assert rec.snapshot.about["epochs"] == 3
    settings: dict[str, Any] = {"layers": 1, "dim": 8, "device": "cpu", "learning_rate": 0.05}
    settings |= {"evaluate_every": 1, "min_epochs": 0, "patience": 2}
    split = Recommender("lightgcn", **settings).fit(films)
    whole = Recommender("lightgcn", **settings).fit(films, on="everything")
    assert whole.snapshot.about["epochs"] == split.snapshot.about["epochs"]
    assert split.snapshot.about["metrics"]["recall@20"] > 0
    assert whole.snapshot.about["metrics"] == {}


@pytest.mark.parametrize("module", ["recommender", "table", "lookup"])
def test_examples_in_docstrings_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"dgcf.recommend.{module}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_recency_uses_times_of_a_frame() -> None:
    """Each user begins with items of one kind and goes on with another: what is recent says what comes next."""
    rng = np.random.default_rng(0)
    kinds = [(0, 1) if user % 2 else (1, 0) for user in range(60)]
    lists = [[20 * kind + item for kind in both for item in rng.choice(20, 8, replace=False)] for both in kinds]
    rows = [(user, item, time) for user, items in enumerate(lists) for time, item in enumerate(items)]
    frame = pd.DataFrame(rows, columns=["user", "item", "timestamp"])

    def late_share(recency: float) -> float:
        rec = Recommender("bpr-mf", dim=16, epochs=60, learning_rate=0.02, device="cpu", recency=recency)
        table = rec.fit(frame, on="everything").recommend([str(user) for user in range(60)], k=5).to_pandas()
        return float((table["item"].astype(int) // 20 == table["user"].astype(int) % 2).mean())

    assert late_share(3.0) > late_share(0.0) + 0.15
    with pytest.raises(DataError, match="the DataFrame has no timestamp column, so that there is no order to keep"):
        Recommender("bpr-mf", recency=1.0).fit(frame[["user", "item"]])

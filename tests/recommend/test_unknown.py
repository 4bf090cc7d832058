"""Unknown users and items, several users, and several lists of items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgcf.data import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.recommend import Recommender, answers
from tests.recommend.conftest import random_dataset, untrained


def most_popular(films: Dataset, without: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    degrees = films.train.item_degrees
    order = sorted(range(films.n_items), key=lambda item: (-degrees[item], item))
    return [films.items.texts[item] for item in order if films.items.texts[item] not in without]


def test_unknown_users_are_refused_skipped_or_get_popular_items(fitted: Recommender, films: Dataset) -> None:
    users = ["u00003", "nobody", "u00001", "no one", "u00003"]
    with pytest.raises(DataError, match="unknown user 'nobody' among 150"):
        fitted.recommend(users, 4)
    skipped = fitted.recommend(users, 4, unknown="skip")
    known = fitted.recommend(["u00003", "u00001", "u00003"], 4)
    assert list(skipped) == list(known)
    assert skipped.notes == ("2 users are unknown and left out: 'nobody', 'no one'.",)
    table = fitted.recommend(users, 4, unknown="popular")
    lists = [[row["item"] for row in table][start : start + 4] for start in range(0, 20, 4)]
    popular = most_popular(films)[:4]
    assert lists == [known["item"][:4], popular, known["item"][4:8], popular, known["item"][8:]]
    assert table["user"] == [user for user in users for _ in range(4)]
    assert table["score"][4:8] == [float(degree) for degree in sorted(films.train.item_degrees, reverse=True)[:4]]
    assert table.notes == ("2 users are unknown and given popular items: 'nobody', 'no one'.",)
    assert fitted.recommend(users, 4, unknown="popular", device="cpu") == table


def test_unknown_users_alone(fitted: Recommender, films: Dataset) -> None:
    assert fitted.recommend("nobody", 3, unknown="popular")["item"] == most_popular(films)[:3]
    assert list(fitted.recommend(["nobody"], 3, unknown="skip")) == []
    with pytest.raises(ConfigError, match="unknown is 'popula', expected one of raise, skip, popular; did you mean"):
        fitted.recommend("u00001", unknown="popula")  # type: ignore[arg-type]


def test_rules_hold_for_unknown_users(fitted: Recommender, films: Dataset) -> None:
    best = most_popular(films)
    table = fitted.recommend("nobody", 3, unknown="popular", only=best[2:9], exclude=best[3], boost={best[8]: 5})
    assert table["item"] == [best[8], best[2], best[4]]
    varied = fitted.recommend("nobody", 3, unknown="popular", mmr=0.9)
    assert varied["item"][0] == best[0]
    assert varied["item"] != best[:3]


def test_integer_ids_may_be_unknown() -> None:
    rec = Recommender.of(untrained(random_dataset(4, 6)))
    table = rec.recommend(np.array([2, 99]), 2, unknown="popular")
    assert table["user"] == [2, 2, 99, 99]
    assert rec.recommend([2, 99], 2, unknown="skip")["user"] == [2, 2]


def test_several_lists_equal_single_ones(fitted: Recommender) -> None:
    lists = [["i00001", "i00002"], ["i00007"], ("i00003", "i00001")]
    table = fitted.recommend_for(lists, 4)
    assert table.columns == ["list", "item", "rank", "score", "title"]
    assert table["list"] == [number for number in range(3) for _ in range(4)]
    for name in ("item", "rank", "score", "title"):
        assert table[name] == [value for items in lists for value in fitted.recommend_for(items, 4)[name]]
    assert fitted.recommend_for([["i00001"]], 4)["list"] == [0] * 4
    assert fitted.recommend_for("i00001", 4)["item"] == fitted.recommend_for(["i00001"], 4)["item"]
    assert fitted.recommend_for(np.array(["i00001", "i00002"]), 4) == fitted.recommend_for(["i00001", "i00002"], 4)
    ruled = fitted.recommend_for(lists, 4, exclude=table["item"][0], mmr=0.3)
    assert table["item"][0] not in ruled["item"]


@pytest.mark.parametrize(
    ("items", "words", "sentence"),
    [
        ([["i00001"], "i00002"], {}, "some of the items are lists and some are not"),
        ([["i00001"], []], {}, "the list of items is empty"),
        ([["i00001"]], {"user": "u00001"}, "several lists of items were given for user 'u00001'"),
        (["i00001", "new"], {}, "no item has the id or the title 'new'"),
        (["i00001"], {"unknown": "drop"}, "unknown is 'drop', expected one of raise, skip, popular"),
    ],
    ids=["mixed", "empty", "known-user", "unknown", "bad-word"],
)
def test_bad_lists_are_refused(fitted: Recommender, items: Any, words: dict[str, Any], sentence: str) -> None:
    with pytest.raises((DataError, ConfigError), match=sentence):
        fitted.recommend_for(items, 3, **words)


def test_unknown_items_are_ignored_on_request(fitted: Recommender, films: Dataset) -> None:
    plain = fitted.recommend_for(["i00001", "i00002"], 4)
    title = films.items.title_of(films.items.index_of("i00002"))
    for unknown in ("skip", "popular"):
        table = fitted.recommend_for(["i00001", "new", title], 4, unknown=unknown)  # type: ignore[arg-type]
        assert list(table) == list(plain)
        assert table.notes == ("1 item is unknown and ignored: 'new'.",)
    lists = [["new"], ["i00001"], ["newer", "newest"]]
    skipped = fitted.recommend_for(lists, 3, unknown="skip")
    assert skipped["list"] == [1, 1, 1]
    assert "so nothing is known of them; the list is left out." in skipped.notes[1]
    popular = fitted.recommend_for(lists, 3, unknown="popular")
    assert popular["list"] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert popular["item"][:3] == popular["item"][6:] == most_popular(films)[:3]
    with pytest.raises(DataError, match="matches 20 titles"):
        fitted.recommend_for(["Noir"], 3, unknown="skip")


def test_items_that_nobody_has_are_not_recommended_back() -> None:
    """They are known, but not in training: popular items are recommended, without those given."""
    dataset = random_dataset(5, 7, seed=3, density=0.15)
    nobodys = np.flatnonzero(dataset.train.item_degrees == 0).tolist()
    rec = Recommender.of(untrained(dataset))
    assert nobodys
    with pytest.raises(DataError, match="so nothing is known of them; give others"):
        rec.recommend_for(nobodys)
    table = rec.recommend_for(nobodys, 7, unknown="popular")
    assert sorted(table["item"]) == sorted(set(range(7)) - set(nobodys))


def test_answers_for_several_and_unknown_users(fitted: Recommender, films: Dataset) -> None:
    answer = answers.recommend_users(fitted, ["u00002", "nobody", "u00002"], k=2, unknown="popular", why=True)
    assert [user["user"] for user in answer["users"]] == ["u00002", "nobody"]
    alone = answers.recommend(fitted, user="u00002", k=2, why=True)
    assert answer["users"][0] == {"user": "u00002", "recommendations": alone["recommendations"]}
    best = most_popular(films)[0]
    count = films.train.item_degrees[films.items.index_of(best)]
    title = films.items.title_of(films.items.index_of(best))
    assert answer["users"][1]["recommendations"][0]["why"] == f"{title}: {count} users have it."
    skipped = answers.recommend_users(fitted, ["u00002", "nobody"], k=2, unknown="skip")
    assert [user["user"] for user in skipped["users"]] == ["u00002"]
    assert answers.recommend(fitted, user="nobody", unknown="skip")["recommendations"] == []
    new = answers.recommend(fitted, items=["i00001", "new"], k=2, unknown="skip", why=True)
    assert [item["item"] for item in new["items"]] == ["i00001"]
    nothing = answers.recommend(fitted, items=["new"], k=1, unknown="popular", why=True)
    assert nothing["recommendations"][0]["why"] == f"{title}: {count} users have it."

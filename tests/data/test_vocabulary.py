"""Vocabulary: ids round-trip and have a fixed order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError

raw_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(raw_ids, min_size=1, max_size=40))
def test_ids_round_trip(ids: list[str]) -> None:
    vocabulary = Vocabulary.from_ids("user", ids)
    assert sorted(vocabulary) == sorted(set(ids))
    for raw in ids:
        assert vocabulary.id_of(vocabulary.index_of(raw)) == raw


@given(st.sets(st.integers(0, 10**25), min_size=1, max_size=40))
def test_numeric_ids_are_in_numeric_order(numbers: set[int]) -> None:
    assert list(Vocabulary.from_ids("item", map(str, numbers))) == [str(number) for number in sorted(numbers)]
    assert list(Vocabulary.from_ids("item", numbers, "integer")) == sorted(numbers)


@given(st.lists(raw_ids, min_size=1, max_size=30, unique=True), st.data())
def test_take_returns_the_vocabulary_of_a_subset(ids: list[str], data: st.DataObject) -> None:
    vocabulary = Vocabulary.from_ids("user", ids).with_titles({raw: raw * 2 for raw in ids[::2]})
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(ids))))))
    taken = vocabulary.take(np.array(chosen, dtype=np.int64))
    assert taken.texts == [vocabulary.texts[index] for index in chosen]
    assert [taken.title_of(place) for place in range(len(taken))] == [vocabulary.title_of(index) for index in chosen]


def test_leading_zeros_and_types_are_kept() -> None:
    assert list(Vocabulary.from_ids("user", ["007", "7"])) == ["7", "007"]
    typed = Vocabulary.from_ids("user", [7], "integer")
    assert typed.id_of(0) == 7
    assert typed.index_of("7") == typed.index_of(7) == 0


def test_unknown_id_suggests_the_nearest_or_examples() -> None:
    vocabulary = Vocabulary.from_ids("user", ["alice", "bob"])
    with pytest.raises(DataError, match=r"unknown user 'alise' among 2; did you mean 'alice'\?"):
        vocabulary.index_of("alise")
    with pytest.raises(
        DataError, match=r"unknown user '99' among 2; give an id as in the training data, such as bob, alice\."
    ):
        vocabulary.index_of("99")
    assert "alice" in vocabulary
    assert "alise" not in vocabulary


def test_more_ids_at_the_end_equal_a_vocabulary_made_of_all() -> None:
    known = Vocabulary.from_ids("item", ["b", "a", "ü"])
    for more in ({}, {"zz": ""}, {"c": "A title", "Ω 1": ""}):
        wider = known.with_more(more)
        titles = ["", "", "", *more.values()] if any(more.values()) else None
        anew = Vocabulary.from_sorted("item", [*known.texts, *more], titles=titles)
        assert wider == anew
        assert (wider.blob.tobytes(), wider.offsets.tolist()) == (anew.blob.tobytes(), anew.offsets.tolist())
        assert [wider.index_of(item) for item in wider.texts] == list(range(len(wider)))
        assert len(known) == 3
        assert not any(item in known for item in more)
    titled = known.with_titles({"a": "First"}).with_more({"c": ""})
    assert titled.titles == ("First", "", "", "")
    for wrong in ("a", ""):
        with pytest.raises(ValueError, match="known already, or empty"):
            known.with_more({wrong: ""})

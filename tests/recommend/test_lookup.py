"""Lookup of names: ids first, then titles in several spellings, and a hint if nothing matches."""

from __future__ import annotations

import pytest

from dgcf.data import Vocabulary
from dgcf.errors import DataError
from dgcf.recommend.lookup import Names, bare

TITLES = {
    "1": "Toy Story (1995)",
    "2": "Toy Story 2 (1999)",
    "3": "Lion King, The (1994)",
    "4": "Sabrina (1954)",
    "5": "Sabrina (1995)",
    "6": "Aladdin (1992)",
    "7": "Aladdin and the King of Thieves (1996)",
    "8": "Amélie (2001)",
    "9": "1",
    "10": "",
    "11": "Postino, Il (1994)",
    "12": "???",
    "13": "Lion King II: Simba's Pride, The (1998)",
}
names = Names(Vocabulary.from_ids("item", TITLES).with_titles(TITLES))


def resolve(name: str | int) -> str:
    return names.vocabulary.texts[names.find(name)]


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("6", "6"),
        (6, "6"),
        ("1", "1"),  # an id before a title
        ("Toy Story (1995)", "1"),
        ("toy story (1995)", "1"),
        ("Toy Story", "1"),  # not its sequel, which only contains it
        ("toy story 2", "2"),
        ("Lion King", "3"),
        ("The Lion King", "3"),
        ("lion king, the", "3"),
        ("Aladdin", "6"),
        ("king of thieves", "7"),
        ("amelie", "8"),
        ("Il Postino", "11"),
        ("Sabrina (1995)", "5"),
        ("???", "12"),
    ],
)
def test_name_is_resolved(name: str | int, item: str) -> None:
    assert resolve(name) == item


def test_ambiguous_title_lists_the_matches() -> None:
    with pytest.raises(
        DataError, match=r"'Sabrina' matches 2 titles: 'Sabrina \(1954\)', 'Sabrina \(1995\)'; give one"
    ):
        resolve("Sabrina")
    with pytest.raises(DataError, match="'story' matches 2 titles"):
        resolve("story")


@pytest.mark.parametrize(
    ("name", "near"), [("Toy Stroy", r"did you mean 'Toy Story \(1995\)'"), ("Alladin", r"did you mean 'Aladdin \(19")]
)
def test_nearest_title_is_suggested(name: str, near: str) -> None:
    with pytest.raises(DataError, match=near):
        resolve(name)


@pytest.mark.parametrize("name", ["qqqqqqqq", "", "()", "%"])
def test_unknown_name_is_reported_in_one_sentence(name: str) -> None:
    with pytest.raises(DataError, match=r"no item has the id or the title '.*'\.$"):
        resolve(name)


def test_nearest_id_is_suggested_without_titles() -> None:
    plain = Names(Vocabulary.from_ids("user", ["anna", "berta"]))
    assert plain.find("anna") == 0
    with pytest.raises(DataError, match="unknown user 'ana' among 2; did you mean 'anna'"):
        plain.find("ana")


def test_bare_titles() -> None:
    assert bare("Good, the Bad and the Ugly, The (1966)") == "the good the bad and the ugly"
    assert bare("2001: A Space Odyssey (1968)") == "2001 a space odyssey"
    assert bare("Nausicaä") == "nausicaa"

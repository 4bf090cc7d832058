"""Search of items against a filter of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dgcf.recommend.lookup import bare
from dgcf.serve.engine.search import Lines
from tests.serve.engines import Running, trained

TITLES = {
    "i00003": "The Lion King (1994)",
    "i00010": "Lion, The",
    "i00020": "Café <b>Müller</b>",
    "i00021": "i00004 is not my id",
    "i00030": "",
    "a new item": "A lion is new",
    "i000": "a prefix",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("search")
    trained("composed").save(folder / "model.dgcf")
    with Running(folder / "model.dgcf", folder / "data") as running:
        for item, title in TITLES.items():
            running.put(item, title=title or None)
        running.add("somebody", "without a record")
        yield running


def by_hand(query: str) -> list[str]:
    """The ids of the items that match, popular ones first, new ones last."""
    snapshot = trained("composed").snapshot
    titles = dict(zip(snapshot.items.texts, snapshot.items.titles or (), strict=True))
    titles.update({item: title for item, title in TITLES.items() if title})
    titles.setdefault("without a record", "")
    degrees = dict(zip(snapshot.items.texts, snapshot.train.item_degrees.tolist(), strict=True))
    order = sorted(snapshot.items.texts, key=lambda item: (-degrees[item], snapshot.items.index_of(item)))
    order += sorted(set(titles) - set(order))
    words = bare(query).split()
    return [
        item
        for item in order
        if item.startswith(query.strip()) or (words and all(f" {word}" in f" {bare(titles[item])}" for word in words))
    ]


def found(running: Running, query: str, limit: int) -> list[str]:
    items, cursor = list[str](), None
    while True:
        page = running(running.engine.items(query, cursor, limit))
        assert len(page["items"]) <= limit
        items += [row["item"] for row in page["items"]]
        cursor = page["next"]
        if cursor is None:
            return items


QUERIES = ["", "lion", "king lion", "LION", "muller", "<b>", "i0000", "i00004", "i000", "li", "ion", "new", "a", "?"]
QUERIES += ["the", "no such title", " lion ", "without", "\n", "comedy", "film 3"]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("limit", [3, 1000])
def test_search_equals_a_filter_of_all_items(running: Running, query: str, limit: int) -> None:
    assert found(running, query, limit) == by_hand(query)


def test_title_of_the_training_is_found_again_after_its_record_is_deleted(running: Running) -> None:
    title = trained("composed").snapshot.items.title_of(5)
    item = trained("composed").snapshot.items.texts[5]
    assert item in found(running, title, 50)
    running.put(item, title="Entirely different")
    assert item not in found(running, title, 50)
    assert found(running, "entirely different", 50) == [item]
    running.store.delete_item(item).result(10)
    assert item in found(running, title, 50)
    assert found(running, "entirely different", 50) == []


def test_lines_are_found_at_their_places() -> None:
    lines = Lines(["", " one two", " two", "", " twofold two", ""])
    assert list(lines.find(" two", 0)) == [1, 2, 4]
    assert list(lines.find(" two", 2)) == [2, 4]
    assert list(lines.find("\n two", 0)) == [2, 4]
    assert list(lines.find("\n", 0)) == [0, 1, 2, 3, 4, 5]
    assert list(lines.find("x", 0)) == []
    assert list(Lines([]).find("a", 0)) == []

"""What an export of vectors consists of, and the protocol that every target follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Rows, Side
from dgcf.ranking.blend import Blend, with_column
from dgcf.recommend.snapshot import Snapshot

IndexKind = Literal["flat", "hnsw", "ivf"]
"""``flat`` compares all vectors and is exact; the others are approximate."""
Search = Callable[[Sequence[int], int], list[list[RawId]]]
"""Returns the ids of the k items that the target ranks first for each user, by the vectors stored there."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Users and items as vectors whose inner product is a score, with what is stored beside each item.

    ``rows``: (n, dim) float32 of each side; ``attributes``: a JSON object for each item, or None. ``scores`` says what
    an inner product is, ``lost`` which part of the model's scores it lacks (None for none of them).
    """

    vocabularies: Mapping[Side, Vocabulary]
    rows: Mapping[Side, Rows]
    attributes: Sequence[Mapping[str, Any]] | None
    scores: str
    lost: str | None

    @property
    def dim(self) -> int:
        return int(self.rows["item"].shape[1])

    def ids(self, side: Side) -> list[RawId]:
        return list(self.vocabularies[side])

    def title(self, side: Side, index: int) -> str | None:
        """Return the title of a user or an item, or None if it has none."""
        titles = self.vocabularies[side].titles
        return (titles[index] or None) if titles else None

    def payload(self, side: Side, index: int) -> dict[str, Any]:
        """Return what is stored beside a vector: ``id``, and ``title`` and ``attributes`` where they are known."""
        title = self.title(side, index)
        known = {"id": self.vocabularies[side].id_of(index)} | ({} if title is None else {"title": title})
        with_attributes = side == "item" and self.attributes is not None
        return {**known, "attributes": dict(self.attributes[index])} if with_attributes else known  # type: ignore[index]


def vectors_of(snapshot: Snapshot, attributes: Sequence[Mapping[str, Any]] | None = None) -> Vectors:
    """Return the vectors of a model; raise ``DataError`` for one without embeddings.

    A prior of the items is one more number of each vector, so that it is kept. Weights between items are lost.
    """
    users, items = snapshot.user_rows, snapshot.item_rows
    scores = "inner products of the embeddings"
    ranking = snapshot.ranking
    if isinstance(ranking, Blend) and ranking.prior is not None:
        users, items = with_column(users, np.ones(len(users))), with_column(items, ranking.prior)
        scores += ", plus the prior of each item as one more number of its vector"
    lost = None if ranking.item_weights is None else "the sums of weights between items, which are no inner products"
    vocabularies: dict[Side, Vocabulary] = {"user": snapshot.users, "item": snapshot.items}
    return Vectors(vocabularies, {"user": users, "item": items}, attributes, scores, lost)


class Target(Protocol):
    """A place for vectors. ``staged`` writes beside what is there and puts it in place at the end of the block."""

    def staged(self, vectors: Vectors, *, overwrite: bool) -> AbstractContextManager[Search]:
        """Yield a search of what was written; replace the old export when the block ends, unless it raises."""

    def describe(self) -> dict[str, Any]:
        """Return where the export is and how its index is searched, as JSON data without secrets."""


def checked_name(name: str) -> str:
    """Return the name of an export if it can name tables and collections; else raise ``ConfigError``."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--name is {name!r}, expected a lower-case letter or _, followed by at most 39 letters, digits and _."
        )
    return name


def name_of(stem: str) -> str:
    """Return a name of an export that is made of another name."""
    return re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_")[:39].lstrip("0123456789_") or "dgcf"


def checked_index(index: str, offered: Sequence[IndexKind], where: str) -> IndexKind:
    """Return the kind of an index if a target offers it; else raise ``ConfigError``."""
    for kind in get_args(IndexKind):
        if kind == index and kind in offered:
            return kind  # type: ignore[no-any-return]
    raise ConfigError(f"--index is {index!r}, but {where} offers {', '.join(offered)}.")

"""Answers to requests as JSON data, the same for the command line and a service."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.errors import ConfigError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Side
from dgcf.recommend.explain import Explanation
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.table import Table

if TYPE_CHECKING:
    from dgcf.recommend.batch import Update


def recommend(
    rec: Recommender,
    *,
    user: RawId | None = None,
    items: Sequence[RawId] = (),
    k: int = 10,
    exclude_seen: bool = True,
    only: Sequence[RawId] | None = None,
    exclude: Sequence[RawId] | None = None,
    why: bool = False,
) -> dict[str, Any]:
    """Return recommendations for a known ``user``, for a new one with ``items``, or for a known one with new ``items``.

    Restrict to ``only``; never recommend ``exclude``; ``why`` adds the reason of each.
    """
    if items:
        table = rec.recommend_for(items, k, user=user, exclude_seen=exclude_seen, candidates=only, exclude=exclude)
    else:
        table = rec.recommend(_required(user), k, exclude_seen=exclude_seen, items=only, exclude=exclude)
    rows = _ranked(table, "item")
    for row in rows if why else []:
        row["why"] = explain(rec, row["item"], user=user, items=items).text()
    snapshot = rec.snapshot
    answer: dict[str, Any] = {
        "user": None if user is None else snapshot.users.id_of(rec.names["user"].find(user)),
        "recommendations": rows,
        "notes": list(table.notes),
    }
    if items:
        index = dict.fromkeys(rec.names["item"].find_all(items))
        answer["items"] = [{"item": snapshot.items.id_of(i), "title": snapshot.items.title_of(i)} for i in index]
    return answer


def recommend_all(
    rec: Recommender,
    target: Path,
    *,
    k: int = 10,
    exclude_seen: bool = True,
    overwrite: bool = False,
    update: Update | None = None,
) -> dict[str, Any]:
    """Write recommendations for all users to a file, and return its counts and the seconds it took."""
    from dgcf.recommend.batch import Batch  # here: answers about one user need no table engine

    began = time.perf_counter()
    written = Batch(rec.snapshot, k, exclude_seen=exclude_seen).write(target, overwrite=overwrite, update=update)
    return written | {"k": k, "seconds": time.perf_counter() - began}


def explain(rec: Recommender, item: RawId, *, user: RawId | None = None, items: Sequence[RawId] = ()) -> Explanation:
    """Return the explanation of an item's score for a user as in ``recommend``; its ``to_dict`` is the answer."""
    return rec.explain_for(items, item, user=user) if items else rec.explain(_required(user), item)


def similar(rec: Recommender, side: Side, name: RawId, k: int = 10) -> dict[str, Any]:
    """Return the k most similar items of an item, or users of a user."""
    table = rec.similar_items(name, k) if side == "item" else rec.similar_users(name, k)
    vocabulary, index = rec.snapshot.vocabulary(side), rec.names[side].find(name)
    title = vocabulary.title_of(index) if vocabulary.titles else None
    return {side: vocabulary.id_of(index), "title": title, "similar": _ranked(table, side), "notes": list(table.notes)}


def _ranked(table: Table, side: Side) -> list[dict[str, Any]]:
    return [{side: row[side], "title": row.get("title"), "score": row["score"], "rank": row["rank"]} for row in table]


def _required(user: RawId | None) -> RawId:
    if user is None:
        raise ConfigError("no user was given; name a user, or the items of a new one.")
    return user

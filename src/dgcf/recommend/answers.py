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
from dgcf.recommend.lookup import Unknown
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.rerank import ItemRules
from dgcf.recommend.rules import Rules
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
    unknown: Unknown = "raise",
    rules: Rules | ItemRules | None = None,
    why: bool = False,
) -> dict[str, Any]:
    """Return recommendations for a known ``user``, for a new one with ``items``, or for a known one with new ``items``.

    ``unknown`` tells what a user gets who is not in the training data; ``why`` adds the reason of each item.
    """
    if not items:
        several = recommend_users(
            rec, [_required(user)], k=k, exclude_seen=exclude_seen, unknown=unknown, rules=rules, why=why
        )
        users = several["users"] or [{"user": user, "recommendations": []}]
        return {**users[0], "notes": several["notes"]}
    table = rec.recommend_for(items, k, user=user, exclude_seen=exclude_seen, unknown=unknown, rules=rules)
    rows, snapshot = _ranked(table, "item"), rec.snapshot
    ids, given, _ = rec.names["item"].find_known(items, unknown)
    index = list(dict.fromkeys(given[given >= 0].tolist()))
    known = [name for name, number in zip(ids, given, strict=True) if number >= 0]
    informed = user is not None or snapshot.train.item_degrees[index].any()
    for row in rows if why else []:
        row["why"] = explain(rec, row["item"], user=user, items=known).text() if informed else _popularity(row)
    return {
        "user": None if user is None else snapshot.users.id_of(rec.names["user"].find(user)),
        "recommendations": rows,
        "notes": list(table.notes),
        "items": [{"item": snapshot.items.id_of(i), "title": snapshot.items.title_of(i)} for i in index],
    }


def recommend_users(
    rec: Recommender,
    users: Sequence[RawId],
    *,
    k: int = 10,
    exclude_seen: bool = True,
    unknown: Unknown = "raise",
    rules: Rules | ItemRules | None = None,
    why: bool = False,
) -> dict[str, Any]:
    """Return recommendations for several users, each once, in the order given."""
    ids, index, _ = rec.names["user"].find_known(users, unknown)
    known = dict(zip(ids, (index >= 0).tolist(), strict=True))
    table = rec.recommend(list(known), k, exclude_seen=exclude_seen, unknown=unknown, rules=rules)
    known = {user: there for user, there in known.items() if there or unknown == "popular"}
    lists: dict[RawId, list[dict[str, Any]]] = {user: [] for user in known}
    for user, row in zip(table["user"], _ranked(table, "item"), strict=True):
        if why:
            row["why"] = explain(rec, row["item"], user=user).text() if known[user] else _popularity(row)
        lists[user].append(row)
    entries = [{"user": user, "recommendations": rows} for user, rows in lists.items()]
    return {"users": entries, "notes": list(table.notes)}


def recommend_all(
    rec: Recommender,
    target: Path,
    *,
    k: int = 10,
    exclude_seen: bool = True,
    rules: Rules | ItemRules | None = None,
    overwrite: bool = False,
    update: Update | None = None,
) -> dict[str, Any]:
    """Write recommendations for all users to a file, and return its counts and the seconds it took."""
    began = time.perf_counter()
    written = rec.recommend_all(target, k, exclude_seen=exclude_seen, overwrite=overwrite, update=update, rules=rules)
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


def _popularity(row: dict[str, Any]) -> str:
    return f"{row['title'] or row['item']}: {row['score']:,.0f} users have it."


def _required(user: RawId | None) -> RawId:
    if user is None:
        raise ConfigError("no user was given; name a user, or the items of a new one.")
    return user

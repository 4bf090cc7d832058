"""Answers of the engine as JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dgcf.ids import RawId
from dgcf.ranking.arrays import Side
from dgcf.ranking.topk import TopK
from dgcf.recommend.explain import Explanation
from dgcf.recommend.prepared import note_if_short
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.lists import Ranked
from dgcf.serve.engine.view import Query, View
from dgcf.serve.errors import RequestError, UnknownError

REASONS = 5
"""The largest parts of a score that a recommendation with reasons names."""


def recommend(view: View, asks: Sequence[Ask]) -> list[dict[str, Any] | Exception]:
    """Return the answer to each request, or the error that it ends with."""
    answers: list[dict[str, Any] | Exception] = [RequestError("")] * len(asks)
    queries: list[Query] = []
    places: list[int] = []
    for place, ask in enumerate(asks):
        try:
            if (kept := view.kept(ask)) is not None:
                answers[place] = recommendation(view, *kept)
            else:
                queries.append(view.query(ask))
                places.append(place)
        except Exception as problem:  # of this request alone
            answers[place] = problem
    for place, query, ranked in zip(places, queries, view.rank(queries), strict=True):
        try:
            answers[place] = ranked if isinstance(ranked, Exception) else _ranked(view, query, *ranked)
        except Exception as problem:
            answers[place] = problem
    return answers


def _ranked(view: View, query: Query, best: TopK, row: int) -> dict[str, Any]:
    index, scores = best.item_idx[row, : query.ask.k], best.scores[row, : query.ask.k]
    ranked = index[index >= 0].tolist(), scores[index >= 0].tolist()
    view.keep(query, ranked)
    return recommendation(view, query, ranked)


def recommendation(view: View, query: Query, ranked: Ranked) -> dict[str, Any]:
    """Return a list as the answer to its request."""
    ask = query.ask
    index, scores = ranked
    rows: list[dict[str, Any]] = [
        {"item": raw_id, "title": title, "score": score, "rank": rank}
        for rank, (raw_id, title, score) in enumerate(zip(view.ids(index), view.titles(index), scores, strict=True), 1)
    ]
    if ask.why:
        rows = [row | _why(view, query, item, row["score"]) for row, item in zip(rows, index, strict=True)]
    user = ask.user if query.user is None else view.served.snapshot.users.id_of(query.user)
    answer = {
        "user": user,
        "known": query.user is not None,
        "source": query.source,
        "recommendations": rows,
        "notes": [*query.notes, *note_if_short(ask.k, len(index))],
        "model": view.served.version,
    }
    if ask.items or ask.negative:
        used = set(view.indices(ask.items)[0].tolist())
        answer["items"] = _named(view, used)
        answer["negative"] = _named(view, view.indices(ask.negative)[0].tolist())
    return answer


def _named(view: View, index: Iterable[int]) -> list[dict[str, Any]]:
    chosen = sorted(index)
    pairs = zip(view.ids(chosen), view.titles(chosen), strict=True)
    return [{"item": raw_id, "title": title} for raw_id, title in pairs]


def _why(view: View, query: Query, item: int, score: float) -> dict[str, Any]:
    if query.source == "popular":
        title = view.title(item) or view.snapshot.items.texts[item]
        return {"why": f"{title}: {score:,.0f} users have it.", "reasons": []}
    explanation = view.explain(query, item)
    return {"why": explanation.text(), "reasons": reasons(view, explanation)}


def reasons(view: View, explanation: Explanation) -> list[dict[str, Any]]:
    """Return the largest parts of a score, each item of the user once; those of similar users are one part."""
    merged: dict[tuple[str, RawId | None, str], list[Any]] = {}
    for part in explanation.parts:
        kind: str = "item" if part.kind == "weights" else part.kind
        key = (kind, None, "") if kind == "user" else (kind, part.id, part.title)
        entry = merged.setdefault(key, [part.title, 0.0, 0])
        entry[1] += part.value
        entry[2] += part.count
    parts = []
    for (kind, raw_id, _), (title, value, count) in merged.items():
        if kind == "user":
            title = f"{count:,} similar user{'s' if count > 1 else ''}"
        elif raw_id is not None:
            title = view.overlay.title_of(str(raw_id)) or title
        parts.append({"kind": kind, "id": raw_id, "title": title, "value": value})
    return sorted(parts, key=lambda part: -abs(part["value"]))[:REASONS]


def explain(view: View, ask: Ask, item: RawId, top: int) -> dict[str, Any]:
    """Return the parts of an item's score for a user; ``top`` parts of each kind, 0 for all."""
    if ask.user is not None and not ask.items:
        text = str(ask.user)
        if not view.in_model(text) and text not in view.overlay.users:
            raise UnknownError(f"user {text!r} is unknown; give a user of the model, or one with events.")
    index = view.item_index(item)
    explanation = view.explain(view.query(ask), index)
    shown = explanation.top(top) if top else explanation
    answer = shown.to_dict() | {"title": view.title(index) or str(item), "text": explanation.text()}
    user = ask.user
    if user is not None and view.in_model(str(user)):
        user = view.served.snapshot.users.id_of(view.user_index(user))
    return answer | {"user": user, "taken_by": explanation.taken_by, "model": view.served.version}


def similar(view: View, side: Side, name: RawId, k: int) -> dict[str, Any]:
    """Return the k items or users that are most similar; hidden items and forgotten users are left out."""
    index = view.index_of(side, name)
    vocabulary = view.snapshot.vocabulary(side)
    table = view.rec.similar_items if side == "item" else view.rec.similar_users
    more = view.hidden_count(side)
    neighbours = table(vocabulary.id_of(index), min(k + more, len(vocabulary)))
    rows: list[dict[str, Any]] = []
    for row in neighbours:
        place = vocabulary.index_of(row[side])
        if len(rows) == k or not view.shown(side, place):
            continue
        title = view.title(place) if side == "item" else row.get("title")
        rows.append({side: row[side], "title": title, "score": row["score"], "rank": len(rows) + 1})
    title = view.title(index) if side == "item" else (vocabulary.title_of(index) if vocabulary.titles else None)
    notes = note_if_short(k, len(rows), side)
    return {
        side: vocabulary.id_of(index),
        "title": title,
        "similar": rows,
        "notes": notes,
        "model": view.served.version,
    }

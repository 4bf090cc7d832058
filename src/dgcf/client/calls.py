"""The calls of the service as data: one function for each, which builds the request and knows how to read the answer.

Nothing here touches the network. ``Client`` and ``AsyncClient`` have these functions as methods.
"""

from __future__ import annotations

import json
import math
import operator
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from dgcf.client import answers
from dgcf.errors import ConfigError
from dgcf.ids import RawId

T = TypeVar("T")
Ids = RawId | Iterable[RawId]


@dataclass(frozen=True)
class Reply:
    """An answer; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request. ``path`` is percent-encoded; ``read`` returns the result from the answer.

    ``repeatable``: a repetition has no further effect. ``deletes``: if an attempt may have arrived, a later 404 says
    that nothing is left, and is a success. ``accepts``: statuses beside 2xx that ``read`` understands. ``target``: the
    file that the body of a 200 is written to.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    deletes: bool = False
    accepts: frozenset[int] = frozenset()
    target: Path | None = None


# -- recommendations --------------------------------------------------------------------------------------------------


def recommend(user: RawId, *, k: int = 10, seen: bool = False, why: bool = False) -> Call[answers.Recommendation]:
    """Recommend items to a user; ``seen``: also those that the user has; ``why``: with reasons."""
    return Call("GET", f"/v1/recommend/{segment(user)}", as_object, query_of(k=k, seen=seen, why=why))


def recommend_users(
    users: Ids,
    *,
    k: int = 10,
    seen: bool = False,
    why: bool = False,
    only: Ids | None = None,
    exclude: Ids = (),
    max_per: Mapping[str, int] | None = None,
) -> Call[answers.Recommendations]:
    """Recommend items to several users.

    Rules: ``only`` these items, none of ``exclude``, at most ``max_per[column]`` items that share a value of a column.
    """
    rules = rules_of(k, seen, why, only, exclude, max_per)
    return Call("POST", "/v1/recommend", as_object, body=json_of({"users": ids_of(users), **rules}))


def recommend_for(
    items: Ids,
    negative: Ids = (),
    *,
    user: RawId | None = None,
    visitor: RawId | None = None,
    k: int = 10,
    seen: bool = False,
    why: bool = False,
    only: Ids | None = None,
    exclude: Ids = (),
    max_per: Mapping[str, int] | None = None,
) -> Call[answers.Recommendation]:
    """Recommend items to a new user who likes ``items``, or to a ``user`` who has them besides.

    What resembles ``negative`` items ranks lower. ``visitor``: who a new user is to an experiment.
    """
    body = {"items": ids_of(items), "negative": ids_of(negative), **who(user, visitor)}
    rules = rules_of(k, seen, why, only, exclude, max_per)
    return Call("POST", "/v1/recommend", as_object, body=json_of(body | rules))


def similar_items(item: RawId, *, k: int = 10) -> Call[answers.SimilarItems]:
    """Return the items most similar to an item."""
    return Call("GET", f"/v1/similar/items/{segment(item)}", as_object, query_of(k=k))


def similar_users(user: RawId, *, k: int = 10) -> Call[answers.SimilarUsers]:
    """Return the users most similar to a user."""
    return Call("GET", f"/v1/similar/users/{segment(user)}", as_object, query_of(k=k))


def explain(user: RawId, item: RawId, *, top: int | None = None) -> Call[answers.Explanation]:
    """Explain the score of an item for a user; ``top``: the number of parts of each kind."""
    return Call("GET", f"/v1/explain/{segment(user)}/{segment(item)}", as_object, query_of(top=top))


def explain_for(
    items: Ids,
    item: RawId,
    negative: Ids = (),
    *,
    user: RawId | None = None,
    visitor: RawId | None = None,
    top: int | None = None,
) -> Call[answers.Explanation]:
    """Explain the score of ``item`` for a new user who likes ``items``, or for a ``user`` who has them besides."""
    body = {"items": ids_of(items), "item": raw_id(item), "negative": ids_of(negative), **who(user, visitor)}
    return Call("POST", "/v1/explain", as_object, body=json_of(body | ({} if top is None else {"top": top})))


# -- items and users --------------------------------------------------------------------------------------------------


def items(query: str = "", *, cursor: str | None = None, limit: int | None = None) -> Call[answers.Items]:
    """Return a page of items, the most popular first, whose title has the words of ``query`` or whose id begins so."""
    return Call("GET", "/v1/items", as_object, query_of(q=query or None, cursor=cursor, limit=limit))


def item(item: RawId) -> Call[answers.Item]:
    """Return an item."""
    return Call("GET", f"/v1/items/{segment(item)}", as_object)


def put_item(
    item: RawId,
    *,
    title: str | None = None,
    attributes: Mapping[str, str | float | bool] | None = None,
    hidden: bool = False,
) -> Call[answers.Item]:
    """Set title, attributes and visibility of an item, in place of what was set before."""
    body: dict[str, Any] = {"attributes": dict(attributes or {}), "hidden": hidden}
    body |= {} if title is None else {"title": title}
    return Call("PUT", f"/v1/items/{segment(item)}", as_object, body=json_of(body))


def delete_item(item: RawId) -> Call[None]:
    """Delete what ``put_item`` set; the item itself stays in the model."""
    return Call("DELETE", f"/v1/items/{segment(item)}", as_deleted, deletes=True)


def user(user: RawId, *, limit: int | None = None) -> Call[answers.User]:
    """Return the items of a user in training, and the events since."""
    return Call("GET", f"/v1/users/{segment(user)}", as_object, query_of(limit=limit))


def forget_user(user: RawId) -> Call[answers.Forgotten]:
    """Delete the events of a user, and let the service treat the user as unknown."""

    def read(reply: Reply) -> answers.Forgotten:
        deleted = answers.Forgotten(user=raw_id(user), events=None)
        return deleted if reply.status == 404 else as_object(reply)

    return Call("DELETE", f"/v1/users/{segment(user)}", read, deletes=True)


# -- events -----------------------------------------------------------------------------------------------------------


def send_event(
    user: RawId,
    item: RawId,
    kind: answers.Kind = "like",
    *,
    weight: float = 1.0,
    time: datetime | float | str | None = None,
    key: str | None = None,
) -> Call[answers.Sent]:
    """Store an event; when this returns, the event is durable. ``time``: now if None.

    A repetition by the client has the same key, so that the event counts once. To repeat the call yourself, give a key.
    """
    event = answers.Event(user=user, item=item, kind=kind, weight=weight)
    event |= {} if time is None else {"time": time}
    event |= {} if key is None else {"key": key}
    return Call("POST", "/v1/events", as_object, body=json_of(event_of(event)))


def send_events(events: Iterable[answers.Event]) -> Call[answers.Sent]:
    """Store several events, all or none; the service takes 1,000 in one call."""
    return Call("POST", "/v1/events", as_object, body=json_of({"events": [event_of(event) for event in events]}))


def remove_event(key: str) -> Call[None]:
    """Remove the event of a key; it is as if it had not happened, and the key is not taken again."""
    return Call("DELETE", f"/v1/events/{segment(key)}", as_deleted, deletes=True)


def export_events(path: str | os.PathLike[str], *, since: int | None = None) -> Call[Path]:
    """Write the events into a Parquet file for ``dgcf update``, a whole file or none; needs the scope admin."""
    target = Path(path)
    return Call("GET", "/v1/events/export", lambda reply: target, query_of(since=since), target=target)


# -- the service ------------------------------------------------------------------------------------------------------


def model(*, arm: str | None = None) -> Call[answers.Model]:
    """Return model, settings, metrics and version of what the service has loaded; ``arm``: the main one if None."""
    return Call("GET", "/v1/model", as_object, query_of(arm=arm))


def reload(*, arm: str | None = None) -> Call[answers.Model]:
    """Let the service load a model anew; it keeps the old one if this fails. Needs the scope admin."""
    return Call("POST", "/v1/admin/reload", as_object, query_of(arm=arm), body=b"", repeatable=False)


def experiments(*, kinds: Iterable[answers.Kind] | None = None) -> Call[answers.Experiments]:
    """Return the results of the experiment, counting events of these kinds. Needs the scope admin."""
    words = None if kinds is None else ",".join(kinds)
    return Call("GET", "/v1/experiments", as_object, query_of(kinds=words))


def models() -> Call[answers.Models]:
    """Return the published models with their cards, the newest first."""
    return Call("GET", "/v1/models", as_object)


def rollback(version: int | None = None, *, arm: str | None = None) -> Call[answers.Model]:
    """Let the service return to an earlier model, by default the one before the present one; needs the scope admin.

    Scheduled refreshes pause until one is demanded.
    """
    body = b"" if version is None else json_of({"version": version})
    return Call("POST", "/v1/admin/rollback", as_object, query_of(arm=arm), body=body, repeatable=False)


def refresh() -> Call[answers.RefreshBegun]:
    """Let the service update its model with the events since; ``refresh_state`` says what comes of it.

    A ServiceError with status 409 if a refresh runs already. Needs the scope admin.
    """
    return Call("POST", "/v1/admin/refresh", as_object, body=b"", repeatable=False)


def refresh_state() -> Call[answers.RefreshState]:
    """Return the state of the refresh, and how the last one ended; needs the scope admin."""
    return Call("GET", "/v1/admin/refresh", as_object)


def health() -> Call[answers.Health]:
    """Return whether the service is ready to answer."""

    def read(reply: Reply) -> answers.Health:
        if reply.status == 200:
            return {"ready": True, "detail": None}
        body = as_json(reply)
        return {"ready": False, "detail": body.get("detail") if isinstance(body, dict) else None}

    return Call("GET", "/readyz", read, accepts=frozenset({503}))


# -- requests ---------------------------------------------------------------------------------------------------------


def raw_id(value: Any) -> RawId:
    """Return a raw id as text or int; NumPy integers become ints."""
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return operator.index(value)
    raise ConfigError(f"{value!r} is no id: expected a text or an integer.")


def ids_of(values: Any) -> list[RawId]:
    """Return a list of raw ids; one id is a list of one."""
    if isinstance(values, Mapping):
        raise ConfigError("a mapping is no list of ids: expected texts or integers.")
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [raw_id(values)]
    return [raw_id(value) for value in values]


def segment(value: Any) -> str:
    """Return an id as one segment of a path: every character that is not plain is percent-encoded."""
    text = str(raw_id(value))
    if not text:
        raise ConfigError("an id is empty, expected at least one character.")
    try:
        encoded = quote(text, safe="")
    except UnicodeEncodeError:
        raise ConfigError(f"the id {text!r} has a lone surrogate, which no text in UTF-8 can have.") from None
    # A segment of dots alone would be taken for a folder of the path.
    return encoded.replace(".", "%2E") if set(encoded) == {"."} else encoded


def query_of(**options: str | int | None) -> dict[str, str | int]:
    """Return the options that are given, booleans as JSON has them."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


def rules_of(
    k: int, seen: bool, why: bool, only: Ids | None, exclude: Ids, max_per: Mapping[str, int] | None
) -> dict[str, Any]:
    rules: dict[str, Any] = {"k": k, "seen": seen, "why": why}
    rules |= {} if only is None else {"only": ids_of(only)}
    rules |= {"exclude": excluded} if (excluded := ids_of(exclude)) else {}
    return rules | ({"max_per": dict(max_per)} if max_per else {})


def who(user: RawId | None, visitor: RawId | None) -> dict[str, RawId]:
    """Return the fields that say who a list is for."""
    given = {"user": user, "visitor": visitor}
    return {name: raw_id(value) for name, value in given.items() if value is not None}


def event_of(event: answers.Event) -> dict[str, Any]:
    """Return an event as JSON data, with a key."""
    if not isinstance(event, Mapping) or not {"user", "item"} <= event.keys():
        raise ConfigError(f"an event is {event!r}, expected a mapping with user, item and possibly more.")
    named: dict[str, Any] = {**event, "user": raw_id(event["user"]), "item": raw_id(event["item"])}
    if isinstance(time := named.get("time"), datetime):
        if time.tzinfo is None:
            raise ConfigError(f"the time {time} has no time zone; give one, as in datetime.now(timezone.utc).")
        named["time"] = time.isoformat()
    return {**named, "key": named["key"] if named.get("key") is not None else uuid.uuid4().hex}


def json_of(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, default=number).encode()
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"the request cannot be written as JSON: {problem}.") from None


def number(value: Any) -> float | int:
    """Return a number of another type, such as NumPy's, as Python's."""
    if hasattr(value, "__index__"):
        return operator.index(value)
    if hasattr(value, "__float__") and math.isfinite(float(value)):
        return float(value)
    raise TypeError(f"{value!r} is no text, number or list")


# -- answers ----------------------------------------------------------------------------------------------------------


def as_json(reply: Reply) -> Any:
    """Return the JSON value of the body, None if it is none."""
    try:
        return json.loads(reply.body)
    except ValueError:
        return None


def as_object(reply: Reply) -> Any:
    """Return the JSON object of the body; a ValueError if it is none."""
    if not isinstance(content := as_json(reply), dict):
        raise ValueError("no JSON object")
    return content


def as_deleted(reply: Reply) -> None:
    """Return nothing: the answer to a deletion has no content."""

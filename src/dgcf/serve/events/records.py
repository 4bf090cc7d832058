"""Records of the event store: events, items, model generations, and the changes between two positions."""

from __future__ import annotations

import json
import math
import re
import time as clock
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from dgcf.errors import did_you_mean
from dgcf.ids import user_digest as user_digest
from dgcf.serve.errors import RequestError

POSITIVE = ("view", "click", "cart", "like", "purchase", "rating", "other")
NEGATIVE = ("dislike", "hide")
KINDS = (*POSITIVE, *NEGATIVE)
ID_BYTES, KEY_LENGTH, TITLE_LENGTH = 512, 128, 1_000
ATTRIBUTES, ATTRIBUTE_NAME_LENGTH, ATTRIBUTES_BYTES = 64, 128, 16_384
MAX_WEIGHT = 1e6
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TIMES = (-62_135_596_800.0, 253_402_300_800.0)  # the years 1 to 9999

Attribute = str | float | bool


def check_text(text: object, what: str, limit: int) -> str:
    """Return ``text`` if it has 1 to ``limit`` bytes of UTF-8 and no control characters; raise RequestError if not."""
    if not isinstance(text, str):
        raise RequestError(f"the {what} is of type {type(text).__name__}, expected text.")
    control = _CONTROL.search(text)
    if control:
        raise RequestError(
            f"the {what} holds the character U+{ord(control[0]):04X}, expected no control characters; remove it."
        )
    size = len(text.encode())
    if not 1 <= size <= limit:
        raise RequestError(f"the {what} has {size} bytes, expected 1 to {limit} bytes of UTF-8.")
    return text


def check_id(text: object, what: str) -> str:
    """Return the raw id of a user or an item if it is valid; raise RequestError if not."""
    return check_text(text, what, ID_BYTES)


def check_key(text: object) -> str:
    """Return an idempotency key if it is valid; raise RequestError if not."""
    return check_text(text, "key", KEY_LENGTH)


@dataclass(frozen=True, slots=True)
class Event:
    """What a user did with an item. ``time``: seconds since 1970 in UTC, kept to the microsecond; ``key``: the
    idempotency key. ``weight`` is kept to 15 digits. An invalid event raises RequestError."""

    user: str
    item: str
    kind: str = "like"
    weight: float = 1.0
    time: float = field(default_factory=clock.time)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_id(self.user, "user")
        check_id(self.item, "item")
        check_key(self.key)
        if self.kind not in KINDS:
            near = did_you_mean(str(self.kind)[:40], KINDS) or "."
            raise RequestError(f"the kind is {str(self.kind)[:40]!r}, expected one of {', '.join(KINDS)}{near}")
        object.__setattr__(self, "weight", _weight(self.weight))
        object.__setattr__(self, "time", _time(self.time))


def _weight(weight: object) -> float:
    number = _number(weight)
    if number is None or not 0 < number <= MAX_WEIGHT:
        raise RequestError(
            f"the weight is {str(weight)[:40]}, expected a number above 0 and at most {MAX_WEIGHT:,.0f}."
        )
    return float(f"{number:.15g}")


def _time(time: object) -> float:
    number = _number(time)
    if number is None or not _TIMES[0] <= number < _TIMES[1]:
        raise RequestError(
            f"the time is {str(time)[:40]}, expected seconds since 1970 in the years 1 to 9999; divide milliseconds by "
            "1000."
        )
    return round(number * 1e6) / 1e6


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class StoredEvent(NamedTuple):
    """An event as it is stored; ``seq`` is its place in the order of all events."""

    seq: int
    key: str
    user: str
    item: str
    kind: str
    weight: float
    time: float


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """What is known of an item; an item that is ``hidden`` is not recommended."""

    item: str
    title: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    hidden: bool = False

    def __post_init__(self) -> None:
        check_id(self.item, "item")
        if self.title is not None and (not isinstance(self.title, str) or len(self.title) > TITLE_LENGTH):
            raise RequestError(f"the title is not text of at most {TITLE_LENGTH:,} characters; shorten it.")
        if self.title is not None and _CONTROL.search(self.title):
            raise RequestError("the title holds a control character, expected one line of text; remove it.")
        if not isinstance(self.hidden, bool):
            raise RequestError(f"hidden is {str(self.hidden)[:40]}, expected true or false.")
        _check_attributes(self.attributes)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    if len(attributes) > ATTRIBUTES:
        raise RequestError(f"the item has {len(attributes):,} attributes, expected at most {ATTRIBUTES}.")
    for name, value in attributes.items():
        check_text(name, "name of an attribute", ATTRIBUTE_NAME_LENGTH)
        if not isinstance(value, (str, bool)) and _number(value) is None:
            raise RequestError(f"the attribute {name} is no text, number or truth value; give one of these.")
        if isinstance(value, str) and re.search("[\x00\ud800-\udfff]", value):
            raise RequestError(f"the attribute {name} holds a character that is not valid in text; remove it.")
    size = len(json.dumps(dict(attributes), ensure_ascii=False).encode())
    if size > ATTRIBUTES_BYTES:
        raise RequestError(f"the attributes have {size:,} bytes as JSON, expected at most {ATTRIBUTES_BYTES:,}.")


MAIN = "main"
"""The arm of models that everybody is answered by."""
Origin = Literal["start", "reload", "refresh", "rollback", "forget"]
"""Why a model was published; ``forget``: a user was removed from the one before."""
LOADED: tuple[Origin, ...] = ("start", "reload")
"""Origins of models that were loaded from the path that the service was started with."""
Result = Literal["published", "unchanged", "refused", "failed"]


class ModelRow(NamedTuple):
    """A generation of the model: version, checksum, path, and the time of publication in seconds since 1970.

    ``origin``: why it was published. ``card``: the model card as JSON. ``learned``: the ``seq`` of the last event that
    it was trained on. What is not known is None.
    """

    version: int
    sha256: str
    path: str
    published: float
    arm: str = MAIN
    origin: str | None = None
    card: str | None = None
    learned: int | None = None


class RefreshRow(NamedTuple):
    """A refresh of the model; times are seconds since 1970. ``ended`` is None as long as it runs.

    ``cause``: "schedule" or "admin". ``version``: the model that it published.
    """

    id: int
    holder: str
    cause: str
    started: float
    ended: float | None
    step: str | None
    result: str | None
    detail: str | None
    version: int | None


class Exposure(NamedTuple):
    """A user got the first list of an experiment, of ``arm``; ``first``: when, in seconds since 1970."""

    user: str
    arm: str
    first: float


class ArmCounts(NamedTuple):
    """Users who got a list of an arm, those with an event since, the events, and the first exposure since 1970."""

    arm: str
    users: int
    conversions: int
    events: int
    since: float


@dataclass(frozen=True, slots=True)
class NewModel:
    """A generation to publish: the fields of ``ModelRow`` that the store does not choose.

    ``after``: the version that has to be the newest one of the arm; None for any.
    """

    sha256: str
    path: str
    origin: Origin | None = None
    card: str | None = None
    learned: int | None = None
    arm: str = MAIN
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the history of the store; ``Position.START`` is before everything."""

    event: int = 0
    change: int = 0

    START: ClassVar[Position]


Position.START = Position()


@dataclass(frozen=True, slots=True)
class Changes:
    """What was committed between two positions.

    ``reset``: this is the whole content, to be read in place of what was read before (always so from START).
    ``forgotten``: digests (``user_digest``) of forgotten users, who lost all events that they had. ``users``: other
    users that lost events (removed, expired), each with all events that are left. ``events``: added events in the order
    of ``seq``, without those of ``users``, to be read last.
    ``items``: records that changed, None where the record was deleted. ``model``: the newest generation
    of the main arm, without its card.
    """

    position: Position
    reset: bool
    events: list[StoredEvent]
    users: dict[str, list[StoredEvent]]
    forgotten: set[str]
    items: dict[str, ItemRecord | None]
    model: ModelRow | None

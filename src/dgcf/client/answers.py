"""Types of what the service answers, and of events that are sent; answers are plain dictionaries.

Ids are as in the training data, texts or integers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

from dgcf.ids import RawId

Kind = Literal["view", "click", "cart", "like", "purchase", "rating", "other", "dislike", "hide"]
Attributes = dict[str, str | float | bool]


class TitledItem(TypedDict):
    item: RawId
    title: str | None


class Reason(TypedDict):
    """One part of a score that a recommendation names."""

    kind: str
    id: RawId | None
    title: str | None
    value: float


class RecommendedItem(TypedDict):
    item: RawId
    title: str | None
    score: float
    rank: int
    why: NotRequired[str]
    reasons: NotRequired[list[Reason]]


class Recommendation(TypedDict):
    """The list of one user. ``source``: the trained model, the user's events, or what is popular."""

    user: RawId | None
    known: bool
    source: Literal["model", "events", "popular"]
    recommendations: list[RecommendedItem]
    notes: list[str]
    model: int
    arm: NotRequired[str]
    items: NotRequired[list[TitledItem]]
    negative: NotRequired[list[TitledItem]]


class Recommendations(TypedDict):
    users: list[Recommendation]
    notes: list[str]
    model: int


class SimilarItem(TypedDict):
    item: RawId
    title: str | None
    score: float
    rank: int


class SimilarItems(TypedDict):
    item: RawId
    title: str | None
    similar: list[SimilarItem]
    notes: list[str]
    model: int
    arm: NotRequired[str]


class SimilarUser(TypedDict):
    user: RawId
    title: NotRequired[str | None]
    score: float
    rank: int


class SimilarUsers(TypedDict):
    user: RawId
    title: NotRequired[str | None]
    similar: list[SimilarUser]
    notes: list[str]
    model: int
    arm: NotRequired[str]


class Part(TypedDict):
    """What one item, user or prior contributes to a score; ``layers``: the same by layer."""

    kind: str
    id: RawId | None
    title: str | None
    value: float
    layers: list[float]
    count: int | None


class Explanation(TypedDict):
    user: RawId | None
    item: RawId
    title: str | None
    score: float
    parts: list[Part]
    by_kind: dict[str, float]
    by_layer: list[float]
    taken_by: int
    residual: float
    text: str
    model: int
    arm: NotRequired[str]


class CatalogItem(TypedDict):
    """``known``: whether the model was trained with the item."""

    item: RawId
    title: str | None
    users: int
    known: bool
    hidden: bool
    attributes: Attributes


class Items(TypedDict):
    """A page of items; ``next`` is the cursor of the next page, None on the last one."""

    items: list[CatalogItem]
    next: str | None
    model: int


class Item(CatalogItem):
    """An item; ``model``: the version of the model that answered."""

    model: int


class UserEvent(TypedDict):
    item: RawId
    title: str | None
    kind: Kind
    weight: float
    time: str
    key: str


class User(TypedDict):
    """``history``: the items of training, of ``history_size`` in all; ``events``: what came since, newest first."""

    user: RawId
    known: bool
    history: list[TitledItem]
    history_size: int
    events: list[UserEvent]
    model: int
    arm: NotRequired[str]


class Forgotten(TypedDict):
    """``events``: the number of deleted events; None if the answer was lost and a repetition found nothing left."""

    user: RawId
    events: int | None


class Event(TypedDict):
    """An event to send; without a key, the client makes one."""

    user: RawId
    item: RawId
    kind: NotRequired[Kind]
    weight: NotRequired[float]
    time: NotRequired[datetime | float | str]
    key: NotRequired[str]


class Sent(TypedDict):
    """``stored`` and ``duplicates`` sum to the number of events; a duplicate was stored before, and counts once."""

    stored: int
    duplicates: int
    keys: list[str]


class Model(TypedDict):
    version: int
    model: str
    preset: str | None
    seed: int | None
    settings: dict[str, Any]
    metrics: dict[str, Any]
    mask: str | None
    dataset: dict[str, Any]
    sha256: str
    loaded: str
    users: int
    items: int
    pairs: int
    dgcf: str
    card: dict[str, Any]


class PublishedModel(TypedDict):
    """``available``: a rollback can return to it; ``serving``: it is the newest one of its arm."""

    version: int
    sha256: str
    published: str
    origin: Literal["start", "reload", "refresh", "rollback", "forget"] | None
    card: dict[str, Any] | None
    serving: bool
    available: bool
    arm: str


class Models(TypedDict):
    """The published models, the newest first."""

    models: list[PublishedModel]


class RefreshBegun(TypedDict):
    """A refresh that has begun."""

    id: int
    state: Literal["running"]


class RefreshEnded(TypedDict):
    """``detail`` has the figures of a refresh, or why it came to nothing; ``version``: the model that it published."""

    started: str
    ended: str
    result: Literal["published", "unchanged", "refused", "failed"]
    detail: str
    version: int | None


class RefreshState(TypedDict):
    """The one refresh of all workers; ``every``: seconds between scheduled ones, ``next``: when one is due."""

    state: Literal["idle", "running"]
    step: str | None
    started: str | None
    last: RefreshEnded | None
    every: float | None
    next: str | None


class Health(TypedDict):
    """``ready``: whether the service answers; else ``detail`` says why not."""

    ready: bool
    detail: str | None


class ArmResult(TypedDict):
    """An arm; ``low`` and ``high`` are the ends of the 95 % interval of ``rate``, which holds for one look."""

    arm: str
    weight: float
    version: int
    users: int
    conversions: int
    rate: float
    low: float
    high: float
    events: int
    events_per_user: float


class Comparison(TypedDict):
    """``low`` and ``high`` hold the difference of the rates at all times of looking."""

    arm: str
    against: str
    difference: float
    low: float
    high: float
    significant: bool


class ShadowResult(TypedDict):
    """``overlap``: the mean share of items in both lists, since the service started."""

    arm: str
    version: int
    answers: int
    overlap: float | None
    mean_ms: float | None
    dropped: int


class Experiments(TypedDict):
    """``since``: the first exposure. ``alpha``: the probability that any comparison is ever wrongly significant."""

    experiment: str | None
    arms: list[ArmResult]
    comparison: list[Comparison]
    shadow: list[ShadowResult]
    since: str | None
    kinds: list[str]
    alpha: float

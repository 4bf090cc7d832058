"""Schemas of the answers. They document, and tests hold the answers against them; at run time nothing is checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dgcf.serve.events.records import KINDS, MAIN

RawId = Annotated[int | str, Field(description="An id as in the training data: text or an integer.")]
Version = Annotated[int, Field(ge=0, description="The version of the model that gave the answer.")]
Arm = Annotated[str, Field(description="The arm that answered; only there if the service has several models.")]
Count = Annotated[int, Field(ge=0)]
Notes = Annotated[list[str], Field(description="What the caller should know, such as ids that were ignored.")]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
PartKind = Literal["weights", "item", "user", "prior", "negative"]
Attributes = dict[str, str | bool | float]


_RECOMMENDATION: dict[str, Any] = {
    "user": 196,
    "known": True,
    "source": "model",
    "recommendations": [{"item": 50, "title": "The Third Man (1949)", "score": 0.91, "rank": 1}],
    "notes": [],
    "model": 3,
}
_EXPLANATION: dict[str, Any] = {
    "user": 196,
    "item": 50,
    "title": "The Third Man (1949)",
    "score": 0.91,
    "parts": [{"kind": "item", "id": 181, "title": "Rififi (1955)", "value": 0.91, "layers": [0.0, 0.91], "count": 1}],
    "by_kind": {"item": 0.91},
    "by_layer": [0.0, 0.91],
    "taken_by": 12,
    "residual": 0.0,
    "text": "The Third Man (1949): because you liked Rififi (1955) (100% of the score).",
    "model": 3,
}
_PROBLEM: dict[str, Any] = {
    "type": "/problems/invalid",
    "title": "The request is invalid",
    "status": 422,
    "detail": "k: the value is '0', expected a whole number from 1 to 1,000.",
    "instance": "8f14e45f-1",
    "errors": [{"in": "query", "at": "k", "detail": "the value is '0', expected a whole number from 1 to 1,000."}],
}


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TitledItem(Answer):
    item: RawId
    title: str | None


class Reason(Answer):
    """One part of a score that a recommendation names; similar users are one part."""

    kind: Literal["item", "user", "prior", "negative"]
    id: RawId | None
    title: str | None
    value: float


class RecommendedItem(Answer):
    """`why` and `reasons` are there if they were requested."""

    item: RawId
    title: str | None
    score: float
    rank: Annotated[int, Field(ge=1)]
    why: str = ""
    reasons: list[Reason] = []


class Recommendation(Answer):
    """The list of one user. `source`: the trained model, the user's events, or what is popular.

    `items` and `negative` are there if the request had such; they leave out unknown items.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_RECOMMENDATION]})

    user: RawId | None
    known: bool
    source: Literal["model", "events", "popular"]
    recommendations: list[RecommendedItem]
    notes: Notes
    model: Version
    arm: Arm = MAIN
    items: list[TitledItem] = []
    negative: list[TitledItem] = []


class Recommendations(Answer):
    """The lists of several users, each user once."""

    users: list[Recommendation]
    notes: Notes
    model: Version


class SimilarItem(Answer):
    item: RawId
    title: str | None
    score: float
    rank: Annotated[int, Field(ge=1)]


class SimilarItems(Answer):
    item: RawId
    title: str | None
    similar: list[SimilarItem]
    notes: Notes
    model: Version
    arm: Arm = MAIN


class SimilarUser(Answer):
    user: RawId
    title: str | None = None
    score: float
    rank: Annotated[int, Field(ge=1)]


class SimilarUsers(Answer):
    user: RawId
    title: str | None = None
    similar: list[SimilarUser]
    notes: Notes
    model: Version
    arm: Arm = MAIN


class Part(Answer):
    """What an item, user or prior contributes to a score, also by layer; `count`: the number of sources."""

    kind: PartKind
    id: RawId | None
    title: str | None
    value: float
    layers: list[float]
    count: int | None


class Explanation(Answer):
    """The parts of a score: their values and `residual`, the rounding error, sum to `score`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXPLANATION]})

    user: RawId | None
    item: RawId
    title: str | None
    score: float
    parts: list[Part]
    by_kind: dict[PartKind, float]
    by_layer: list[float]
    taken_by: Count
    residual: float
    text: str
    model: Version
    arm: Arm = MAIN


class CatalogItem(Answer):
    """`users`: how many have the item in training, or like it by events if the model does not have it."""

    item: RawId
    title: str | None
    users: Count
    known: Annotated[bool, Field(description="Whether the model was trained with the item.")]
    hidden: bool
    attributes: Attributes


class Items(Answer):
    """A page of items; `next` is the cursor of the next page, null on the last one."""

    items: list[CatalogItem]
    next: str | None
    model: Version


class Item(CatalogItem):
    model: Version


class UserEvent(Answer):
    item: RawId
    title: str | None
    kind: Literal[KINDS]  # type: ignore[valid-type]
    weight: float
    time: Time
    key: str


class User(Answer):
    """`history`: items of training, of `history_size` in all; `events`: the newest events, the newest first."""

    user: RawId
    known: bool
    history: list[TitledItem]
    history_size: Count
    events: list[UserEvent]
    model: Version
    arm: Arm = MAIN


class Forgotten(Answer):
    user: RawId
    events: Annotated[int, Field(ge=0, description="The number of deleted events.")]


class Sent(Answer):
    """`stored` and `duplicates` sum to the number of events; a duplicate was stored before, and counts once."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"stored": 1, "duplicates": 0, "keys": ["3d2c9a52"]}]}
    )

    stored: Count
    duplicates: Count
    keys: list[str]


class Dataset(Answer):
    name: str | None
    fingerprint: str | None


class Model(Answer):
    """What the service has loaded; `mask` says what `metrics` were measured on."""

    version: Version
    model: str
    preset: str | None
    seed: int | None
    settings: dict[str, Any]
    metrics: dict[str, Any]
    mask: str | None
    dataset: Dataset
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    loaded: Time
    users: Count
    items: Count
    pairs: Count
    dgcf: str
    card: Card


class Window(Answer):
    """Times of the first and the last training pair."""

    first: Any
    last: Any


class CardData(Answer):
    """The data that a model was trained on; null is not known."""

    name: str | None
    fingerprint: str | None
    users: Count
    items: Count
    pairs: Count
    window: Window | None
    split: Any


class CardMetrics(Answer):
    """A measurement with its protocol."""

    split: str
    mask: str
    k: list[int]
    users: Count | None
    values: dict[str, float | None]


class Check(Answer):
    """NDCG@k of the model that was served and of the update, on the newest events; `interval`: of the difference."""

    users: Count
    pairs: Count
    served: float
    candidate: float
    interval: tuple[float, float]
    margin: float
    k: Count


class CardRefresh(Answer):
    """The refresh that made a model; `check` is null if too few users had new events."""

    new_pairs: Count
    events: Count
    check: Check | None
    seconds: Annotated[float, Field(ge=0)]


class Card(Answer):
    """The model card: what a model is, from which data, and how it was measured."""

    model: str
    preset: str | None
    seed: int | None
    epochs: int | None
    dim: Count | None
    item_weights: bool
    settings: dict[str, Any]
    data: CardData
    metrics: list[CardMetrics]
    trained_at: str | None
    dgcf: str | None
    updated_from: dict[str, Any] | None
    refresh: CardRefresh | None


class PublishedModel(Answer):
    """A model that was published; `available`: its copy is kept, so that a rollback can return to it.

    `serving`: it is the newest one of its arm.
    """

    version: Annotated[int, Field(ge=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    published: Time
    origin: Literal["start", "reload", "refresh", "rollback", "forget"] | None
    card: Card | None
    serving: bool
    available: bool
    arm: str


class Models(Answer):
    models: list[PublishedModel]


class RefreshBegun(Answer):
    id: Annotated[int, Field(ge=1)]
    state: Literal["running"]


class RefreshEnded(Answer):
    """The refresh that ended last; `detail` has its figures, or why it came to nothing."""

    started: Time
    ended: Time
    result: Literal["published", "unchanged", "refused", "failed"]
    detail: str
    version: Count | None


class RefreshState(Answer):
    """The one refresh; `every`: seconds between scheduled ones; `next`: when one is due, null if none is."""

    state: Literal["idle", "running"]
    step: str | None
    started: Time | None
    last: RefreshEnded | None
    every: float | None
    next: Time | None


class Alive(Answer):
    alive: Literal[True]


class Ready(Answer):
    ready: Literal[True]


class InvalidValue(Answer):
    """`at`: the name of a parameter, or a JSON pointer into the body."""

    where: Annotated[Literal["path", "query", "header", "body"], Field(alias="in")]
    at: str
    detail: str


class Problem(Answer):
    """A problem document (RFC 9457). `instance` is the id of the request; `errors` is there for invalid values."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_PROBLEM]})

    type: Annotated[str, Field(pattern="^/problems/[a-z-]+$")]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    instance: str = ""
    errors: list[InvalidValue] = []

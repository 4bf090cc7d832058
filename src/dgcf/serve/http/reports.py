"""Schemas of the reports that the page draws: charts of the model, operations of the service, experiments."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dgcf.serve.http.answers import Answer, Count, Time, Version

Milliseconds = Annotated[float, Field(ge=0)]


class GateBin(Answer):
    """Gates of the nodes of one side, in one layer, whose degrees are in a range."""

    side: Literal["user", "item"]
    layer: Annotated[int, Field(ge=1)]
    degree_low: Count
    degree_high: Count
    nodes: Count
    mean: float
    low: float
    high: float


class Gates(Answer):
    bins: list[GateBin]
    note: str


class Oscillation(Answer):
    """The gaps of successive steps of a random walk, by operator."""

    gaps: dict[str, list[float]]
    note: str


class Epoch(Answer):
    epoch: Count
    loss: float | None
    metric: float | None


class Loss(Answer):
    """Loss and validation metric by epoch; `best`: the epoch that was kept."""

    epochs: list[Epoch]
    metric: str
    best: int | None


class BlendPart(Answer):
    name: str
    weight: float


class Blend(Answer):
    parts: list[BlendPart]


class Charts(Answer):
    """The data of the charts of a model; null where it has nothing to show."""

    model: Version
    gates: Gates | None
    oscillation: Oscillation | None
    loss: Loss | None
    blend: Blend | None


class RouteFigures(Answer):
    route: str
    requests: Count
    errors: Count
    p50_ms: Milliseconds | None
    p99_ms: Milliseconds | None


class RequestFigures(Answer):
    total: Count
    per_second: Annotated[float, Field(ge=0)]
    by_route: list[RouteFigures]
    by_status: dict[str, int]


class Latency(Answer):
    p50: Milliseconds | None
    p90: Milliseconds | None
    p99: Milliseconds | None


class Interval(Answer):
    """Ten seconds that begin at `time`."""

    time: Time
    requests_per_second: Annotated[float, Field(ge=0)]
    p50_ms: Milliseconds | None
    p99_ms: Milliseconds | None
    errors: Count


class EventFigures(Answer):
    stored: Count
    last_minute: Count
    duplicates: Count
    store_bytes: Count


class Operations(Answer):
    """What the service has done since it started, all workers together; `history`: the last intervals."""

    model: Version
    model_loaded: Time
    uptime_seconds: Annotated[float, Field(ge=0)]
    workers: Count
    ready_workers: Count
    requests: RequestFigures
    latency_ms: Latency
    history: list[Interval]
    events: EventFigures
    memory_bytes: Count
    dgcf: str


Share = Annotated[float, Field(ge=0, le=1)]
Gap = Annotated[float, Field(ge=-1, le=1)]


class ArmResult(Answer):
    """An arm; `low` and `high` are the ends of the 95 % interval of `rate` (Wilson), which holds for one look."""

    arm: str
    weight: Share
    version: Version
    users: Count
    conversions: Count
    rate: Share
    low: Share
    high: Share
    events: Count
    events_per_user: Annotated[float, Field(ge=0)]


class Comparison(Answer):
    """`low` and `high` hold the difference of the rates at all times of looking; `significant` if they exclude 0."""

    arm: str
    against: str
    difference: Gap
    low: Gap
    high: Gap
    significant: bool


class ShadowResult(Answer):
    """What a shadow has done since the service started; `overlap` is the mean share of items in both lists."""

    arm: str
    version: Version
    answers: Count
    overlap: Share | None
    mean_ms: Milliseconds | None
    dropped: Count


class Experiments(Answer):
    """`since`: the first exposure. `alpha`: the probability that any comparison is ever wrongly significant."""

    experiment: str | None
    arms: list[ArmResult]
    comparison: list[Comparison]
    shadow: list[ShadowResult]
    since: Time | None
    kinds: list[str]
    alpha: float

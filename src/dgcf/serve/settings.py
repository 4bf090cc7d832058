"""Settings of the service: where it listens, what it serves, and the limits on requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dgcf.serve.events.records import MAIN

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")


@dataclass(frozen=True)
class Limits:
    """Limits on a request: bytes, counts and seconds.

    ``rows``: the items of all lists of a request; ``reasons``: the same for lists with reasons, which take longer.
    """

    body_bytes: int = 1_048_576
    header_bytes: int = 16_384
    url_bytes: int = 8_192
    id_bytes: int = 512
    k: int = 1_000
    rows: int = 25_600
    reasons: int = 100
    users: int = 256
    items: int = 1_000
    events: int = 1_000
    page: int = 100
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    answer_seconds: float = 30.0
    idle_seconds: float = 75.0
    stop_seconds: float = 20.0
    connections: int = 1_024


@dataclass(frozen=True)
class Arms:
    """The models beside the main one, and who gets which.

    ``experiment``: its name, None without one. ``weights``: the share of users of each arm, the main one among them.
    ``models``: the models of all other arms and of the shadows. ``shadows``: the models that are never answered by;
    they get a ``share`` of the lists.
    """

    experiment: str | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: {MAIN: 1.0})
    models: Mapping[str, Path] = field(default_factory=dict)
    shadows: tuple[str, ...] = ()
    share: float = 0.0


@dataclass(frozen=True)
class Refreshing:
    """How the model is refreshed: ``every`` so many seconds, None for on demand only.

    ``memory``: bytes that its process may use, None for half of what is free; ``timeout``: seconds that it may take.
    ``margin``: the share of NDCG@20 that a new model may lack. ``lease``: seconds after which another worker replaces
    one that died.
    """

    every: float | None = None
    memory: int | None = None
    timeout: float = 3_600.0
    margin: float = 0.02
    lease: float = 20.0


@dataclass(frozen=True)
class Settings:
    """``model``: a saved recommender or a run folder; ``data``: the folder of the events and of copies of models.

    ``tokens``: the tokens of each scope. ``rate``: requests a second for each token or client, None without a limit.
    ``retention``: seconds after which an event is deleted, None to keep all. ``more``: models beside ``model``.
    ``keep_models``: the models, the newest ones, whose copies are kept. ``events``: the URL of a PostgreSQL database of
    the events, which several servers share; ``models``: the folder or address of the copies of models that they share.
    """

    model: Path
    data: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    tokens: Mapping[Scope, tuple[str, ...]] = field(default_factory=dict)
    items_table: Path | None = None
    rate: float | None = None
    origins: tuple[str, ...] = ()
    retention: float | None = None
    more: Arms = field(default_factory=Arms)
    limits: Limits = field(default_factory=Limits)
    refresh: Refreshing = field(default_factory=Refreshing)
    keep_models: int = 5
    events: str | None = field(default=None, repr=False)
    models: str | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of all models, the main one first."""
        return (MAIN, *self.more.models)

    def model_of(self, arm: str) -> Path:
        """Return the model that an arm is started with."""
        return self.model if arm == MAIN else self.more.models[arm]

    @property
    def events_file(self) -> Path:
        return self.data / "events.sqlite3"

    @property
    def events_at(self) -> Path | str:
        """The file of the events, or the URL of their database."""
        return self.events or self.events_file

    @property
    def models_folder(self) -> Path:
        return self.data / "models"

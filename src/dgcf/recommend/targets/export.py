"""Export the vectors of a recommender to a target, and check what it finds before the old export is replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.errors import ConfigError, DataError
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.targets.attributes import read_attributes
from dgcf.recommend.targets.base import Target, Vectors, name_of, vectors_of
from dgcf.recommend.targets.check import Check, check
from dgcf.recommend.targets.faiss_index import Faiss
from dgcf.recommend.targets.pgvector import PgVector
from dgcf.recommend.targets.qdrant import Qdrant
from dgcf.recommend.targets.secrets import settings


@dataclass(frozen=True)
class Checking:
    """How an export is checked: lists of ``k`` items for so many ``users``; ``min_recall``: refuse a lower recall."""

    users: int = 100
    k: int = 20
    min_recall: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("--check-users", self.users), ("--k", self.k)):
            if value < 1:
                raise ConfigError(f"{name} is {value}, expected a whole number from 1 on.")
        if self.min_recall is not None and not 0 <= self.min_recall <= 1:
            raise ConfigError(f"--min-recall is {self.min_recall:g}, expected a number from 0 to 1.")


@dataclass(frozen=True)
class Place:
    """Where an export goes: a file or folder (``out``), or tables or collections called ``name``.

    ``index`` is the kind of the index, by default that of the target; ``env_file`` holds secrets.
    """

    out: Path | None = None
    name: str | None = None
    index: str | None = None
    env_file: Path | None = None


def target_of(kind: str, place: Place, stem: str) -> Target:
    """Return the target ``kind``; ``stem`` names the export unless ``place`` does."""
    name = name_of(stem) if place.name is None else place.name
    index = {} if place.index is None else {"index": place.index}
    if kind == "faiss":
        if place.name is not None:
            raise ConfigError("--name is for pgvector and qdrant; name the folder of faiss with --out.")
        return Faiss(place.out or Path(f"{stem}.faiss"), **index)
    if kind == "qdrant":
        return Qdrant(name, settings(place.env_file), folder=place.out, **index)
    if place.out is not None:
        raise ConfigError("--out is for files; name the tables of pgvector with --name.")
    return PgVector(name, settings(place.env_file), **index)


def export_vectors(
    rec: Recommender,
    target: Target,
    *,
    attributes: Path | None = None,
    overwrite: bool = False,
    checking: Checking = Checking(),
) -> dict[str, Any]:
    """Write the vectors of a model to a target, measure the recall there, and return what was written.

    ``attributes``: a table of the items, stored beside their vectors. If the recall is too low, the export is withdrawn
    and an older one stays as it was.
    """
    snapshot = rec.snapshot
    _ = snapshot.embeddings  # refuses a model without embeddings before a table is read
    vectors = vectors_of(snapshot, None if attributes is None else read_attributes(snapshot, attributes))
    with target.staged(vectors, overwrite=overwrite) as search:
        result = check(rec, vectors, search, checking.users, checking.k)
        _refuse_low(result, checking.min_recall, vectors)
    return {
        **target.describe(),
        "users": snapshot.n_users,
        "items": snapshot.n_items,
        "dim": vectors.dim,
        "scores": vectors.scores,
        "lost": vectors.lost,
        "check": result.to_dict(),
    }


def _refuse_low(result: Check, least: float | None, vectors: Vectors) -> None:
    if least is None or result.recall >= least:
        return
    why = "" if vectors.lost is None else f", because the vectors lack {vectors.lost}"
    raise DataError(
        f"recall@{result.k} of {result.users} users is {result.recall:.4f}{why}, below --min-recall {least:g}, so that "
        f"nothing was replaced; the index alone has {result.recall_of_vectors:.4f}: choose --index flat if that is "
        "low, or a lower --min-recall."
    )

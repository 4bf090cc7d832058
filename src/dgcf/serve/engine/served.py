"""A model that is served: load and check it, and keep a copy that later workers start from."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.errors import DataError, DgcfError
from dgcf.files import atomic_file, exclusive_lock
from dgcf.recommend import artifact, loading
from dgcf.recommend.card import model_card
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.extended import can_extend
from dgcf.serve.engine.search import Titles
from dgcf.serve.errors import ModelRefusedError

SUFFIX = ".dgcf"
INCOMING = "incoming.dgcf"
"""A copy that is being checked."""
_WARM_UP_USERS = 8  # so many are ranked by a product, not one by one


@dataclass(frozen=True, eq=False)
class Served:
    """A model in memory. ``version`` counts published models from 1; ``source``: where it was loaded from."""

    version: int
    sha256: str
    source: Path
    prepared: Prepared
    loaded: datetime

    def published_as(self, version: int) -> Served:
        """Return the same model with the version that it was published as."""
        published = replace(self, version=version)
        published.__dict__.update(titles=self.titles, card=self.card)
        return published

    @property
    def snapshot(self) -> Snapshot:
        return self.prepared.snapshot

    @cached_property
    def learns(self) -> bool:
        """Whether the model can represent a user by items, so that it learns from events."""
        items = np.array([self.snapshot.train.item_degrees.argmax()], dtype=np.int64)
        try:
            self.prepared.users.query(items, None)
        except DataError:
            return False
        return True

    @cached_property
    def titles(self) -> Titles:
        """The items, prepared for search."""
        return Titles(self.snapshot)

    @cached_property
    def card(self) -> dict[str, Any]:
        """The model card."""
        return card_of(self.prepared)

    @cached_property
    def extends(self) -> bool:
        """Whether a new item can be folded into the model."""
        return can_extend(self.prepared)


def take_copy(model: Path, folder: Path) -> Path:
    """Check a saved recommender or run folder, copy it to ``folder/SHA256.dgcf``, and return the copy.

    What is copied is what was checked: the copy is loaded, not the original.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not model.exists():
        raise ModelRefusedError(f"there is no model {model}; give a run folder of `dgcf train` or a .dgcf file.")
    with _refused(model), exclusive_lock(folder):
        run = (model / loading.RUN).exists()
        if run:
            loading.load(model)  # writes the recommender if it is missing or of other weights
        source = model / loading.BESIDE_WEIGHTS if run else model
        beside = folder / INCOMING
        try:
            if source.is_dir():
                artifact.save(artifact.load(source), beside, overwrite=True)
            else:
                with atomic_file(beside) as part:
                    shutil.copyfile(source, part)
            _check_copy(beside, source)
            target = folder / f"{_hash(beside)}{SUFFIX}"
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        return target


def _check_copy(copy: Path, source: Path) -> None:
    """Refuse a copy that is not a recommender, by the name of what was copied."""
    try:
        artifact.load(copy)
    except DgcfError as problem:
        raise ModelRefusedError(str(problem).replace(str(copy), str(source))) from problem


def load_copy(folder: Path, sha256: str, version: int, source: Path) -> Served:
    """Return the model of a copy, warmed up; raise ``ModelRefusedError`` if it is missing or damaged."""
    path = folder / f"{sha256}{SUFFIX}"
    with _refused(path):
        if _hash(path) != sha256:
            raise ModelRefusedError(f"{path.name} is not the model that was published; publish it again by a reload.")
        snapshot = artifact.load(path)
        _ = snapshot.layers  # read now: the copy may be deleted when newer models were published
        prepared = Prepared(snapshot)
        warm_up(prepared)
    served = Served(version, sha256, source, prepared, datetime.now(UTC))
    _ = served.titles, served.card
    return served


def card_of(prepared: Prepared) -> dict[str, Any]:
    """Return the card of a model, with what its refresh says of it, None of one that no refresh made."""
    return {**model_card(Recommender.of(prepared)), "refresh": prepared.snapshot.about.get("refresh")}


def warm_up(prepared: Prepared) -> None:
    """Compute what the first requests need: a list for a user, one for a new user, an explanation, similar items."""
    snapshot = prepared.snapshot
    rec = Recommender.of(prepared)
    degrees = snapshot.train.item_degrees
    if not len(degrees) or not degrees.max():
        raise ModelRefusedError("the model has no training pair; train it on data that has some.")
    item, user = snapshot.items.id_of(int(degrees.argmax())), snapshot.users.id_of(0)
    some = range(0, snapshot.n_users, max(1, snapshot.n_users // _WARM_UP_USERS))
    rec.recommend([snapshot.users.id_of(index) for index in some], 10)
    if not np.isfinite(rec.score(user, item)).all():
        raise ModelRefusedError("the model gives scores that are not numbers; train it again.")
    with contextlib.suppress(DgcfError):  # a model may be unable to do some of these
        rec.recommend_for([item], 10)
    with contextlib.suppress(DgcfError):
        rec.explain(user, item)
    for find in (rec.similar_items, rec.similar_users):
        with contextlib.suppress(DgcfError):
            find(item if find is rec.similar_items else user, 10)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _refused(model: Path) -> Iterator[None]:
    """Turn what is wrong with a model into ``ModelRefusedError``."""
    try:
        yield
    except ModelRefusedError:
        raise
    except DgcfError as problem:
        raise ModelRefusedError(str(problem)) from problem
    except (OSError, MemoryError) as problem:
        raise ModelRefusedError(f"{model.name} cannot be loaded ({problem}); check the file.") from problem

"""Forget users in the data folder of a service, which may be running: its events and its copies of models.

A copy that holds a user is deleted. If it is the newest model, a copy without the user is published in its place first,
which all workers of a running service load by themselves.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ArtifactError, DataError
from dgcf.files import explain_os_errors, folder_lock, sweep
from dgcf.recommend import artifact, loading
from dgcf.recommend.container import hash_of
from dgcf.recommend.forget import Forgetting, Place, influence, key_for, present, without_users
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.publishing import MOST_ROWS
from dgcf.serve.engine.served import INCOMING, SUFFIX, card_of
from dgcf.serve.errors import StoreFullError
from dgcf.serve.events.database import compact, connect, explain
from dgcf.serve.events.records import ModelRow, Origin, check_id, user_digest
from dgcf.serve.events.refreshes import LEASE
from dgcf.serve.events.store import EventStore
from dgcf.serve.settings import Settings

ERASE_SECONDS = 30.0
"""Seconds to wait until no reader of a running service keeps the log of the events from being emptied."""
LEASE_SECONDS = 60.0
"""Seconds to wait for the end of a refresh, and for which the next one waits if this process is killed."""
WORK_FOLDER = "refresh-"
_HOLDER = "forget"  # one name for all processes, so that the same command can be run again at once
_AGAIN = 0.05
RUNNING = "A running service takes the new copy within seconds."


@dataclass
class ServiceFolder:
    """The data folder of a service."""

    path: Path

    def __post_init__(self) -> None:
        if not self.settings.events_file.is_file():
            raise DataError(
                f"{self.path} is not the data folder of a service: it has no {self.settings.events_file.name}; give "
                "the folder of `dgcf serve --data`."
            )

    @property
    def settings(self) -> Settings:
        return Settings(model=Path(), data=self.path)

    @cached_property
    def copies(self) -> dict[Path, Snapshot]:
        """The copies of models that can be read."""
        return {path: snapshot for path in self._files() if (snapshot := _readable(path)) is not None}

    def _files(self) -> list[Path]:
        return sorted(self.settings.models_folder.glob(f"*{SUFFIX}"))

    def model(self) -> None:
        return None

    def vocabularies(self) -> Sequence[Vocabulary]:
        return [snapshot.users for snapshot in self.copies.values()]

    def knows(self, user: str) -> bool:
        if any(user in vocabulary for vocabulary in self.vocabularies()):
            return True
        with EventStore.open(self.settings.events_file) as store:
            return bool(store.events_of(user)) or user_digest(user) in store.forgotten()

    def remove(self, forgetting: Forgetting) -> Place:
        for user in forgetting.users:
            check_id(user, "user")
        held = {user for vocabulary in self.vocabularies() for user in present(vocabulary, forgetting.users)}
        with EventStore.open(self.settings.events_file) as store, _no_refresh(store):
            counts = {user: store.forget(user).result() for user in forgetting.users}
            newest = _newest(store)
            published, deleted = self._forget_in_copies(store, newest, forgetting)
            for folder in self.settings.data.glob(f"{WORK_FOLDER}*"):  # of refreshes that were killed
                shutil.rmtree(folder)
            erase(self.settings.events_file)
        users = tuple(user for user in forgetting.users if user in held or counts[user])
        stays = dict.fromkeys(influence(self.copies[path], users) for path in published)
        return Place(
            "service",
            str(self.path),
            users,
            events=sum(counts.values()),
            files=(self.settings.events_file.name, *(path.name for path in deleted)),
            stays=" ".join(filter(None, stays)) or None,
            elsewhere=(*([RUNNING] if published else []), *_sources(newest, forgetting)),
        )

    def _forget_in_copies(
        self, store: EventStore, newest: Sequence[ModelRow], forgetting: Forgetting
    ) -> tuple[list[Path], list[Path]]:
        """Replace the newest copies and delete the others that hold a user; return both, by their old names."""
        folder, published, deleted = self.settings.models_folder, list[Path](), list[Path]()
        if not folder.is_dir():
            return published, deleted
        with explain_os_errors(folder), folder_lock(folder):
            for path in self._files():
                snapshot, rows = _readable(path), [row for row in newest if row.sha256 == path.stem]
                if snapshot is not None and not present(snapshot.users, forgetting.users) and path.name != INCOMING:
                    continue
                if rows:
                    self.copies[path] = snapshot = artifact.load(path)  # raises for a damaged one
                    _publish(store, rows, path, snapshot, forgetting)
                    published.append(path)
                path.unlink()
                deleted.append(path)
            for path in (folder / INCOMING, *self._files()):
                sweep(path)
        return published, deleted


@contextlib.contextmanager
def _no_refresh(store: EventStore) -> Iterator[None]:
    """Hold the lease of the refresh, so that none begins, whose files would hold the users."""
    until = time.monotonic() + LEASE_SECONDS
    while not store.take_lease(LEASE, _HOLDER, LEASE_SECONDS).result():
        if time.monotonic() > until:
            raise DataError("a refresh of the service is running, whose files may hold the users; repeat it later.")
        time.sleep(_AGAIN)
    try:
        yield
    finally:
        store.release_lease(LEASE, _HOLDER).result()


def _newest(store: EventStore) -> list[ModelRow]:
    """Return the newest generation of the model of each arm."""
    return list({row.arm: row for row in reversed(store.models(MOST_ROWS))}.values())


def _readable(path: Path) -> Snapshot | None:
    try:
        return artifact.load(path)
    except ArtifactError:
        return None


def _publish(
    store: EventStore, rows: Sequence[ModelRow], path: Path, snapshot: Snapshot, forgetting: Forgetting
) -> None:
    """Publish a copy without the users in place of the newest one of some arms."""
    beside = path.with_name(INCOMING)
    fewer = without_users(snapshot, present(snapshot.users, forgetting.users), forgetting.at)
    artifact.save(fewer, beside, overwrite=True, sign=key_for(path, forgetting))
    sha256 = hash_of(beside)
    assert sha256 is not None
    beside.replace(path.with_name(f"{sha256}{SUFFIX}"))
    card = json.dumps(card_of(Prepared(fewer)), ensure_ascii=False)
    for row in rows:
        origin: Origin = "rollback" if row.origin == "rollback" else "forget"  # a rollback pauses refreshes
        published = store.publish_model(sha256, row.path, origin=origin, card=card, learned=row.learned, arm=row.arm)
        published.result()


def _sources(newest: Sequence[ModelRow], forgetting: Forgetting) -> list[str]:
    """Return sentences on the models that the service was started with if they still hold a user."""
    sentences = []
    for path in dict.fromkeys(Path(row.path) for row in newest):
        saved = path / loading.BESIDE_WEIGHTS if (path / loading.RUN).exists() else path
        snapshot = _readable(saved) if saved.exists() else None
        if snapshot is not None and present(snapshot.users, forgetting.users):
            sentences.append(
                f"{path}, which a start or a reload of the service copies again, still holds the users; use `dgcf "
                f"forget {path}` for it as well."
            )
    return sentences


def erase(events: Path) -> None:
    """Leave nothing of deleted events in the file and its log, which other processes may be reading."""
    until = time.monotonic() + ERASE_SECONDS
    with explain(events), closing(connect(events)) as con:
        compact(con)
        while con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > until:
                raise StoreFullError(
                    f"the log of {events} still holds what was deleted, because other processes read it; run the "
                    "command again."
                )
            time.sleep(_AGAIN)

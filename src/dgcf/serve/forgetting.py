"""Forget users in the data folder of a service, which may be running: its events and its copies of models.

A copy that holds a user is deleted. If it is the newest model, a copy without the user is published in its place first,
which all workers of a running service load by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.served import INCOMING, SUFFIX
from dgcf.serve.errors import StoreFullError
from dgcf.serve.events.database import compact, connect, explain
from dgcf.serve.events.records import ModelRow, Origin, check_id, user_digest
from dgcf.serve.events.store import EventStore
from dgcf.serve.settings import Settings

ERASE_SECONDS = 30.0
"""Seconds to wait until no reader of a running service keeps the log of the events from being emptied."""
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
        with EventStore.open(self.settings.events_file) as store:
            counts = {user: store.forget(user).result() for user in forgetting.users}
            row = store.current_model()
            files = self._forget_in_copies(store, row, forgetting)
            erase(self.settings.events_file)
        users = tuple(user for user in forgetting.users if user in held or counts[user])
        newest = [snapshot for path, snapshot in self.copies.items() if row is not None and path.stem == row.sha256]
        return Place(
            "service",
            str(self.path),
            users,
            events=sum(counts.values()),
            files=(self.settings.events_file.name, *files),
            stays=influence(newest[0], users) if newest else None,
            elsewhere=(*([RUNNING] if files else []), *_source(row, forgetting.users)),
        )

    def _forget_in_copies(self, store: EventStore, row: ModelRow | None, forgetting: Forgetting) -> list[str]:
        """Replace the newest copy and delete the others that hold a user; return the names of the copies deleted."""
        folder, deleted = self.settings.models_folder, list[str]()
        if not folder.is_dir():
            return deleted
        with explain_os_errors(folder), folder_lock(folder):
            for path in self._files():
                if path.name == INCOMING:  # of a service that was killed while it copied
                    path.unlink()
                    continue
                newest = row is not None and path.stem == row.sha256
                snapshot = artifact.load(path) if newest else _readable(path)
                if snapshot is not None and not present(snapshot.users, forgetting.users):
                    continue
                if newest and snapshot is not None and row is not None:
                    _publish(store, row, path, snapshot, forgetting)
                path.unlink()
                deleted.append(path.name)
            for path in (folder / INCOMING, *self._files()):
                sweep(path)
        return deleted


def _readable(path: Path) -> Snapshot | None:
    try:
        return artifact.load(path)
    except ArtifactError:
        return None


def _publish(store: EventStore, row: ModelRow, path: Path, snapshot: Snapshot, forgetting: Forgetting) -> None:
    """Publish a copy without the users in place of the newest one."""
    beside = path.with_name(INCOMING)
    fewer = without_users(snapshot, present(snapshot.users, forgetting.users), forgetting.at)
    artifact.save(fewer, beside, overwrite=True, sign=key_for(path, forgetting))
    sha256 = hash_of(beside)
    assert sha256 is not None
    beside.replace(path.with_name(f"{sha256}{SUFFIX}"))
    origin: Origin = "rollback" if row.origin == "rollback" else "forget"  # a rollback pauses refreshes
    store.publish_model(sha256, row.path, origin=origin, learned=row.learned).result()


def _source(row: ModelRow | None, users: Sequence[str]) -> list[str]:
    """Return a sentence on the model that the service was started with if it still holds a user."""
    if row is None:
        return []
    path = Path(row.path)
    saved = path / loading.BESIDE_WEIGHTS if (path / loading.RUN).exists() else path
    snapshot = _readable(saved) if saved.exists() else None
    if snapshot is None or not present(snapshot.users, users):
        return []
    return [f"{path}, which a reload copies again, still holds the users; use `dgcf forget {path}` for it as well."]


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

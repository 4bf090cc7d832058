"""Publishing models: which copy is served next, which one a rollback returns to, and which copies are kept."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from dgcf.serve.engine.served import SUFFIX
from dgcf.serve.engine.shared_models import SharedModelsError, shared_models
from dgcf.serve.errors import ModelRefusedError, UnknownError
from dgcf.serve.events.records import LOADED, MAIN, ModelRow
from dgcf.serve.events.store import EventStore
from dgcf.serve.settings import Settings

MOST_ROWS = 10_000
"""Published models, the newest ones, that a rollback and the deletion of copies look at."""
_YOUNG = 3600.0  # seconds in which a copy that is not published yet is not deleted


class Publishing:
    """The published models of an arm, and their copies in the models folder."""

    def __init__(self, settings: Settings, store: EventStore, arm: str = MAIN) -> None:
        self._settings, self._store, self.arm = settings, store, arm
        self._shared = None if settings.models is None else shared_models(settings.models)

    def copy_of(self, sha256: str) -> Path:
        """Return the path of the copy of a model, which may be deleted."""
        return self._settings.models_folder / f"{sha256}{SUFFIX}"

    def take(self, path: Path, sha256: str) -> None:
        """Move a file among the copies."""
        self._settings.models_folder.mkdir(parents=True, exist_ok=True)
        path.replace(self.copy_of(sha256))
        self.share(sha256)

    def share(self, sha256: str) -> None:
        """Store the copy of a model where other servers fetch it from, if they share models."""
        if self._shared is not None:
            self._shared.put(self.copy_of(sha256))

    def fetch(self, sha256: str) -> Path:
        """Return the copy of a model, fetched if it is not here; raise ``ModelRefusedError`` if there is none."""
        copy = self.copy_of(sha256)
        if not copy.is_file() and self._shared is not None:
            self._shared.get(copy)
        elif not copy.is_file() and self._settings.events is not None:
            raise ModelRefusedError(
                "the newest model was published by another server and is not here; give all servers the same --models."
            )
        return copy

    def available(self) -> set[str]:
        """Return the checksums of the models of which there is a copy, here or where servers share them."""
        names = {path.name for path in self._settings.models_folder.glob(f"*{SUFFIX}")}
        if self._shared is not None:
            names |= self._shared.names()
        return {name.removesuffix(SUFFIX) for name in names}

    def was_loaded_last(self, sha256: str) -> bool:
        """Return whether a model is the one that was last loaded from the path of the settings.

        Where several servers share the events, it may be any that one of them has loaded: a server that is started
        with an older file than the others have must not publish that.
        """
        most = 1 if self._settings.events is None else MOST_ROWS
        rows = self._store.models(most, arm=self.arm, origins=LOADED) or self._store.models(1, arm=self.arm)
        return any(row.sha256 == sha256 for row in rows)

    def earlier(self, version: int | None) -> ModelRow:
        """Return the model that a rollback returns to: a ``version``, or the one before the present one.

        The one before a rollback's model is the one before that model was published otherwise, so that rollbacks go
        further back.
        """
        rows = self._store.models(MOST_ROWS, arm=self.arm)
        if version is not None:
            row = next((row for row in rows if row.version == version), None)
            if row is None:
                raise UnknownError(f"there is no model {version}; GET /v1/models lists them.")
        else:
            others = [row for row in rows if row.origin != "rollback"]
            place = next((place for place, row in enumerate(others) if row.sha256 == rows[0].sha256), len(others))
            row = next((row for row in others[place:] if row.sha256 != rows[0].sha256), None)
            if row is None:
                raise ModelRefusedError("there is no earlier model to return to; the present one stays.")
        if row.sha256 not in self.available():
            raise ModelRefusedError(
                f"the copy of model {row.version} is deleted, since only the last {self._settings.keep_models} models "
                "are kept (--keep-models); the present one stays."
            )
        return row

    def clean(self) -> None:
        """Delete the copies of all but the last models of each arm; copies that are not published yet stay an hour."""
        kept = set[str]()
        for arm in self._settings.arms:
            rows = self._store.models(MOST_ROWS, arm=arm)
            kept |= set(list(dict.fromkeys(row.sha256 for row in rows))[: self._settings.keep_models])
        published = {row.sha256 for row in self._store.models(MOST_ROWS)}
        for path in self._settings.models_folder.glob(f"*{SUFFIX}"):
            young = path.stem not in published and time.time() - path.stat().st_mtime < _YOUNG
            if path.stem not in kept and not young:
                path.unlink(missing_ok=True)
        if self._shared is not None:
            with contextlib.suppress(SharedModelsError):  # they are deleted the next time
                self._shared.remove(f"{sha256}{SUFFIX}" for sha256 in published - kept)

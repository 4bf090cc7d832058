"""The engine of a worker: answers requests with the present model and all events that are stored."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from dgcf.ids import RawId
from dgcf.ranking.arrays import Side
from dgcf.serve.engine import answers, catalogue, charts
from dgcf.serve.engine.asks import Ask
from dgcf.serve.engine.attributes import read_attributes
from dgcf.serve.engine.catalogue import Catalogue
from dgcf.serve.engine.overlay import Overlay
from dgcf.serve.engine.publishing import Publishing
from dgcf.serve.engine.served import Served, load_copy, take_copy
from dgcf.serve.engine.thread import ModelThread
from dgcf.serve.engine.view import Attributes, View
from dgcf.serve.errors import ModelRefusedError, NotReadyError, RequestError
from dgcf.serve.events.records import MAIN, ModelRow, Origin
from dgcf.serve.events.store import EventStore
from dgcf.serve.settings import Settings

T = TypeVar("T")
WATCH_SECONDS = 1.0
"""Seconds between two looks at what other workers have committed."""
log = logging.getLogger("dgcf.serve")


class Engine:
    """Answers requests; all methods are coroutines of one event loop.

    A request takes the model and the events once, in the model thread, so an answer never mixes two models and always
    sees every event that was stored before the request came.
    """

    def __init__(self, settings: Settings, store: EventStore, arm: str = MAIN) -> None:
        self.settings, self.store, self.arm = settings, store, arm
        self.path = settings.model_of(arm)
        self.publishing = Publishing(settings, store, arm)
        self.ready = False
        self.model_version = 0
        self.model_loaded = ""
        self._overlay = Overlay(store, arm)
        self._attributes: Attributes = {}
        self._served: Served | None = None
        self._view: View | None = None
        self._catalogue: Catalogue | None = None
        self._charts: dict[str, Any] | None = None
        self._thread = ModelThread(self._recommend)
        self._loader = ThreadPoolExecutor(1, "loader")
        self._reloading = asyncio.Lock()
        self._settled = -1  # the version of the store that the view follows from
        self._refused = 0  # the version of a published model that this worker could not load
        self._following: asyncio.Future[None] | None = None
        self._watching: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, *, fresh: bool = True) -> None:
        """Load the model and answer a first request.

        ``fresh``: publish the model of the settings, as the first worker of a server does, unless it was the last one
        that was loaded from there: then refreshes and rollbacks since go on to hold. Others, and workers that are
        started again, load the newest published one, whatever has been written to the path since. Raises
        ``ModelRefusedError``.
        """
        self._loop = asyncio.get_running_loop()
        self._attributes = await self._load(lambda: read_attributes(self.settings.items_table))
        if fresh or await self._present() is None:
            await self._begin()
        else:
            await self._follow()
        user = self._require_served().snapshot.users.id_of(0)
        await self.recommend(user, k=1)
        self._watching = asyncio.ensure_future(self._watch())
        self.ready = True

    async def close(self) -> None:
        """Answer what waits, and end the threads."""
        self.ready = False
        for task in (self._watching, self._following):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await asyncio.get_running_loop().run_in_executor(None, self._thread.close)
        self._loader.shutdown()

    # Lists

    async def recommend(self, user: RawId, *, k: int = 10, seen: bool = False, why: bool = False) -> dict[str, Any]:
        """Return the k best items for a user: known, new with events, or unknown, who gets popular items."""
        return await self.rank(Ask(user, k=k, seen=seen, why=why))

    async def recommend_users(
        self,
        users: Sequence[RawId],
        *,
        k: int = 10,
        seen: bool = False,
        why: bool = False,
        only: Sequence[RawId] | None = None,
        exclude: Sequence[RawId] = (),
        max_per: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the lists of several users, each once, of one model."""
        rules = _rules(only, exclude, max_per)
        asks = [Ask(user, k=k, seen=seen, why=why, **rules) for user in dict.fromkeys(users)]
        lists = await self.rank_all(asks)
        version = lists[0]["model"] if lists else self.model_version
        return {"users": lists, "notes": [], "model": version}

    async def recommend_for(
        self,
        items: Sequence[RawId],
        negative: Sequence[RawId] = (),
        *,
        user: RawId | None = None,
        visitor: RawId | None = None,
        k: int = 10,
        seen: bool = False,
        why: bool = False,
        only: Sequence[RawId] | None = None,
        exclude: Sequence[RawId] = (),
        max_per: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the k best items for the items of a new user, or for a known user with more items."""
        rules = _rules(only, exclude, max_per)
        return await self.rank(Ask(user, tuple(items), tuple(negative), k, seen, why, **rules, visitor=visitor))

    async def rank(self, ask: Ask) -> dict[str, Any]:
        """Return the answer to a list."""
        answer = None if ask.why else self._kept(ask)
        return await self._thread.rank(ask) if answer is None else answer

    async def rank_all(self, asks: Sequence[Ask]) -> list[dict[str, Any]]:
        """Return the answers to several lists, of one model; raise the first error."""
        results = await self._thread.call(lambda: self._recommend(asks))
        for answer in results:
            if isinstance(answer, Exception):
                raise answer
        return [dict(answer) for answer in results if not isinstance(answer, Exception)]

    # Single answers

    async def similar(self, side: Side, name: RawId, *, k: int = 10) -> dict[str, Any]:
        """Return the k most similar items of an item, or users of a user."""
        return await self._call(lambda view: answers.similar(view, side, name, k))

    async def explain(self, user: RawId, item: RawId, *, top: int = 5) -> dict[str, Any]:
        """Return the parts of an item's score for a user."""
        return await self._call(lambda view: answers.explain(view, Ask(user), item, top))

    async def explain_for(
        self,
        items: Sequence[RawId],
        negative: Sequence[RawId],
        item: RawId,
        *,
        user: RawId | None = None,
        visitor: RawId | None = None,
        top: int = 5,
    ) -> dict[str, Any]:
        """Return the parts of an item's score for the items of a new user, or a known user with more items."""
        ask = Ask(user, tuple(items), tuple(negative), visitor=visitor)
        return await self._call(lambda view: answers.explain(view, ask, item, top))

    async def items(self, query: str = "", cursor: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Return items by title or id, the most popular first."""

        def search(view: View) -> dict[str, Any]:
            present = self._catalogue
            if present is None or present.view is not view or present.items_changed != view.overlay.items_changed:
                present = self._catalogue = Catalogue(view)
            return present.search(query, cursor, limit)

        return await self._call(search)

    async def item(self, item: RawId) -> dict[str, Any]:
        """Return what is known of an item."""
        return await self._call(lambda view: catalogue.item(view, item))

    async def user(self, user: RawId, limit: int = 100) -> dict[str, Any]:
        """Return the training items and the newest events of a user."""
        events = await asyncio.to_thread(self.store.events_of, str(user))
        return await self._call(lambda view: catalogue.user(view, user, events, limit))

    async def forget(self, user: RawId) -> dict[str, Any]:
        """Delete the events of a user and forget that the model knows the user; return user and number of events."""
        known = await self.user(user, 1)  # raises for an unknown one, and names the user as the training data does
        return {"user": known["user"], "events": await asyncio.wrap_future(self.store.forget(str(user)))}

    # The model

    def of(self, arm: str | None) -> Engine:
        """Return the engine of an arm, that of everybody for None; raise ``RequestError`` if there is none."""
        if arm not in (None, self.arm):
            raise RequestError(f"there is no arm {arm!r}; the service has the arm {self.arm} only.")
        return self

    async def model(self) -> dict[str, Any]:
        """Return what the model is."""
        return await self._call(lambda view: charts.describe(view.served))

    async def charts(self) -> dict[str, Any]:
        """Return the data of the model's charts."""
        served = self._require_served()
        if self._charts is None or self._charts["model"] != served.version:
            self._charts = await self._load(lambda: charts.charts(served))
        return self._charts

    async def reload(self) -> dict[str, Any]:
        """Load the model of the settings and publish it to all workers; the present one stays if it is refused."""
        async with self._alone():
            copy = await self._load(lambda: take_copy(self.path, self.settings.models_folder))
            present = await self._present()
            if present is not None and present.sha256 == copy.stem:  # the same model: nothing to publish
                return await self._take(present)
            return await self._publish_new(copy, "reload")

    async def _begin(self) -> None:
        """Load the model of the settings, or the present one if it follows from that of the settings."""
        copy = await self._load(lambda: take_copy(self.path, self.settings.models_folder))
        present = await self._present()
        if present is not None and await self._load(lambda: self.publishing.was_loaded_last(copy.stem)):
            try:
                await self._take(present)
                return
            except ModelRefusedError as problem:
                if present.sha256 == copy.stem:
                    raise
                log.error("model %d cannot be loaded, so the one of the settings is: %s", present.version, problem)
        await self._publish_new(copy, "start")

    async def rollback(self, version: int | None = None) -> dict[str, Any]:
        """Publish an earlier model again, that of a ``version`` or the one before; the present one stays if refused."""
        async with self._alone():
            row = await self._load(lambda: self.publishing.earlier(version))
            present = await self._present()
            if present is not None and present.sha256 == row.sha256:
                return await self._take(present)
            return await self._publish(await self._load_version(row.sha256, 0), "rollback", row.learned)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the lock of loading; raise ``ModelRefusedError`` if another request has it."""
        if self._following is not None and not self._following.done():  # a model that was published just now
            await asyncio.wait([self._following])
        if self._reloading.locked():
            raise ModelRefusedError("another model is being loaded; repeat the request when it is done.")
        async with self._reloading:
            yield

    async def _take(self, row: ModelRow) -> dict[str, Any]:
        """Load a published model, unless it is the present one, and return what it is."""
        if self._served is None or self._served.version != row.version:
            await self._swap(await self._load_version(row.sha256, row.version))
        return charts.describe(self._require_served())

    async def _publish_new(self, copy: Path, origin: Origin) -> dict[str, Any]:
        return await self._publish(await self._load_new(copy), origin)

    async def _publish(self, served: Served, origin: Origin, learned: int | None = None) -> dict[str, Any]:
        """Publish a model that is loaded, with its card, make it the present one, and return what it is."""
        await self._load(lambda: self.publishing.share(served.sha256))
        card = json.dumps(served.card, ensure_ascii=False)
        future = self.store.publish_model(
            served.sha256, str(self.path), origin=origin, card=card, learned=learned, arm=self.arm
        )
        served = served.published_as(await asyncio.wrap_future(future))
        await self._swap(served)
        await self._load(self.publishing.clean)
        return charts.describe(served)

    async def _load_new(self, copy: Path) -> Served:
        """Load a copy that is not published yet; delete it if it is refused."""
        try:
            return await self._load_version(copy.stem, 0)
        except ModelRefusedError:
            await self._load(lambda: copy.unlink(missing_ok=True))
            raise

    async def _follow(self) -> None:
        """Load the newest published model, if this worker has another one."""
        row = await self._present()
        if row is None or row.version in (self.model_version, self._refused):
            return
        try:
            await self._swap(await self._load_version(row.sha256, row.version))
        except ModelRefusedError:
            self._refused = row.version
            raise

    async def _watch(self) -> None:
        """Take over what other workers commit, also while no request comes."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._call(lambda _: None)
            except (RequestError, sqlite3.Error) as problem:
                log.error("the events cannot be read: %s", problem)
            self._start_following()

    async def _load_version(self, sha256: str, version: int) -> Served:
        def load() -> Served:
            self.publishing.fetch(sha256)
            return load_copy(self.settings.models_folder, sha256, version, self.path)

        return await self._load(load)

    async def _present(self) -> ModelRow | None:
        """Return the newest published model of the arm."""
        return await self._load(lambda: self.store.current_model(self.arm))

    async def _swap(self, served: Served) -> None:
        """Make a model the present one; requests that wait are answered by it."""

        def swap() -> None:
            self._overlay.sync()
            view = View(served, self._overlay, self._attributes)
            self._served, self._view = served, view
            self._settled = self._overlay.version
            self.model_version, self.model_loaded = served.version, served.loaded.isoformat(timespec="seconds")

        await self._thread.call(swap)
        log.info("model %d is loaded (%s)", served.version, self.arm)

    def _kept(self, ask: Ask) -> dict[str, Any] | None:
        """Return a list that is kept, if nothing was committed since the model thread looked."""
        view = self._view
        if view is None or self._thread.closed or self.store.version() != self._settled:
            return None
        kept = view.kept(ask)
        return None if kept is None else answers.recommendation(view, *kept)

    # In the model thread

    def _recommend(self, asks: Sequence[Ask]) -> Sequence[dict[str, Any] | Exception]:
        return answers.recommend(self._current(), asks)

    def _current(self) -> View:
        """Return the view of the present model with all events that are stored."""
        if self._view is None or self._served is None:
            raise NotReadyError("no model is loaded yet; repeat the request in a moment.")
        if self._overlay.sync():
            self._note_newer_model()
            touched = self._overlay.take_touched()
            if self._view.outdated(touched):
                self._view = self._view.renewed()
            self._view.refresh_rules()
            self._settled = self._overlay.version
        return self._view

    def _note_newer_model(self) -> None:
        if self._behind and self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_following)

    @property
    def _behind(self) -> bool:
        """Whether a newer model was published that this worker may be able to load."""
        newest = self._overlay.model
        return newest is not None and newest.version not in (self.model_version, self._refused)

    def _start_following(self) -> None:
        if self._behind and (self._following is None or self._following.done()):
            self._following = asyncio.ensure_future(self._follow_or_log())

    async def _follow_or_log(self) -> None:
        async with self._reloading:
            try:
                await self._follow()
            except RequestError as problem:
                log.error("the newest model cannot be loaded: %s", problem)

    # Threads

    async def _call(self, function: Callable[[View], T]) -> T:
        """Return what a function of the view returns in the model thread."""
        return await self._thread.call(lambda: function(self._current()))

    async def _load(self, function: Callable[[], T]) -> T:
        """Return what a function returns in the thread that reads files."""
        return await asyncio.get_running_loop().run_in_executor(self._loader, function)

    def _require_served(self) -> Served:
        if self._served is None:
            raise NotReadyError("no model is loaded yet; repeat the request in a moment.")
        return self._served


def _rules(only: Sequence[RawId] | None, exclude: Sequence[RawId], max_per: Mapping[str, int] | None) -> dict[str, Any]:
    return {"only": None if only is None else tuple(only), "exclude": tuple(exclude), "max_per": dict(max_per or {})}

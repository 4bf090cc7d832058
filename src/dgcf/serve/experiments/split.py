"""An engine whose users are split among arms: each request goes to the engine of the user's arm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from dgcf.errors import ConfigError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Side
from dgcf.serve.engine import Engine
from dgcf.serve.engine.asks import Ask
from dgcf.serve.errors import RequestError, UnknownError
from dgcf.serve.events.records import MAIN, POSITIVE
from dgcf.serve.events.store import EventStore
from dgcf.serve.experiments.assignment import Assignment
from dgcf.serve.experiments.exposures import Exposures
from dgcf.serve.experiments.shadow import Shadow
from dgcf.serve.experiments.tally import ArmField, Tally
from dgcf.serve.settings import Settings

log = logging.getLogger("dgcf.serve")


def engine_of(settings: Settings, store: EventStore, tally: Tally | None = None) -> Engine:
    """Return the engine of a service: one model, or a split among several."""
    return SplitEngine(settings, store, tally or Tally()) if settings.more.models else Engine(settings, store)


class SplitEngine(Engine):
    """The engine of the main arm, which passes on what belongs to users of other arms.

    Each arm has an engine of its own: a model, its view of the events, and a thread. ``tally``: counters of arms.
    """

    def __init__(self, settings: Settings, store: EventStore, tally: Tally) -> None:
        super().__init__(settings, store)
        more = settings.more
        self.tally = tally
        self._engines = {arm: Engine(settings, store, arm) for arm in more.models}
        self._shadows = [Shadow(self._engines[arm], more.share, tally) for arm in more.shadows]
        self._assignment = None if more.experiment is None else Assignment(more.experiment, more.weights)
        self._exposures = None
        if more.experiment is not None:
            self._exposures = Exposures(store, more.experiment, self._overlay, tally)
        self._tasks: list[asyncio.Task[None]] = []
        self._counts = False  # whether lists are for users: the first one is made to warm up

    async def start(self, *, fresh: bool = True) -> None:
        """Load the models of all arms; raise ``ConfigError`` if they were trained on different data."""
        for engine in self._engines.values():
            await engine.start(fresh=fresh)
        await super().start(fresh=fresh)
        if fresh:
            await self._check_data()
        working = [shadow.run() for shadow in self._shadows]
        working += [] if self._exposures is None else [self._exposures.run()]
        self._tasks = [asyncio.create_task(work) for work in working]
        self._counts = True

    async def _check_data(self) -> None:
        """Refuse an experiment that begins with arms of different data; one that has begun goes on after a reload."""
        experiment, own = self.settings.more.experiment, await _fingerprint(self)
        for arm, engine in self._engines.items():
            other = await _fingerprint(engine)
            if experiment is None or arm in self.settings.more.shadows or other == own:
                continue
            if await self._load(lambda: self.store.experiment_counts(experiment, POSITIVE)):
                log.warning("the model of the arm %s was trained on other data than the main one", arm)
                continue
            raise ConfigError(
                f"the model of the arm {arm}, {engine.path}, was trained on other data (fingerprint {other[:12]}) than "
                f"the main one (fingerprint {own[:12]}); train both on the same dataset."
            )

    async def close(self) -> None:
        """Answer what waits, store the exposures, and end the threads."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait([task])
        if self._exposures is not None:
            await self._exposures.flush()
        for engine in self._engines.values():
            await engine.close()
        await super().close()

    # Arms

    def of(self, arm: str | None) -> Engine:
        """Return the engine of an arm or a shadow, that of the main arm for None."""
        if arm in (None, MAIN):
            return self
        if arm not in self._engines:
            raise RequestError(f"there is no arm {arm!r}; the service has {', '.join(self.settings.arms)}.")
        return self._engines[arm]

    def arm_of(self, user: RawId | None) -> str:
        """Return the arm of a user or visitor; the main one without."""
        return MAIN if user is None or self._assignment is None else self._assignment.arm_of(user)

    async def rank(self, ask: Ask) -> dict[str, Any]:
        """Return the answer of the user's arm to a list, and note that the user got it."""
        arm = self.arm_of(ask.visitor if ask.user is None else ask.user)
        answer = await (super().rank(ask) if arm == MAIN else self._engines[arm].rank(ask))
        self._note(ask, arm, answer)
        return answer

    async def rank_all(self, asks: Sequence[Ask]) -> list[dict[str, Any]]:
        """Return the answers to several lists, each of the user's arm."""
        arms = [self.arm_of(ask.user) for ask in asks]
        answers: dict[int, dict[str, Any]] = {}
        for arm in dict.fromkeys(arms):
            places = [place for place, own in enumerate(arms) if own == arm]
            chosen = [asks[place] for place in places]
            lists = await (super().rank_all(chosen) if arm == MAIN else self._engines[arm].rank_all(chosen))
            answers |= zip(places, lists, strict=True)
        for place, (ask, arm) in enumerate(zip(asks, arms, strict=True)):
            self._note(ask, arm, answers[place])
        return [answers[place] for place in range(len(asks))]

    def _note(self, ask: Ask, arm: str, answer: dict[str, Any]) -> None:
        """Name the arm in an answer, count it, and note what experiment and shadows need of it."""
        answer["arm"] = arm
        if not self._counts:
            return
        self.tally.add(arm, ArmField.REQUESTS)
        if self._exposures is not None and ask.user is not None:
            self._exposures.note(ask.user, arm)
        for shadow in self._shadows:
            shadow.offer(ask, answer)

    async def similar(self, side: Side, name: RawId, *, k: int = 10) -> dict[str, Any]:
        """Return similar users by the user's arm, or similar items by the main one."""
        arm = self.arm_of(name if side == "user" else None)
        own = super().similar if arm == MAIN else self._engines[arm].similar
        return await own(side, name, k=k) | {"arm": arm}

    async def explain(self, user: RawId, item: RawId, *, top: int = 5) -> dict[str, Any]:
        """Return the parts of an item's score by the user's arm."""
        arm = self.arm_of(user)
        own = super().explain if arm == MAIN else self._engines[arm].explain
        return await own(user, item, top=top) | {"arm": arm}

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
        """Return the parts of an item's score by the arm of the user or visitor."""
        arm = self.arm_of(visitor if user is None else user)
        own = super().explain_for if arm == MAIN else self._engines[arm].explain_for
        return await own(items, negative, item, user=user, top=top) | {"arm": arm}

    async def user(self, user: RawId, limit: int = 100) -> dict[str, Any]:
        """Return the history of a user as the user's arm knows it."""
        arm = self.arm_of(user)
        own = super().user if arm == MAIN else self._engines[arm].user
        return await own(user, limit) | {"arm": arm}

    async def forget(self, user: RawId) -> dict[str, Any]:
        """Delete events and exposures of a user, also of one who only got lists, and forget the user."""
        if self._exposures is not None:
            await self._exposures.flush()
        exposed = self.store.is_exposed(str(user))
        try:
            return await super().forget(user)
        except UnknownError:  # other workers may not have written an exposure yet: they will not, once it is forgotten
            await asyncio.wrap_future(self.store.forget(str(user)))
            if not exposed:
                raise
            return {"user": user, "events": 0}


async def _fingerprint(engine: Engine) -> str:
    """Return the fingerprint of the data that the model of an engine was trained on."""
    return str((await engine.model())["dataset"]["fingerprint"])

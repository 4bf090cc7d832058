"""The follower of a store: a thread that reads what was committed, so that requests find it in memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dgcf.serve.errors import RequestError, StoreDownError
from dgcf.serve.events.address import Address
from dgcf.serve.events.commits import Commits
from dgcf.serve.events.postgres.link import DatabaseConnection, Link, down
from dgcf.serve.events.records import Changes, ModelRow, Position

POLL_SECONDS = 0.2
"""Seconds between two looks at what other servers have committed."""
FRESH_SECONDS = 1.0
"""How long a request waits at most for what its own server has committed."""
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
COMMITS = "SELECT value FROM counters WHERE name = 'commits'"
Read = Callable[[DatabaseConnection, Position, str], Changes]
log = logging.getLogger("dgcf.serve")


@dataclass
class Feed:
    """What is read for one arm: all up to ``commit`` was taken up to ``position``, or is in ``ready``."""

    position: Position
    commit: int
    model: ModelRow | None
    ready: Changes | None = None

    def take(self) -> Changes:
        changes, self.ready = self.ready, None
        if changes is None:
            return Changes(self.position, False, [], {}, set(), {}, self.model)
        self.position, self.model = changes.position, changes.model
        return changes


class Follower:
    """Reads the changes of the arms that were read before; ``read`` returns those since a position."""

    def __init__(self, address: Address, read: Read, commits: Commits) -> None:
        self._address, self._read, self._commits = address, read, commits
        self._link = Link(address)
        self._feeds: dict[str, Feed] = {}
        self._polled = self._begun = self._done = 0
        self._lost = False
        self._down: RequestError | None = None
        self._closed = False
        self._wake = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dgcf-follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join()
        self._link.close()

    def version(self) -> int:
        """Return the number of the newest commit that is known."""
        return max(self._commits.newest(), self._polled)

    def begin(self, arm: str, changes: Changes, commit: int) -> None:
        """Read the changes of an arm that come after these, which are those up to a commit."""
        with self._news:
            self._feeds[arm] = Feed(changes.position, commit, changes.model)
            self._polled = max(self._polled, commit)

    def take(self, arm: str, since: Position) -> Changes | None:
        """Return the changes since a position, with all commits that are known; None if it is not the one before.

        Waits for commits of this server that are not read yet; raises ``StoreDownError`` if the database is down.
        """
        with self._news:
            feed = self._feeds.get(arm)
            if feed is None or feed.position != since:
                return None
            wanted = self.version()
            if feed.commit < wanted and self._down is None:
                look = self._begun + 1  # one that begins from now on
                self._wake.set()
                if not self._news.wait_for(
                    lambda: feed.commit >= wanted or self._done >= look or self._down is not None, FRESH_SECONDS
                ):
                    self._down = down(self._address, f"no answer within {FRESH_SECONDS:g} s")
            if feed.commit < wanted and self._down is not None:
                raise StoreDownError(str(self._down))
            return feed.take()

    def _ended(self) -> bool:
        """Wait until something is to be read; return whether the follower is closed."""
        self._wake.wait(POLL_SECONDS)
        self._wake.clear()
        return self._closed

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended():
            try:
                complete = self._look()
            except RequestError as problem:
                self._note_problem(problem)
                time.sleep(POLL_SECONDS)
            else:
                self._note_answer()
                if not complete:
                    self._wake.set()

    def _look(self) -> bool:
        """Read what is new for each arm; return False if changes were taken meanwhile, so that more may be new."""
        with self._news:
            self._begun += 1
            own = self._commits.newest()
        with self._link.use() as con:
            commit = int(con.raw.execute(COMMITS).fetchall()[0][0])
            with self._news:
                behind = [(arm, feed, feed.position) for arm, feed in self._feeds.items() if feed.commit < commit]
            if behind:
                con.raw.execute(BEGIN)
                commit = int(con.raw.execute(COMMITS).fetchall()[0][0])
                read = [(feed, position, self._read(con, position, arm)) for arm, feed, position in behind]
                con.raw.execute("COMMIT")
            else:
                read = []
        with self._news:
            for feed, position, changes in read:
                if feed.position == position:
                    feed.ready, feed.commit = changes, commit
            self._polled = max(self._polled, commit)
            self._done = self._begun
            self._note_lost(commit < own)
            self._news.notify_all()
            return all(feed.commit >= self._polled for feed in self._feeds.values())

    def _note_lost(self, lost: bool) -> None:
        """Say once that the database is older than what this server has committed."""
        if lost and not self._lost:
            log.error(
                "the database %s has lost what was committed, as after a restored backup; restart all servers.",
                self._address.label,
            )
        self._lost = lost

    def _note_problem(self, problem: RequestError) -> None:
        with self._news:
            first, self._down = self._down is None, problem
            self._news.notify_all()
        if first:
            log.error("lists follow from the events that were read before: %s", problem)

    def _note_answer(self) -> None:
        with self._news:
            problem, self._down = self._down, None
        if problem is not None:
            log.warning("the database %s answers again", self._address.label)

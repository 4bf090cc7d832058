"""Statements of exposures: when users got the first list of an experiment, and what they did since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from dgcf.serve.events.connection import Connection
from dgcf.serve.events.records import ArmCounts, Exposure, user_digest
from dgcf.serve.events.statements import note_erased

_ADD = """
INSERT INTO exposures ("user", experiment, arm, first)
SELECT "user", :experiment, :arm, first FROM {given} AS given
WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE forgotten.digest = given.digest AND changed > :change)
ON CONFLICT DO NOTHING
"""
_COUNTS = """
SELECT arm, count(*), count(*) FILTER (WHERE n > 0), sum(n), min(first) FROM (
    SELECT arm, first, (
        SELECT count(*) FROM events
        WHERE events."user" = exposures."user" AND time >= first AND kind IN ({kinds})
    ) AS n
    FROM exposures WHERE experiment = :experiment
) AS exposed GROUP BY arm ORDER BY arm
"""


def add(con: Connection, experiment: str, new: Sequence[Exposure], change: int) -> dict[str, int]:
    """Store the exposures of users who have none yet; return their number by arm.

    Users that were forgotten after ``change`` are left out: they got their list before.
    """
    counts: dict[str, int] = {}
    for arm, group in groupby(sorted(new, key=lambda exposure: exposure.arm), key=lambda exposure: exposure.arm):
        rows = [(user, round(first * 1e6), user_digest(user)) for user, _, first in group]
        values = {"experiment": experiment, "arm": arm, "change": change, "rows": json.dumps(rows, ensure_ascii=False)}
        given = con.given(user="text", first="bigint", digest="text")
        counts[arm] = con.execute(_ADD.format(given=given), values).rowcount
    return counts


def expire(con: Connection, before: int, limit: int) -> int:
    """Delete up to ``limit`` exposures before a time; return their number."""
    oldest = 'SELECT "user", experiment FROM exposures WHERE first < ? ORDER BY first LIMIT ?'
    count = con.execute(f'DELETE FROM exposures WHERE ("user", experiment) IN ({oldest})', [before, limit]).rowcount
    if count:
        note_erased(con)
    return count


def counts(con: Connection, experiment: str, kinds: Sequence[str]) -> list[ArmCounts]:
    """Return the users of each arm, those with an event of these kinds since their exposure, and the events."""
    values = {f"kind{number}": kind for number, kind in enumerate(kinds)}
    query = _COUNTS.format(kinds=", ".join(f":{name}" for name in values))
    rows = con.execute(query, {"experiment": experiment, **values}).fetchall()
    return [ArmCounts(arm, users, active, int(events), since / 1e6) for arm, users, active, events, since in rows]

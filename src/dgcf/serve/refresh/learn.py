"""What the process of a refresh does: update the served model with events, check it, and save it; needs torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.data import Dataset
from dgcf.data.columns import ReadOptions
from dgcf.data.pairs import Pairs
from dgcf.data.sql import path_literal
from dgcf.errors import DgcfError
from dgcf.ids import user_digest
from dgcf.recommend import artifact
from dgcf.recommend.container import hash_of
from dgcf.recommend.forget import without_users
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.update import How, Parent, read_new_rows, updated
from dgcf.serve.engine.served import card_of, warm_up
from dgcf.serve.refresh.check import SHARE, Check, compare, likes_of
from dgcf.text import counted

HOW = How(held_out=0.0)
"""All pairs are trained on, for the usual epochs: the check holds out pairs of its own."""
Step = Callable[[str], None]
_WHOLE = "0|-?[1-9][0-9]{0,17}"


class RefusedError(DgcfError):
    """The refresh is refused for a reason that is one sentence."""

    kind = "refresh"


@dataclass(frozen=True)
class Orders:
    """``base``: the served artefact; ``events``: the export since; ``out``: the file to write.

    ``forgotten``: digests of users that leave the model. ``margin``: as in ``Check``.
    """

    base: Path
    events: Path
    out: Path
    forgotten: Collection[str]
    margin: float


@dataclass(frozen=True)
class New:
    """The rows of the events: ``fresh`` are the pairs that the base does not have, by user and item of ``rows``."""

    rows: Dataset
    fresh: Pairs

    @classmethod
    def of(cls, rows: Dataset, base: Snapshot) -> New:
        pairs, users, items = rows.train, rows.users.texts, rows.items.texts
        user = np.array([base.users.index_of(text) if text in base.users else -1 for text in users], dtype=np.int64)
        item = np.array([base.items.index_of(text) if text in base.items else -1 for text in items], dtype=np.int64)
        of_user, of_item = user[pairs.user_idx], item[pairs.indices]
        known = (of_user >= 0) & (of_item >= 0)
        known[known] = np.isin(of_user[known] * base.n_items + of_item[known], base.seen.keys())
        return cls(rows, pairs.where(~known))

    def cut(self) -> float | None:
        """Return the time from which on the newest share of the fresh pairs is; None if it is not after others."""
        times = self.fresh.time
        if times is None or len(times) < 2:
            return None
        cut = float(np.sort(times)[-max(1, round(SHARE * len(times)))])
        return cut if (times < cut).any() else None


def learn(orders: Orders, step: Step) -> dict[str, Any]:
    """Return what came of the refresh: its result, figures, and of a new model the checksum and the card."""
    started = time.perf_counter()
    step("read")
    base = _without_forgotten(artifact.load(orders.base), orders.forgotten)
    if not _keep_fitting(orders.events, base):
        return {"result": "unchanged", "detail": "no event has ids as those of the model, which are whole numbers."}
    new = New.of(read_new_rows(orders.events, Parent.of_snapshot(base, orders.base)), base)
    if not len(new.fresh):
        return {"result": "unchanged", "detail": f"no new pair in {counted(len(new.rows.train), 'event')}."}
    step("check")
    check = _checked(orders, base, new)
    if check is not None and check.worse:
        raise RefusedError(f"the update ranks worse: {check}; the served model stays.")
    step("update")
    snapshot = _updated(base, orders, new.rows)
    seconds = time.perf_counter() - started
    return {"result": "published", **_save(snapshot, orders.out, new, check, seconds, step)}


def _without_forgotten(base: Snapshot, forgotten: Collection[str]) -> Snapshot:
    gone = [user for user in base.users.texts if user_digest(user) in forgotten] if forgotten else []
    return without_users(base, gone, time.time()) if gone else base


def _keep_fitting(events: Path, base: Snapshot) -> int:
    """Drop events whose ids the vocabularies cannot take, and return the number of those left.

    Where the ids of the model are whole numbers, the service takes events with other ids too, but recommends none.
    """
    import duckdb

    integer = [name for name, ids in (("user", base.users), ("item", base.items)) if ids.kind == "integer"]
    condition = " AND ".join(f"regexp_full_match({name}, '{_WHOLE}')" for name in integer) or "true"
    kept = events.with_name("kept.parquet")
    with duckdb.connect() as con:
        chosen = f"SELECT * FROM read_parquet({path_literal(events)}) WHERE {condition} ORDER BY seq"
        (count,) = con.execute(f"COPY ({chosen}) TO {path_literal(kept, write=True)} (FORMAT parquet)").fetchone() or (
            0,
        )
    kept.replace(events)
    return int(count)


def _checked(orders: Orders, base: Snapshot, new: New) -> Check | None:
    """Return the comparison on the newest events with an update on the others; None if there are too few."""
    cut = new.cut()
    if cut is None or new.fresh.time is None:
        return None
    rest_rows = read_new_rows(
        orders.events, Parent.of_snapshot(base, orders.base), ReadOptions(where=f"timestamp < {cut!r}")
    )
    rest = likes_of(rest_rows.users, rest_rows.items, rest_rows.train)
    held = likes_of(new.rows.users, new.rows.items, new.fresh.where(new.fresh.time >= cut))
    held_out = sorted(set(held) - set(rest))
    return compare(base, _updated(base, orders, rest_rows), rest, held_out, orders.margin)


def _updated(base: Snapshot, orders: Orders, rows: Dataset) -> Snapshot:
    result = updated(Parent.of_snapshot(base, orders.base), rows, HOW, device="cpu")
    return base if result is None else result[0]


def _save(snapshot: Snapshot, out: Path, new: New, check: Check | None, seconds: float, step: Step) -> dict[str, Any]:
    """Save the update with the figures of the refresh, load it again as the service does, and return what it is."""
    step("save")
    why = "too few users have new events to compare the models" if check is None else str(check)
    about = {
        "new_pairs": len(new.fresh),
        "events": len(new.rows.train),
        "check": None if check is None else check.to_dict(),
        "seconds": round(seconds, 3),
    }
    artifact.save(replace(snapshot, about={**snapshot.about, "refresh": about}), out)
    prepared = Prepared(artifact.load(out))
    warm_up(prepared)
    detail = f"{counted(len(new.fresh), 'new pair')} learned; {why}."
    return {"detail": detail, "sha256": hash_of(out), "card": card_of(prepared), "figures": about}

"""The results of an experiment: rates of the arms, and their differences from the main one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from dgcf.serve.events.records import MAIN, ArmCounts
from dgcf.serve.experiments import statistics
from dgcf.serve.experiments.shadow import MILLION
from dgcf.serve.experiments.tally import ArmField, Tally
from dgcf.serve.settings import Arms

DIGITS = 6


def results(
    arms: Arms, counts: Sequence[ArmCounts], kinds: Sequence[str], versions: Callable[[str], int], tally: Tally
) -> dict[str, Any]:
    """Return the answer of ``/v1/experiments``; ``versions`` returns the version of an arm's model."""
    by_arm = {row.arm: row for row in counts}
    rows = [by_arm.get(arm, ArmCounts(arm, 0, 0, 0, 0.0)) for arm in arms.weights]
    since = min((row.since for row in rows if row.users), default=None)
    return {
        "experiment": arms.experiment,
        "arms": [_arm(row, arms.weights[row.arm], versions(row.arm)) for row in rows],
        "comparison": _comparisons(rows),
        "shadow": [_shadow(arm, versions(arm), tally) for arm in arms.shadows],
        "since": None if since is None else datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds"),
        "kinds": list(kinds),
        "alpha": statistics.ALPHA,
    }


def _arm(row: ArmCounts, weight: float, version: int) -> dict[str, Any]:
    share = statistics.rate(row.conversions, row.users)
    return {
        "arm": row.arm,
        "weight": weight,
        "version": version,
        "users": row.users,
        "conversions": row.conversions,
        "rate": _number(share.estimate),
        "low": _number(share.low),
        "high": _number(share.high),
        "events": row.events,
        "events_per_user": round(row.events / row.users, DIGITS) if row.users else 0.0,
    }


def _comparisons(rows: Sequence[ArmCounts]) -> list[dict[str, Any]]:
    """Return each other arm against the main one; together they err with probability ``ALPHA``."""
    main = next(row for row in rows if row.arm == MAIN)
    others = [row for row in rows if row.arm != MAIN]
    comparisons = []
    for row in others:
        gap = statistics.difference(
            row.conversions, row.users, main.conversions, main.users, statistics.ALPHA / len(others)
        )
        comparisons.append(
            {
                "arm": row.arm,
                "against": MAIN,
                "difference": _number(gap.estimate),
                "low": _number(gap.low),
                "high": _number(gap.high),
                "significant": bool(statistics.excludes_zero(gap)),
            }
        )
    return comparisons


def _shadow(arm: str, version: int, tally: Tally) -> dict[str, Any]:
    answers = tally.total(arm, ArmField.ANSWERS)
    most = max(answers, 1)
    return {
        "arm": arm,
        "version": version,
        "answers": answers,
        "overlap": round(tally.total(arm, ArmField.OVERLAP) / MILLION / most, DIGITS) if answers else None,
        "mean_ms": round(tally.total(arm, ArmField.NANOSECONDS) / 1e6 / most, 3) if answers else None,
        "dropped": tally.total(arm, ArmField.DROPPED),
    }


def _number(value: Any) -> float:
    return round(float(value), DIGITS)

"""Show what ``dgcf forget`` removed, what stays, and what is left to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgcf.cli.terminal import Table, notify, out


def draw(answer: Mapping[str, Any]) -> None:
    """Print a row for each place, then what stays in the models and what other places hold."""
    table = Table()
    for column in ("place", "kind", "users", "pairs", "held out", "events", "files"):
        table.add_column(column, justify="left" if column in ("place", "kind", "files") else "right")
    for place in answer["places"]:
        numbers = [f"{value:,}" for value in (len(place["users"]), *(place[name] for name in _COUNTS))]
        table.add_row(place["path"], place["kind"], *numbers, ", ".join(place["files"]))
    out.print(table)
    if not any(place["users"] for place in answer["places"]):
        out.print("nothing was left to remove: the users were forgotten before.")
    for place in answer["places"]:
        if place["stays"]:
            out.print(f"stays in {place['path']}: {place['stays']}", soft_wrap=True)
    if answer["measured"] is not None:
        _draw_measured(answer["measured"])
    for place in answer["places"]:
        for sentence in place["elsewhere"]:
            notify(f"note: {sentence}")


_COUNTS = ("pairs", "held_out", "events")


def _draw_measured(measured: Mapping[str, Any]) -> None:
    table = Table(title=f"top {measured['k']} of {measured['users']:,} other users, compared with {measured['model']}")
    for column in ("trained again", "same items", "same lists", "change of scores"):
        table.add_column(column, justify="left" if column == "trained again" else "right")
    rows = {"without the users": measured["without"], "with them, other seed": measured["by_chance"]}
    for name, change in rows.items():
        if change is not None:
            table.add_row(name, *(f"{change[part]:.2%}" for part in ("same_items", "same_lists", "scores")))
    out.print(table)

"""Show what ``dgcf update`` changed, and the metric before and after."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from dgcf.cli.terminal import Table, out
from dgcf.cli.views.data import draw_record


def draw(answer: Mapping[str, Any]) -> None:
    """Print the counts of an update, a table of its metric, and what to do next."""
    draw_record(answer["rows"])
    if not answer["updated"]:
        known = answer["known_pairs"]
        why = f"all {known:,} pairs are known, and none expires" if known else "there are no events"
        out.print(f"nothing to update: {why}; {answer['run']} is up to date.", soft_wrap=True)
        return
    counts = {"new": "new_pairs", "known before": "known_pairs", "expired": "expired_pairs"}
    pairs = ", ".join(f"{answer[name]:,} {word}" for word, name in counts.items())
    out.print(f"pairs: {pairs}", soft_wrap=True)
    out.print(f"new users: {answer['new_users']:,}; new items: {answer['new_items']:,}", soft_wrap=True)
    _draw_metric(answer)
    run = quote(answer["run"])
    out.print(f"run: {answer['run']}", soft_wrap=True)
    out.print(f"next: dgcf recommend {run} --all --out all.parquet, or dgcf export {run} --to dgcf", soft_wrap=True)


def _draw_metric(answer: Mapping[str, Any]) -> None:
    metric, update = answer["metric"], answer["update"]
    if not answer["held_out"]:
        out.print("not measured: no new pair is held out.")
        return
    which = "newest" if answer["held_out_by"] == "time" else "random"
    table = Table(title=f"{metric}, {answer['held_out']:,} held-out pairs ({which})")
    for column in ("model", metric, "epochs", "seconds"):
        table.add_column(column, justify="left" if column == "model" else "right")
    if metric in update["before"]:
        table.add_row("only folded in", f"{update['before'][metric]:.4f}", "0", "")
    seconds = f"{update['seconds']:.1f}"
    table.add_row("updated", f"{update['after'][metric]:.4f}", str(update["epochs"]), seconds)
    if scratch := answer.get("scratch"):
        value = f"{scratch['validation'][metric]:.4f}"
        table.add_row("from scratch", value, str(scratch["epochs"]), f"{scratch['seconds']:.1f}")
    out.print(table)

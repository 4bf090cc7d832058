"""``dgcf recommend``: what to look at next, for a known user, for somebody with a few items, or for everybody."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from dgcf.cli.inputs import K, Overwrite, RunData, RunOrArtifact, load_recommender
from dgcf.cli.terminal import AsJson, emit, notify, out, progress
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.recommend import Recommender, Table


def register(root: typer.Typer) -> None:
    root.command("recommend")(recommend)


def recommend(
    run: RunOrArtifact,
    user: Annotated[str | None, typer.Option(help="A user's id.", show_default=False)] = None,
    items: Annotated[
        list[str] | None,
        typer.Option(help="An item somebody likes, by id or title; repeatable. With --user: what is new."),
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All users, into the file --out.")] = False,
    k: K = 10,
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --all: a .parquet, .csv or .jsonl file.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Recommend nothing but these items; repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Never recommend this item; repeatable.")] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Also recommend what the user has already.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Give a reason with each recommendation.")] = False,
    data: RunData = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recommend items: to a user of the dataset, to a stranger who likes some items, or to all users at once.

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --user 196 -k 5`

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --items "Toy Story" --items "Aladdin" --why`
    """
    if everybody:
        if user is not None or items or only or exclude or why:
            raise ConfigError("--all goes with -k, --out and --seen; leave out the options for one person.")
        _everybody(run, data, k, target, seen, overwrite, as_json)
        return
    if target is not None:
        raise ConfigError("--out goes with --all; for one person, use --json and the shell.")
    if user is None and not items:
        raise ConfigError("nobody was named; give --user ID, --items ITEM (repeatable), or --all with --out.")
    rec = load_recommender(run, data)
    if items:
        table = rec.recommend_for(items, k, user=user, exclude_seen=not seen, candidates=only, exclude=exclude)
    else:
        table = rec.recommend(user or "", k, exclude_seen=not seen, items=only, exclude=exclude)
    _answer(rec, table, user, items, why, as_json)


def _answer(
    rec: Recommender, table: Table, user: str | None, items: list[str] | None, why: bool, as_json: bool
) -> None:
    known = rec.snapshot
    rows: list[dict[str, Any]] = [
        {"item": row["item"], "title": row.get("title"), "score": row["score"], "rank": row["rank"]} for row in table
    ]
    for row in rows if why else []:
        item = row["item"]
        row["why"] = (rec.explain_for(items, item, user=user) if items else rec.explain(user or "", item)).text()
    result: dict[str, Any] = {
        "user": None if user is None else known.users.id_of(rec.names["user"].find(user)),
        "recommendations": rows,
        "notes": list(table.notes),
    }
    if items:
        index = dict.fromkeys(rec.names["item"].find_all(items))
        result["items"] = [{"item": known.items.id_of(i), "title": known.items.title_of(i)} for i in index]

    def show() -> None:
        out.print(draw(rows, f"For {_whom(result)}", why))
        for note in table.notes:
            notify(f"note: {note}")

    emit(result, as_json, show)


def _whom(result: dict[str, Any]) -> str:
    liked = ", ".join(item["title"] for item in result.get("items", []))
    if result["user"] is None:
        return f"somebody who likes {liked}"
    return f"user {result['user']}" + (f", who now also likes {liked}" if liked else "")


def draw(rows: list[dict[str, Any]], heading: str, why: bool = False) -> RichTable:
    """Rows with item, title, score and rank, and their reasons where they are given."""
    titled = any(row["title"] for row in rows)
    table = RichTable(title=heading)
    table.add_column("", justify="right")
    table.add_column("id")
    for name in (["title"] if titled else []) + (["why"] if why else []):
        table.add_column(name, overflow="fold")
    table.add_column("score", justify="right")
    for row in rows:
        # The title stands before the reason already.
        reason = [row["why"].removeprefix(f"{row['title'] or row['item']}: ")] if why else []
        words = [str(row["rank"]), str(row["item"]), *([row["title"]] if titled else []), *reason]
        table.add_row(*words, f"{row['score']:.4f}")
    return table


def _everybody(
    run: Path, data: str | None, k: int, target: Path | None, seen: bool, overwrite: bool, as_json: bool
) -> None:
    from dgcf.recommend.batch import Batch

    if target is None:
        raise ConfigError("--all writes a file; name it with --out, such as --out recommendations.parquet.")
    rec = load_recommender(run, data)
    began = time.perf_counter()
    with progress(f"recommending to {rec.snapshot.n_users:,} users", rec.snapshot.n_users) as update:
        result = Batch(rec.snapshot, k, exclude_seen=not seen).write(target, overwrite=overwrite, update=update)
    result |= {"k": k, "seconds": time.perf_counter() - began}

    def show() -> None:
        if k > rec.snapshot.n_items:
            notify(f"note: {k} were asked for, but there are {rec.snapshot.n_items:,} items; the lists are shorter.")
        if result["resumed"]:
            notify(f"note: {result['resumed']} chunks were there from an earlier try.")
        out.print(
            f"{result['rows']:,} recommendations for {result['users']:,} users in {result['seconds']:.1f} s, "
            f"written to {target}",
            soft_wrap=True,
        )

    emit(result, as_json, show)

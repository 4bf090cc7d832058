"""``dgcf similar``: what is like an item, or who is like a user."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dgcf.cli.inputs import K, RunData, RunOrArtifact, load_recommender
from dgcf.cli.recommend import draw
from dgcf.cli.terminal import AsJson, emit, notify, out
from dgcf.errors import ConfigError


def register(root: typer.Typer) -> None:
    root.command("similar")(similar)


def similar(
    run: RunOrArtifact,
    item: Annotated[str | None, typer.Option(help="An item, by id or title.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="A user, by id.", show_default=False)] = None,
    k: K = 10,
    data: RunData = None,
    as_json: AsJson = False,
) -> None:
    """Show the nearest neighbours of an item or of a user, by the cosine of their embeddings; for a model that weighs
    items by items (ease, item-knn), the items that an item speaks for most.

    Example: `dgcf similar runs/ml-100k-dgcf-seed0 --item "Star Wars"`
    """
    if (item is None) == (user is None):
        raise ConfigError("name one thing to compare with: --item ITEM or --user ID.")
    rec = load_recommender(run, data)
    side = "item" if item is not None else "user"
    table = rec.similar_items(item, k) if item is not None else rec.similar_users(user or "", k)
    vocabulary = rec.snapshot.vocabulary("item" if item is not None else "user")
    index = rec.names["item" if item is not None else "user"].find(item if item is not None else user or "")
    rows: list[dict[str, Any]] = [
        {side: row[side], "title": row.get("title"), "score": row["score"], "rank": row["rank"]} for row in table
    ]
    title = vocabulary.title_of(index) if vocabulary.titles else None
    result = {side: vocabulary.id_of(index), "title": title, "similar": rows, "notes": list(table.notes)}

    def show() -> None:
        out.print(draw([{**row, "item": row[side]} for row in rows], f"Like {vocabulary.title_of(index)}"))
        for note in table.notes:
            notify(f"note: {note}")

    emit(result, as_json, show)

"""``dgcf explain``: why an item has the score that it has, split exactly over where the score came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgcf.cli.inputs import RunData, RunOrArtifact, load_recommender
from dgcf.cli.terminal import AsJson, emit, out
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.recommend import Explanation


def register(root: typer.Typer) -> None:
    root.command("explain")(explain)


def explain(
    run: RunOrArtifact,
    item: Annotated[str, typer.Option(help="The item to explain, by id or title.", show_default=False)],
    user: Annotated[str | None, typer.Option(help="A user's id.", show_default=False)] = None,
    items: Annotated[
        list[str] | None, typer.Option(help="What a stranger likes, by id or title; repeatable.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(help="Greatest parts of each kind to show, the rest as one; 0 shows all.")] = 0,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw the parts as bars, into --out.")] = False,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf; implies --plot.", show_default="why.png"),
    ] = None,
    data: RunData = None,
    as_json: AsJson = False,
) -> None:
    """Split a score over the user's own items, over similar users and over the user's own prior, and by layer. A model
    that knows people by their items alone (ease, item-knn, ials) has reasons of the first kind only.

    Example: `dgcf explain runs/ml-100k-dgcf-seed0 --user 196 --item "Fargo" --plot`
    """
    if user is None and not items:
        raise ConfigError("nobody was named; give --user ID, or --items ITEM (repeatable) for a stranger.")
    if top < 0:
        raise ConfigError(f"--top is {top}; give a whole number from 0 on.")
    rec = load_recommender(run, data)
    found = rec.explain_for(items, item, user=user) if items else rec.explain(user or "", item)
    picture = target or (Path("why.png") if plot else None)
    if picture is not None:
        from dgcf.recommend.plots import draw_bars

        draw_bars(found, picture)
    shown = found.top(top) if top else found
    result = shown.to_dict() | {"plot": None if picture is None else str(picture)}
    emit(result, as_json, lambda: _draw(found, top or 5, picture))


def _draw(found: Explanation, top: int, picture: Path | None) -> None:
    out.print(found.text(), soft_wrap=True)
    out.print(found.top(top).table())
    layers = ", ".join(f"{number}: {value:.4f}" for number, value in enumerate(found.by_layer))
    out.print(f"by layer: {layers}; unexplained: {found.residual:.1e}", soft_wrap=True)
    if picture is not None:
        out.print(f"drawn to {picture}", soft_wrap=True)

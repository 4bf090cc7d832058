"""``dgcf explain``: split the score of an item exactly into its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dgcf.cli.inputs import RunData, RunOrArtifact, User, UserItems, load_recommender, out_option
from dgcf.cli.terminal import AsJson, emit
from dgcf.cli.views.recommend import draw_explanation
from dgcf.errors import ConfigError

SHOWN_PARTS = 5
"""Parts of each kind that are shown without --top."""


def command(
    run: RunOrArtifact,
    item: Annotated[str, Option(help="Item to explain, by id or title.", show_default=False)],
    user: User = None,
    items: UserItems = None,
    top: Annotated[
        int | None,
        Option(
            help="Parts of each kind to give, largest first; 0 gives all.",
            show_default=f"{SHOWN_PARTS}, and all with --json",
        ),
    ] = None,
    plot: Annotated[bool, Option("--plot", help="Also write a bar chart of the parts to --out.")] = False,
    target: Annotated[Path | None, out_option("Bar chart: .png, .svg or .pdf; implies --plot.", "why.png")] = None,
    data: RunData = None,
    as_json: AsJson = False,
) -> None:
    """Split a score into the parts of the user's items, of similar users and of the user's own prior, and by layer.

    Models that represent a user by the items alone (ease, item-knn, ials) have parts of the first kind only.

    Example: `dgcf explain runs/ml-100k-dgcf-seed0 --user 196 --item "Fargo" --plot`
    """
    if user is None and not items:
        raise ConfigError("no user was given; use --user ID, or --items ITEM (repeatable) for a new user.")
    if top is not None and top < 0:
        raise ConfigError(f"--top is {top}, expected 0 or more; give a whole number.")
    from dgcf.recommend import answers

    rec = load_recommender(run, data)
    explanation = answers.explain(rec, item, user=user, items=items or ())
    chart = target or (Path("why.png") if plot else None)
    if chart is not None:
        from dgcf.recommend.explain import draw_bars

        draw_bars(explanation, chart)
    shown = explanation.top(top) if top else explanation
    result = shown.to_dict() | {"plot": None if chart is None else str(chart)}
    emit(result, as_json, lambda: draw_explanation(explanation, SHOWN_PARTS if top is None else top, chart))

"""``dgcf similar``: the nearest neighbours of an item or a user."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from dgcf.cli.inputs import K, RunData, RunOrArtifact, load_recommender
from dgcf.cli.terminal import AsJson, emit
from dgcf.cli.views.recommend import draw_similar
from dgcf.errors import ConfigError


def command(
    run: RunOrArtifact,
    item: Annotated[str | None, Option(help="An item, by id or title.", show_default=False)] = None,
    user: Annotated[str | None, Option(help="A user, by id.", show_default=False)] = None,
    k: K = 10,
    data: RunData = None,
    as_json: AsJson = False,
) -> None:
    """Show the nearest neighbours of an item or a user by the cosine of their embeddings.

    Models with item-to-item weights (ease, item-knn) rank the items that an item recommends most. A composed ranking
    adds its item weights to the cosines of items.

    Example: `dgcf similar runs/ml-100k-dgcf-seed0 --item "Star Wars"`
    """
    if (item is None) == (user is None):
        raise ConfigError("expected either an item or a user; give --item ITEM or --user ID.")
    from dgcf.recommend import answers

    rec = load_recommender(run, data)
    answer = answers.similar(rec, "user", user, k) if user is not None else answers.similar(rec, "item", item or "", k)
    emit(answer, as_json, lambda: draw_similar(answer))

"""``dgcf recommend``: recommend items to a user, to a new user with some items, or to all users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dgcf.cli.inputs import K, Overwrite, RunData, RunOrArtifact, User, UserItems, load_recommender
from dgcf.cli.terminal import AsJson, emit, progress
from dgcf.cli.views import recommend as view
from dgcf.errors import ConfigError


def command(
    run: RunOrArtifact,
    user: User = None,
    items: UserItems = None,
    all_users: Annotated[bool, Option("--all", help="Recommend to all users; requires --out.")] = False,
    k: K = 10,
    target: Annotated[
        Path | None, Option("--out", "-o", help="File to write with --all: .parquet, .csv or .jsonl.")
    ] = None,
    only: Annotated[list[str] | None, Option(help="Recommend only from these items; repeat it for each.")] = None,
    exclude: Annotated[list[str] | None, Option(help="Never recommend this item; repeatable.")] = None,
    seen: Annotated[bool, Option("--seen", help="Also recommend items that the user has.")] = False,
    why: Annotated[bool, Option("--why", help="Explain each recommendation.")] = False,
    data: RunData = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recommend items to a user of the dataset, to a new user with some items, or to all users.

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --user 196 -k 5`

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --items "Toy Story" --items "Aladdin" --why`
    """
    if all_users:
        if user is not None or items or only or exclude or why:
            raise ConfigError("--all accepts only -k, --out and --seen; leave out the options for one user.")
        _recommend_all(run, data, k, target, seen, overwrite, as_json)
        return
    if target is not None:
        raise ConfigError("--out requires --all; for one user, redirect the output of --json.")
    if user is None and not items:
        raise ConfigError("no user was given; use --user ID, --items ITEM (repeatable), or --all with --out.")
    from dgcf.recommend import answers

    rec = load_recommender(run, data)
    answer = answers.recommend(
        rec, user=user, items=items or (), k=k, exclude_seen=not seen, only=only, exclude=exclude, why=why
    )
    emit(answer, as_json, lambda: view.draw(answer))


def _recommend_all(
    run: Path, data: str | None, k: int, target: Path | None, seen: bool, overwrite: bool, as_json: bool
) -> None:
    from dgcf.recommend import answers

    if target is None:
        raise ConfigError("--all requires a file; name it with --out, such as --out recommendations.parquet.")
    rec = load_recommender(run, data)
    with progress(f"recommending to {rec.snapshot.n_users:,} users", rec.snapshot.n_users) as update:
        result = answers.recommend_all(rec, target, k=k, exclude_seen=not seen, overwrite=overwrite, update=update)
    emit(result, as_json, lambda: view.draw_batch(result, rec.snapshot.n_items, target))

"""``dgcf recommend``: recommend items to users, to a new user with some items, or to all users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Option

from dgcf.cli.inputs import K, Overwrite, RunData, RunOrArtifact, UserItems, load_recommender
from dgcf.cli.terminal import AsJson, emit, progress
from dgcf.cli.views import recommend as view
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.data import Vocabulary
    from dgcf.recommend.lookup import Unknown
    from dgcf.recommend.rules import RuleArguments, Rules

RULES = "Rules"


def command(
    run: RunOrArtifact,
    users: Annotated[list[str] | None, Option("--user", help="A user's id; repeatable.", show_default=False)] = None,
    items: UserItems = None,
    all_users: Annotated[bool, Option("--all", help="Recommend to all users; requires --out.")] = False,
    k: K = 10,
    target: Annotated[
        Path | None, Option("--out", "-o", help="File to write with --all: .parquet, .csv or .jsonl.")
    ] = None,
    seen: Annotated[bool, Option("--seen", help="Also recommend items that the user has.")] = False,
    unknown: Annotated[
        str,
        Option(
            help="An id not in the training data: an error (raise), left out (skip), or popular items are recommended "
            "(popular)."
        ),
    ] = "raise",
    why: Annotated[bool, Option("--why", help="Explain each recommendation.")] = False,
    only: Annotated[
        list[str] | None,
        Option(
            help="Recommend only these items: a file of ids (a line each, or a CSV or Parquet table), or an item; "
            "repeatable.",
            rich_help_panel=RULES,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        Option(help="Never recommend these items: a file of ids, or an item; repeatable.", rich_help_panel=RULES),
    ] = None,
    items_table: Annotated[
        Path | None,
        Option(help="Table of items (CSV or Parquet) for --where and --max-per.", rich_help_panel=RULES),
    ] = None,
    where: Annotated[
        str | None,
        Option(
            help='Recommend only items whose row satisfies this condition, such as "stock > 0".', rich_help_panel=RULES
        ),
    ] = None,
    max_per: Annotated[
        list[str] | None,
        Option(
            metavar="COLUMN=N",
            help="At most N items of a list with the same value of a column, such as brand=2; repeatable.",
            rich_help_panel=RULES,
        ),
    ] = None,
    boost: Annotated[
        Path | None,
        Option(
            help="Table with the columns item and boost, to add to the scores; 1 is the difference between a user's "
            "best and 100th best score.",
            rich_help_panel=RULES,
        ),
    ] = None,
    mmr: Annotated[
        float,
        Option(
            help="Re-rank: weight, 0 to 1, of being unlike the items before in the list (maximal marginal relevance).",
            rich_help_panel=RULES,
        ),
    ] = 0.0,
    mmr_candidates: Annotated[
        int, Option(help="Number of best items that --mmr re-ranks.", rich_help_panel=RULES)
    ] = 100,
    item_col: Annotated[
        str | None,
        Option(
            help="Column of the item in these files; found by usual names, and by that of the training data.",
            rich_help_panel=RULES,
            show_default=False,
        ),
    ] = None,
    encoding: Annotated[str, Option(help="Encoding of these files, such as windows-1252.", rich_help_panel=RULES)] = (
        "utf-8"
    ),
    data: RunData = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recommend items to users of the dataset, to a new user with some items, or to all users.

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --user 196 -k 5`

    Example: `dgcf recommend runs/ml-100k-dgcf-seed0 --items "Toy Story" --items "Aladdin" --why`

    Example: `dgcf recommend shop.dgcf --all --out all.csv --items-table shop.csv --where "stock > 0" --max-per brand=2`
    """
    if all_users and (users or items or why):
        raise ConfigError("--all recommends to all users; leave out the options for one user: --user, --items, --why.")
    if all_users and target is None:
        raise ConfigError("--all requires a file; name it with --out, such as --out recommendations.parquet.")
    if not all_users and target is not None:
        raise ConfigError("--out requires --all; for one user, redirect the output of --json.")
    if not all_users and not users and not items:
        raise ConfigError("no user was given; use --user ID, --items ITEM (repeatable), or --all with --out.")
    if items and users and len(users) > 1:
        raise ConfigError("--items adds to one user's items; give one --user with it, or none for a new user.")
    given = _arguments(items_table, where, max_per, boost, mmr, mmr_candidates)
    reading = _reading(item_col, encoding, files=bool(only or exclude or items_table or boost))
    rec = load_recommender(run, data)
    rules = _rules(given, reading, only, exclude, rec.snapshot.items)
    from dgcf.recommend import answers

    new = cast("Unknown", unknown)  # another word is refused where users are looked up
    if target is not None:
        with progress(f"recommending to {rec.snapshot.n_users:,} users", rec.snapshot.n_users) as update:
            result = answers.recommend_all(
                rec, target, k=k, exclude_seen=not seen, rules=rules, overwrite=overwrite, update=update
            )
        emit(result, as_json, lambda: view.draw_batch(result, rec.snapshot.n_items, target))
    elif users and len(users) > 1:
        several = answers.recommend_users(rec, users, k=k, exclude_seen=not seen, unknown=new, rules=rules, why=why)
        emit(several, as_json, lambda: view.draw_users(several))
    else:
        user = users[0] if users else None
        answer = answers.recommend(
            rec, user=user, items=items or (), k=k, exclude_seen=not seen, unknown=new, rules=rules, why=why
        )
        emit(answer, as_json, lambda: view.draw(answer))


def _arguments(
    items_table: Path | None,
    where: str | None,
    max_per: list[str] | None,
    boost: Path | None,
    mmr: float,
    mmr_candidates: int,
) -> RuleArguments:
    """Return the rules that need no ids; refuse what is out of range before the recommender is loaded."""
    from dgcf.recommend.rules import Rules

    given: RuleArguments = {"mmr": mmr, "mmr_candidates": mmr_candidates} if mmr else {}
    if items_table is not None:
        given["items_table"] = items_table
    if where is not None:
        given["where"] = where
    if max_per:
        given["max_per"] = _limits(max_per)
    if boost is not None:
        given["boost"] = boost
    Rules(**given)
    return given


def _reading(item_col: str | None, encoding: str, *, files: bool) -> RuleArguments:
    """Return how to read the files of rules; refuse an option without a file."""
    given: RuleArguments = {}
    if item_col is not None:
        given["item_col"] = item_col
    if encoding != "utf-8":
        given["encoding"] = encoding
    if given and not files:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{options} is for the files of rules; give --only, --exclude, --items-table or --boost.")
    return given


def _rules(
    given: RuleArguments,
    reading: RuleArguments,
    only: list[str] | None,
    exclude: list[str] | None,
    catalogue: Vocabulary,
) -> Rules | None:
    """Return all rules, or None if there are none."""
    from dgcf.recommend.rules import Rules

    if only:
        given["only"] = _items(only, catalogue)
    if exclude:
        given["exclude"] = _items(exclude, catalogue)
    given |= reading
    return Rules(**given) if given else None


def _items(given: list[str], catalogue: Vocabulary) -> list[str | int | Path]:
    """Return items, and files as paths: a value is an item's id, else an existing file, else an item's title."""
    from dgcf.recommend.item_tables import TABLES

    files = (Path(value) for value in given)
    return [
        path if value not in catalogue and (path.is_file() or path.suffix.lower() in (*TABLES, ".txt")) else value
        for value, path in zip(given, files, strict=True)
    ]


def _limits(given: list[str]) -> dict[str, int]:
    """Return the limits of ``--max-per``."""
    limits: dict[str, int] = {}
    for text in given:
        column, equals, number = text.rpartition("=")
        if not (column and equals) or not number.strip().isdecimal():
            raise ConfigError(f"--max-per got {text!r}, expected a column and a whole number, such as brand=2.")
        if column in limits:
            raise ConfigError(f"--max-per limits {column!r} more than once; give one number for each column.")
        limits[column] = int(number)
    return limits

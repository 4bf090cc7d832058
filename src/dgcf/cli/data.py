"""``dgcf data``: list, fetch, describe, prepare and convert datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from dgcf.cli.inputs import Data
from dgcf.cli.read_options import PANEL as READING
from dgcf.cli.read_options import reads_a_file
from dgcf.cli.terminal import AsJson, emit, notify, out, progress, warn
from dgcf.data import Dataset, catalog, load
from dgcf.data.convert import CONVERSIONS, convert
from dgcf.data.interactions import RatingFilter
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split
from dgcf.data.statistics import Statistics, statistics
from dgcf.data.titles import read_titles
from dgcf.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="Datasets: list, fetch, describe, prepare, convert.\n\nExample: `dgcf data stats purchases.csv`",
)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="data")


FILTERS, SPLITTING = "Filters", "Split"


def _option(panel: str, *names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False)


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the known datasets, and which of them are already here.

    Example: `dgcf data list`
    """
    rows = [
        {
            "name": known.name,
            "summary": known.summary,
            "local": catalog.is_local(known),
            "licence": known.licence,
        }
        for known in catalog.CATALOG.values()
    ]

    def show() -> None:
        table = Table("name", "here", "what it is")
        for row in rows:
            table.add_row(str(row["name"]), "yes" if row["local"] else "no", str(row["summary"]))
        out.print(table)
        home = catalog.data_home()
        notify(f"Looked in {f'{home} (DGCF_DATA_HOME) and ' if home else ''}{catalog.cache_home()}.")

    emit({"datasets": rows}, as_json, show)


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="A known name (`dgcf data list`).", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Download a known dataset into the cache, checked by SHA-256; what is here already is only checked.

    Example: `dgcf data fetch ml-100k`
    """
    with progress(f"fetching {name}") as update:
        files = catalog.fetch(name, notify, update)
    result = {"name": name, "files": {role: str(path) for role, path in files.items()}}

    def show() -> None:
        if not files:
            out.print(f"{name} is generated; there is nothing to fetch.")
        for role, path in files.items():
            out.print(f"{role}: {path}", soft_wrap=True)

    emit(result, as_json, show)


@app.command("stats")
@reads_a_file
def show_statistics(
    data: Data,
    read: ReadOptions,
    as_json: AsJson = False,
) -> None:
    """Count what a dataset holds, and warn of what a careful person would want to know.

    A file that has no split yet is counted with the default one (70/10/20 per user, seed 0).

    Example: `dgcf data stats deoscirec/ml-1m`
    """
    with progress(f"reading {data}"):
        dataset = load(data, read=read, notify=notify)
        found = describe(dataset)
    if Path(data).exists() and not (Path(data) / "dataset.json").exists():
        _say_how_it_was_read(dataset)
    emit(found.to_dict(), as_json, lambda: draw(found))


def _say_how_it_was_read(dataset: Dataset) -> None:
    """What was found by looking, for the person who knows better."""
    for how in dataset.record.get("read", []):
        columns = ", ".join(f"{role} = {name!r}" for role, name in how.get("columns", {}).items())
        header = {True: ", with a header", False: ", without a header"}.get(how.get("header"), "")
        cut = f", cut at {how['delimiter']!r}" if "delimiter" in how else ""
        notify(f"read as {how['format']}{cut}{header}{': ' if columns else ''}{columns}")


def describe(dataset: Dataset) -> Statistics:
    """The statistics of a dataset, with what the catalogue knows of its content."""
    known_as, caveats = catalog.recognise(dataset)
    return statistics(dataset, known_as, caveats)


def draw(s: Statistics) -> None:
    table = Table(title=s.name, show_header=False)
    counts = [
        ("users", s.users),
        ("items", s.items),
        ("train", s.train),
        ("validation", s.validation),
        ("test", s.test),
    ]
    for name, count in counts:
        table.add_row(name, f"{count:,}")
    table.add_row("density", f"{s.density:.5f}")
    for name in ("users", "items"):
        spread = ", ".join(f"{share} {value:g}" for share, value in s.degrees[name].items() if share != "mean")
        table.add_row(f"training pairs of {name}", f"mean {s.degrees[name]['mean']:.1f}; {spread}")
    popular = [f"{part} {value:.1f}" for part, value in s.popularity.items() if value is not None]
    table.add_row("other users of a pair's item", ", ".join(popular))
    table.add_row("order of a user's pairs", "known" if s.ordered else "unknown")
    table.add_row("fingerprint", Text(s.fingerprint, overflow="fold"))
    table.add_row("known as", s.known_as or "–")
    out.print(table)
    for message in s.warnings:
        warn(message)


@app.command("prepare")
@reads_a_file
def prepare_dataset(
    data: Data,
    read: ReadOptions,
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.", show_default=False)],
    validation: Annotated[
        str | None,
        _option(SPLITTING, "--validation", text="A ready-made validation file (DATA is the training one)."),
    ] = None,
    test: Annotated[str | None, _option(SPLITTING, "--test", text="A ready-made test file.")] = None,
    split: Annotated[
        str | None,
        _option(
            SPLITTING,
            "--split",
            text="random, global, temporal, user-temporal, leave-k-out or none; by default the split "
            "that the data brings along, else random.",
        ),
    ] = None,
    ratios: Annotated[
        str | None, _option(SPLITTING, "--ratios", text="Shares of train, validation, test (0.7,0.1,0.2).")
    ] = None,
    leave: Annotated[int | None, _option(SPLITTING, "--leave", text="Pairs that leave-k-out leaves out (1).")] = None,
    seed: Annotated[int | None, _option(SPLITTING, "--seed", text="The split's seed (0).")] = None,
    keep_order: Annotated[
        bool,
        _option(
            READING,
            "--keep-order",
            text="Keep the order of each user's pairs, for the setting recency: by time or, in lines "
            "'user item item …', by place. Where times are known, a split by time keeps it anyway.",
        ),
    ] = False,
    min_rating: Annotated[float | None, _option(FILTERS, "--min-rating", text="Keep ratings of at least this.")] = None,
    ratings: Annotated[str | None, _option(FILTERS, "--ratings", text="Keep these ratings: `4,5`.")] = None,
    user_core: Annotated[int, _option(FILTERS, "--user-core", text="Keep users with at least so many items.")] = 0,
    item_core: Annotated[int, _option(FILTERS, "--item-core", text="Keep items with at least so many users.")] = 0,
    once: Annotated[
        bool, _option(FILTERS, "--core-once", text="Filter by the counts of the input, once, instead of to the k-core.")
    ] = False,
    titles: Annotated[
        str | None, _option(READING, "--titles", text="A table of item ids and titles, movies.dat or u.item.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read, filter and split a source, and save it as a folder that every other verb takes.

    Example: `dgcf data prepare purchases.csv --min-rating 4 --user-core 5 --out purchases`
    """
    how = Preparation(
        ratings=RatingFilter(min_rating, _numbers(ratings, "--ratings", "4,5") if ratings is not None else None),
        user_core=user_core,
        item_core=item_core,
        iterate_core=not once,
        split=_split(split, ratios, leave, seed),
        keep_order=keep_order,
    )
    if once and not (user_core or item_core):
        raise ConfigError("--core-once was given without a core; add --user-core or --item-core.")
    named = read_titles(titles, read.encoding) if titles else None
    with progress(f"preparing {data}"):
        if validation is not None or test is not None:
            dataset = prepare(data, how, read, validation=validation, test=test, titles=named)
        else:
            dataset = load(data, how, read, titles=named, notify=notify)
        dataset.save(folder, overwrite=overwrite)
    found = describe(dataset)
    result = found.to_dict() | {"out": str(folder), "record": dict(dataset.record)}

    def show() -> None:
        _say_how_it_was_read(dataset)
        for step in dataset.record.get("filters", []):
            if step["pairs"]:
                what = f"{step['pairs']:,} rows, {step['users']:,} users, {step['items']:,} items"
                notify(f"{step['filter']}: removed {what}")
        draw(found)
        out.print(f"written to {folder}", soft_wrap=True)

    emit(result, as_json, show)


def _split(method: str | None, ratios: str | None, leave: int | None, seed: int | None) -> Split | None:
    """The split that was asked for; None if nothing was said of it. An option that would do nothing is refused."""
    if method is None and ratios is None and leave is None and seed is None:
        return None
    chosen = method or "random"
    if leave is not None and chosen != "leave-k-out":
        raise ConfigError(f"--leave was given with the split {chosen}; it goes with --split leave-k-out.")
    if ratios is not None and chosen in ("leave-k-out", "none"):
        raise ConfigError(f"--ratios was given with the split {chosen}, which has none; drop it.")
    shares = _numbers(ratios or "0.7,0.1,0.2", "--ratios", "0.7,0.1,0.2")
    if len(shares) != 3:
        raise ConfigError(f"--ratios got {len(shares)} numbers, expected three: train, validation and test.")
    k = 1 if leave is None else leave
    return Split(chosen, (shares[0], shares[1], shares[2]), k, seed or 0)  # type: ignore[arg-type]


def _numbers(text: str, option: str, example: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} got {text!r}, expected numbers and commas, such as {example}.") from None


@app.command("convert")
@reads_a_file
def convert_dataset(
    data: Data,
    read: ReadOptions,
    target: Annotated[Path, typer.Option("--out", "-o", help="The file or folder to write.", show_default=False)],
    to: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(CONVERSIONS)}; by default from the name of --out.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a dataset in another format: csv, parquet, RecBole's inter (one table with a split column), or a folder
    of adjacency lines (train.txt, validation.txt, test.txt).

    Example: `dgcf data convert deoscirec/ml-1m --out ml-1m.parquet`
    """
    if target.exists() and Path(data).exists() and target.samefile(data):
        raise ConfigError(f"{target} is the very file to convert; write to another name.")
    with progress(f"converting {data}"):
        dataset = load(data, read=read, notify=notify)
        result = convert(dataset, target, to, overwrite=overwrite)
    if dataset.order is not None and result["format"] != "adjacency":
        notify("the order of each user's pairs is not written; adjacency lines keep it.")
    emit(result, as_json, lambda: out.print(f"written to {target}", soft_wrap=True))

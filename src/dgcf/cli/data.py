"""``dgcf data``: list, fetch, describe, prepare and convert datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dgcf.cli.inputs import READING, Data, Overwrite, out_option, panel_option, read_dataset, with_read_options
from dgcf.cli.preparation import SplitOptions, numbers, share_of, weighting_of
from dgcf.cli.terminal import AsJson, emit, notify, out, progress
from dgcf.cli.views import data as view
from dgcf.data import catalog, load
from dgcf.data.convert import CONVERSIONS, convert
from dgcf.data.forget import in_place_of
from dgcf.data.interactions import RatingFilter
from dgcf.data.paths import is_read
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.readers import ReadOptions
from dgcf.data.titles import titles_of
from dgcf.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True,
    help="List, fetch, describe, prepare and convert datasets.\n\nExample: `dgcf data stats purchases.csv`",
)
FILTERS, SPLITTING = "Filters", "Split"
SPLIT_HELP = (
    "random, global, temporal, user-temporal, leave-k-out or none; by default the split of the source if it has one, "
    "otherwise random."
)
VALIDATION_HELP = (
    "An existing validation file; DATA is then the training file. Or a share, such as 0.1, of a training part that has "
    "no validation part, or of what is before --cut."
)
REPEATS_HELP = (
    "What happens to held-out pairs that are in train, too: drop (default of splits by time), keep (default of "
    "ready-made splits), or mask: kept, but no relevant items of an evaluation."
)
ORDER_HELP = (
    "Keep the order of each user's pairs, which the setting recency needs: by time or, in lines 'user item item …', by "
    "position. A split by time always keeps it."
)


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the known datasets, and which of them are on this machine.

    Example: `dgcf data list`
    """
    datasets = catalog.listing()
    emit({"datasets": datasets}, as_json, lambda: view.draw_list(datasets))


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, Argument(metavar="NAME", help="A known name (`dgcf data list`).", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Download a known dataset into the cache and verify its SHA-256; local files are only verified.

    Example: `dgcf data fetch ml-100k`
    """
    with progress(f"fetching {name}") as update:
        files = catalog.fetch(name, notify, update)
    answer = {"name": name, "files": {role: str(path) for role, path in files.items()}}
    emit(answer, as_json, lambda: view.draw_files(name, files))


@app.command("stats")
@with_read_options
def show_statistics(data: Data, read: ReadOptions, as_json: AsJson = False) -> None:
    """Count users, items and pairs of a dataset, and warn of leaks, cold items and other problems.

    A file without a split is counted with the default one (70/10/20 per user, seed 0).

    Example: `dgcf data stats deoscirec/ml-1m`
    """
    dataset = read_dataset(data, read=read)
    with progress("counting"):
        statistics = catalog.describe(dataset)
    read_now = is_read(data)
    if read_now:
        view.draw_reading(dataset)
    emit(statistics.to_dict(), as_json, lambda: view.draw_statistics(statistics, with_filters=not read_now))


@app.command("prepare")
@with_read_options
def prepare_dataset(
    data: Data,
    read: ReadOptions,
    folder: Annotated[Path, out_option("Folder to write.")],
    validation: Annotated[str | None, panel_option(SPLITTING, VALIDATION_HELP)] = None,
    test: Annotated[str | None, panel_option(SPLITTING, "An existing test file.")] = None,
    split: Annotated[str | None, panel_option(SPLITTING, SPLIT_HELP)] = None,
    ratios: Annotated[
        str | None, panel_option(SPLITTING, "Shares of train, validation and test (0.7,0.1,0.2).")
    ] = None,
    leave: Annotated[int | None, panel_option(SPLITTING, "Pairs of each user that leave-k-out holds out (1).")] = None,
    seed: Annotated[int | None, panel_option(SPLITTING, "Random seed of the split (0).")] = None,
    cut: Annotated[
        str | None, panel_option(SPLITTING, "Test on the events from this date (or number) on, train on those before.")
    ] = None,
    validation_cut: Annotated[
        str | None, panel_option(SPLITTING, "With --cut: validate on the events from this date on.")
    ] = None,
    repeats: Annotated[str | None, panel_option(SPLITTING, REPEATS_HELP)] = None,
    count_repeats: Annotated[
        bool, panel_option(READING, "Weigh a pair by the number of its events.", "--count-repeats")
    ] = False,
    weight_transform: Annotated[
        str | None, panel_option(READING, "Transform of the weights: log1p (default), none, or cap:N for at most N.")
    ] = None,
    keep_times: Annotated[
        bool, panel_option(READING, "Keep the times of pairs; a split by time always keeps them.", "--keep-times")
    ] = False,
    keep_order: Annotated[bool, panel_option(READING, ORDER_HELP, "--keep-order")] = False,
    min_rating: Annotated[float | None, panel_option(FILTERS, "Keep ratings of at least this.")] = None,
    ratings: Annotated[str | None, panel_option(FILTERS, "Keep these ratings, such as `4,5`.")] = None,
    user_core: Annotated[int, panel_option(FILTERS, "Keep users with at least this many items.")] = 0,
    item_core: Annotated[int, panel_option(FILTERS, "Keep items with at least this many users.")] = 0,
    once: Annotated[
        bool, panel_option(FILTERS, "Filter by the counts of the input, once, not to the k-core.", "--core-once")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read, filter and split a dataset, and save it as a folder for the other commands.

    Example: `dgcf data prepare purchases.csv --min-rating 4 --user-core 5 --out purchases`
    """
    share = share_of(validation)
    preparation = Preparation(
        ratings=RatingFilter(min_rating, numbers(ratings, "--ratings", "4,5") if ratings is not None else None),
        user_core=user_core,
        item_core=item_core,
        iterate_core=not once,
        split=SplitOptions(split, ratios, leave, seed, cut, validation_cut).split(share),
        keep_order=keep_order,
        repeats=repeats,  # type: ignore[arg-type]
        carve=share,
        keep_times=keep_times,
        weighting=weighting_of(weight_transform, count=count_repeats, column=read.weight_col),
    )
    if once and not (user_core or item_core):
        raise ConfigError("--core-once was given without a core; add --user-core or --item-core.")
    with progress(f"preparing {data}"):
        file = validation if share is None else None
        if file is not None or test is not None:
            dataset = prepare(data, preparation, read, validation=file, test=test, titles=titles_of(read))
        else:
            dataset = load(data, preparation, read, notify=notify)
        # A dataset of the catalogue keeps the name by which it is known.
        if catalog.recognise(dataset)[0] != dataset.name:
            dataset = dataset.renamed(folder.resolve().name)
        if overwrite:
            dataset = in_place_of(folder, dataset)
        dataset.save(folder, overwrite=overwrite)
    statistics = catalog.describe(dataset)
    answer = statistics.to_dict() | {"out": str(folder), "record": dict(dataset.record)}
    emit(answer, as_json, lambda: view.draw_prepared(dataset, statistics, folder))


@app.command("convert")
@with_read_options
def convert_dataset(
    data: Data,
    read: ReadOptions,
    target: Annotated[Path, out_option("File or folder to write.")],
    to: Annotated[
        str | None, Option(help=f"{', '.join(CONVERSIONS)}; by default from the name of --out.", show_default=False)
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a dataset in another format: csv, parquet or RecBole's inter (one table with a split column), or a folder
    of adjacency lines (train.txt, validation.txt, test.txt).

    Example: `dgcf data convert deoscirec/ml-1m --out ml-1m.parquet`
    """
    if target.exists() and Path(data).exists() and target.samefile(data):
        raise ConfigError(f"{target} is the input itself; choose another --out.")
    with progress(f"converting {data}"):
        dataset = load(data, read=read, notify=notify)
        result = convert(dataset, target, to, overwrite=overwrite)
    if dataset.order is not None and result["format"] != "adjacency":
        notify("the order of each user's pairs is not written; only adjacency lines keep it.")
    emit(result, as_json, lambda: out.print(f"written to {target}", soft_wrap=True))

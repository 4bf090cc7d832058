"""Arguments and options that several verbs share, and the loading of the dataset or recommender that they name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dgcf.cli import completion
from dgcf.cli.terminal import notify, progress, warn
from dgcf.cli.views.data import draw_reading
from dgcf.data import Dataset, load
from dgcf.data.paths import is_read
from dgcf.data.prepare import Preparation
from dgcf.data.readers import FORMATS, ReadOptions, SourceAsRead
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.recommend import Recommender

DATA_HELP = "A known name (`dgcf data list`), a prepared folder, a folder with train/validation/test files, or a file."
MODEL_HELP = "Model name (`dgcf models`)."
PRESETS = "default, paper, official-code or plain"
PRESET_HELP = f"Settings to start from: {PRESETS}."
MAX_SEEDS = 10_000

Data = Annotated[str, Argument(metavar="DATA", help=DATA_HELP, show_default=False, autocompletion=completion.datasets)]
RunFolder = Annotated[
    Path,
    Argument(metavar="RUN", help="A run folder of `dgcf train`.", show_default=False, autocompletion=completion.runs),
]
RunOrArtifact = Annotated[
    Path,
    Argument(
        metavar="RUN",
        help="A run folder of `dgcf train`, or a saved recommender.",
        show_default=False,
        autocompletion=completion.recommenders,
    ),
]
RunData = Annotated[str | None, Option("--data", help="Dataset of the run, if its recorded source has moved.")]
UserItems = Annotated[
    list[str] | None,
    Option(
        "--items", help="Items of a new user, or new items of --user, by id or title; repeatable.", show_default=False
    ),
]
Preset = Annotated[str | None, Option(help=PRESET_HELP, show_default="default")]
User = Annotated[str | None, Option(help="A user's id.", show_default=False)]
Device = Annotated[str, Option(help="Device: auto, cpu or cuda.")]
Mask = Annotated[str, Option(help="Items to exclude from the ranking: train, or train+validation.")]
CutOffs = Annotated[str, Option("--k", help="Cut-offs, separated by commas.")]
K = Annotated[int, Option("-k", "--k", help="Number of results; all if there are fewer.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Overwrite an existing file or folder.")]


def model_option(default: str | bool = True) -> Any:
    """Return the option ``--model``, and the default that the help shows."""
    return Option("--model", help=MODEL_HELP, show_default=default, autocompletion=completion.models)


def set_option(text: str) -> Any:
    """Return the option ``--set`` with this help text."""
    return Option("--set", metavar="KEY=VALUE", help=text)


def out_option(text: str, default: str | bool = False) -> Any:
    """Return the option ``--out`` with this help text, and the default that the help shows."""
    return Option("--out", "-o", help=text, show_default=default)


def cut_offs(text: str) -> list[int]:
    """Return the cut-offs of ``--k``, such as ``10,20``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--k got {text!r}, expected whole numbers separated by commas, such as 10,20.") from None


READING = "How to read a file"


def panel_option(panel: str, text: str, *names: str) -> Any:
    """Return an option that the help shows in a panel."""
    return Option(*names, help=text, rich_help_panel=panel, show_default=False)


def _read_options(
    where: Annotated[
        str | None, panel_option(READING, 'Keep the rows that meet a condition, such as "Quantity > 0".')
    ] = None,
    missing: Annotated[
        str, panel_option(READING, "Rows without a user or an item: error (default), or skip to leave them out.")
    ] = "error",
    format: Annotated[str | None, panel_option(READING, f"{', '.join(FORMATS)}; detected by default.")] = None,
    user_col: Annotated[str | None, panel_option(READING, "Column of the user: a name, or an index from 0.")] = None,
    item_col: Annotated[str | None, panel_option(READING, "Column of the item.")] = None,
    rating_col: Annotated[str | None, panel_option(READING, "Column of the rating; `none` ignores it.")] = None,
    timestamp_col: Annotated[str | None, panel_option(READING, "Column of the time; `none` ignores it.")] = None,
    timestamp_format: Annotated[
        str | None, panel_option(READING, "How times are written, as in strptime: '%d/%m/%Y %H:%M'.")
    ] = None,
    day_first: Annotated[
        bool | None,
        panel_option(
            READING, "Order of dates such as 1/12/2011, if no day above 12 shows it.", "--day-first/--month-first"
        ),
    ] = None,
    title_col: Annotated[str | None, panel_option(READING, "Column of the items' titles; `none` ignores it.")] = None,
    weight_col: Annotated[
        str | None, panel_option(READING, "Column of the pairs' weights, such as a quantity.")
    ] = None,
    delimiter: Annotated[str | None, panel_option(READING, "Column separator.")] = None,
    header: Annotated[bool | None, panel_option(READING, "Whether the first line is a header.")] = None,
    encoding: Annotated[
        str, panel_option(READING, "utf-8 (default), latin-1, windows-1252, utf-16, utf-16-le or utf-16-be.")
    ] = "utf-8",
    text_ids: Annotated[
        bool, panel_option(READING, "Take ids as text, negative numbers included.", "--text-ids")
    ] = False,
    trim_ids: Annotated[bool, panel_option(READING, "Strip spaces around ids.", "--trim-ids")] = False,
    titles: Annotated[
        str | None, panel_option(READING, "A file of item ids and titles: a table, movies.dat or u.item.")
    ] = None,
    titles_item_col: Annotated[str | None, panel_option(READING, "Column of the item in --titles.")] = None,
    titles_title_col: Annotated[str | None, panel_option(READING, "Column of the title in --titles.")] = None,
) -> None:
    """Hold the fields of ``ReadOptions`` as options; only the signature is used."""


def with_read_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace a verb's parameter ``read`` by the options of reading, and pass them on as one ``ReadOptions``."""
    own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name != "read"]
    reading = list(inspect.signature(_read_options, eval_str=True).parameters.values())

    @functools.wraps(verb)
    def run(**options: Any) -> None:
        read = ReadOptions(**{option.name: options.pop(option.name) for option in reading})
        verb(read=read, **options)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *reading)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def read_dataset(
    source: str | SourceAsRead, preparation: Preparation | None = None, read: ReadOptions | None = None
) -> Dataset:
    """Load the dataset that DATA names, with a progress bar."""
    with progress(f"reading {source}"):
        return load(source, preparation, read, notify=notify)


def read_and_show(source: str, preparation: Preparation | None = None, read: ReadOptions | None = None) -> Dataset:
    """Load the dataset that DATA names, and print how a file was read, so that a wrong guess can be corrected."""
    dataset = read_dataset(source, preparation, read)
    if is_read(source):
        draw_reading(dataset)
        for note in dataset.record.get("notes", []):
            warn(note)
    return dataset


def given_options(read: ReadOptions) -> dict[str, Any]:
    """Return the options that were given, by their names on the command line."""
    given = {f"--{name.replace('_', '-')}": value for name, value in read.given.items()}
    if given.get("--day-first") is False:
        given["--month-first"] = not given.pop("--day-first")
    return given


def reading_words(source: str, dataset: Dataset) -> list[str]:
    """Return the options by which a source was read, for a command that names it; a prepared one needs none."""
    given = ReadOptions.of_record(dataset.read_options) if is_read(source) else ReadOptions()
    words: list[str] = []
    for option, value in given_options(given).items():
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, quote(str(value))]
    return words


def load_recommender(run: Path, data: str | None) -> Recommender:
    """Load the recommender that RUN names, with a progress bar."""
    from dgcf.recommend import load as load_run

    with progress(f"loading {run}"):
        return load_run(run, data=data, notify=notify)

"""Arguments and options that several verbs share, and the loading of the dataset or recommender that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dgcf.cli import completion
from dgcf.cli.terminal import notify, progress
from dgcf.data import Dataset, load
from dgcf.data.prepare import Preparation
from dgcf.data.readers import ReadOptions
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


def read_dataset(source: str, preparation: Preparation | None = None, read: ReadOptions | None = None) -> Dataset:
    """Load the dataset that DATA names, with a progress bar."""
    with progress(f"reading {source}"):
        return load(source, preparation, read, notify=notify)


def load_recommender(run: Path, data: str | None) -> Recommender:
    """Load the recommender that RUN names, with a progress bar."""
    from dgcf.recommend import load as load_run

    with progress(f"loading {run}"):
        return load_run(run, data=data, notify=notify)

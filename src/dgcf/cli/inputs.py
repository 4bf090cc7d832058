"""Arguments that several verbs share, and the loading of the datasets that they name."""

from __future__ import annotations

from typing import Annotated

import typer

from dgcf.cli.terminal import notify, progress
from dgcf.data import Dataset, load
from dgcf.data.prepare import Preparation
from dgcf.data.readers import ReadOptions

DATA_HELP = "A known name (`dgcf data list`), a prepared folder, a folder with train/validation/test files, or a file."
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]


def read_dataset(source: str, preparation: Preparation | None = None, read: ReadOptions | None = None) -> Dataset:
    """Load the dataset that DATA names, with a progress bar."""
    with progress(f"reading {source}"):
        return load(source, preparation, read, notify=notify)

"""Say what to do if the dataset of a run is no longer where the run had it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dgcf.errors import DataError
from dgcf.train.run.folder import Run

HERE = "give its new place with --data (in Python, data=…)"


@contextlib.contextmanager
def explain_moved(run: Run, given: Any, advice: str = HERE) -> Iterator[None]:
    """Replace the DataError of a dataset that is not found, unless another one was ``given``."""
    try:
        yield
    except DataError as problem:
        source = str(run.source)
        if given is not None or "/" not in source or Path(source).exists():
            raise
        raise DataError(
            f"{run.path} was trained on {source}, which does not exist any more; if it has moved, {advice}."
        ) from problem

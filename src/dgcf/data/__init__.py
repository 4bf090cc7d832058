"""The data room: from what users have (a CSV, a Parquet folder, a frame, a known name) to a checked dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError

if TYPE_CHECKING:
    from dgcf.data.catalog import Say
    from dgcf.data.prepare import Preparation
    from dgcf.data.readers import ReadOptions

__all__ = ["Dataset", "Pairs", "Vocabulary", "load"]


def load(
    source: Any,
    preparation: Preparation | None = None,
    read: ReadOptions | None = None,
    *,
    titles: Mapping[str, str] | None = None,
    say: Say | None = None,
) -> Dataset:
    """A dataset from whatever names one.

    ``source``: a dataset, the folder of a prepared one, a folder with a ready-made split, a known name
    (``dgcf data list``), a file, a glob, a frame or a matrix. What is not split yet is filtered and split as
    ``preparation`` says.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, (str, Path)):
        path = Path(source).expanduser()
        if (path / "dataset.json").is_file():
            return Dataset.load(path)
        if not path.exists() and _may_be_name(str(source)):
            from dgcf.data.catalog import load_known

            return load_known(str(source), say)
    # Table engine and readers are imported only where a source has to be read: a prepared dataset needs NumPy alone.
    from dgcf.data.prepare import prepare, split_files

    if isinstance(source, (str, Path)) and path.is_dir() and (parts := split_files(path)):
        if len(parts) == 1:
            raise DataError(
                f"{path} holds {parts['train'].name} and no file to test on; name the file itself to have it split."
            )
        return prepare(
            parts["train"],
            preparation,
            read,
            validation=parts.get("validation"),
            test=parts.get("test"),
            titles=titles,
            name=path.name,
        )
    return prepare(source, preparation, read, titles=titles)


def _may_be_name(source: str) -> bool:
    """Whether a text that is no path could be a known name: it has no suffix and no pattern."""
    return (
        not any(sign in source for sign in "*?[") and not Path(source).suffix and not source.startswith((".", "/", "~"))
    )

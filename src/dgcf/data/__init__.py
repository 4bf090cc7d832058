"""Data: from a source (a CSV file, a Parquet folder, a frame, a known name) to a checked dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.paths import local_path
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dgcf.data.prepare import Preparation
    from dgcf.data.readers import ReadOptions
    from dgcf.text import Notify

__all__ = ["Dataset", "Pairs", "Vocabulary", "load"]


def load(
    source: Any,
    preparation: Preparation | None = None,
    read: ReadOptions | None = None,
    *,
    titles: Mapping[str, str] | None = None,
    notify: Notify | None = None,
    say: Notify | None = None,
) -> Dataset:
    """Return the dataset of a source.

    ``source``: a dataset, the folder of a prepared dataset, a folder with a ready-made split, a known name
    (``dgcf data list``), a file, a glob, a frame or a matrix. ``preparation`` gives the filters and the split; it is
    refused for a dataset that is prepared already. ``say`` is the former name of ``notify``.
    """
    if isinstance(source, Dataset):
        return _as_prepared(source, preparation)
    if isinstance(source, (str, Path)):
        path = local_path(source)
        if (path / "dataset.json").is_file():
            return _as_prepared(Dataset.load(path), preparation)
        if not path.exists() and _may_be_name(str(source)):
            from dgcf.data.catalog import load_known

            return _as_prepared(load_known(str(source), notify or say), preparation)
    # DuckDB and the readers are imported only to read a source: a prepared dataset needs NumPy only.
    from dgcf.data.prepare import prepare, split_files

    if isinstance(source, (str, Path)) and path.is_dir() and (parts := split_files(path)):
        source, held_out = parts.pop("train"), parts
        return prepare(source, preparation, read, **held_out, titles=titles, name=path.name)
    return prepare(source, preparation, read, titles=titles)


def _as_prepared(dataset: Dataset, preparation: Preparation | None) -> Dataset:
    """Return a prepared dataset; raise an error if ``preparation`` asks for anything else."""
    if preparation is None:
        return dataset
    if replace(preparation, keep_order=False) != type(preparation)():
        raise ConfigError(
            f"{dataset.name} is filtered and split already, and is not done so again; name the file that it was made "
            "from, or drop the filters and the split."
        )
    if preparation.keep_order and dataset.order is None:
        raise DataError(
            f"{dataset.name} has no order of pairs to keep; name the file with times or lists that it was made from, "
            "or leave --keep-order and recency out."
        )
    return dataset


def _may_be_name(source: str) -> bool:
    """Return whether a text could be a known name: it has no suffix and no pattern."""
    return (
        not any(sign in source for sign in "*?[") and not Path(source).suffix and not source.startswith((".", "/", "~"))
    )

"""Data: from a source (a CSV file, a Parquet folder, a frame, a known name) to a checked dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.data.columns import ReadOptions, SourceAsRead
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.paths import local_path
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dgcf.data.prepare import Preparation
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
    (``dgcf data list``), a file, a glob, a frame or a matrix. ``preparation`` gives the filters and the split, and
    ``read`` how to read a file; both are refused for a dataset that is prepared already. ``titles`` are those of items
    by raw id. ``say`` is the former name of ``notify``.
    """
    again = isinstance(source, SourceAsRead)
    if isinstance(source, SourceAsRead):
        source, read = source.source, source.read
    read = read or ReadOptions()
    dataset = _prepared(source, notify or say)
    if dataset is not None and not again:
        read.refuse_for_prepared(dataset.name)
    if titles is None and read.titles is not None:
        from dgcf.data.titles import titles_of

        titles = titles_of(read)
    if dataset is None:
        return replace(_prepare(source, preparation, read, titles), read_options=read.given)
    dataset = _as_prepared(dataset, preparation)
    if titles is None:
        return dataset
    return replace(dataset, items=dataset.items.with_titles(dict(titles)), read_options=read.given)


def _prepared(source: Any, notify: Notify | None) -> Dataset | None:
    """Return the dataset of a source that is prepared: in memory, in a folder, or under a known name; else None."""
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, (str, Path)):
        return None
    path = local_path(source)
    if (path / "dataset.json").is_file():
        return Dataset.load(path)
    if path.exists() or not _may_be_name(str(source)):
        return None
    from dgcf.data.catalog import load_known

    return load_known(str(source), notify)


def _prepare(
    source: Any, preparation: Preparation | None, read: ReadOptions, titles: Mapping[str, str] | None
) -> Dataset:
    """Read and prepare a source. DuckDB and the readers are imported only for this: the rest needs NumPy only."""
    from dgcf.data.prepare import prepare, split_files

    path = local_path(source) if isinstance(source, (str, Path)) else None
    if path is not None and path.is_dir() and (parts := split_files(path)):
        return prepare(parts.pop("train"), preparation, read, **parts, titles=titles, name=path.name)
    return prepare(source, preparation, read, titles=titles)


def _as_prepared(dataset: Dataset, preparation: Preparation | None) -> Dataset:
    """Return a prepared dataset; raise an error if ``preparation`` asks for anything else."""
    if preparation is None:
        return dataset
    if preparation.carve is not None and preparation == type(preparation)(
        carve=preparation.carve, split=preparation.split
    ):
        from dgcf.data.prepare import carve_prepared

        return carve_prepared(dataset, preparation)
    if replace(preparation, keep_order=False, keep_times=False) != type(preparation)():
        raise ConfigError(
            f"{dataset.name} is filtered and split already, and is not done so again; name the file that it was made "
            "from, or drop the filters and the split."
        )
    if preparation.keep_order and dataset.order is None:
        raise DataError(
            f"{dataset.name} has no order of pairs to keep; name the file with times or lists that it was made from, "
            "or leave --keep-order and recency out."
        )
    if preparation.keep_times and "time" not in dataset.values:
        raise DataError(
            f"{dataset.name} has no times of pairs to keep; name the file with times that it was made from, or leave "
            "--keep-times out."
        )
    return dataset


def _may_be_name(source: str) -> bool:
    """Return whether a text could be a known name: it has no suffix and no pattern."""
    return (
        not any(sign in source for sign in "*?[") and not Path(source).suffix and not source.startswith((".", "/", "~"))
    )

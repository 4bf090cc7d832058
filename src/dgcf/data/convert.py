"""Write a dataset in formats that other tools read, with its raw ids."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs
from dgcf.data.paths import require_utf8
from dgcf.data.sql import path_literal
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.files import atomic_file, atomic_folder

_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet", ".inter": "inter"}


def convert(dataset: Dataset, target: Path, to: str | None = None, *, overwrite: bool = False) -> dict[str, Any]:
    """Write ``dataset`` to ``target`` in the format ``to``, by default that of the suffix."""
    require_utf8(target)
    kind = to or _SUFFIXES.get(target.suffix.lower(), "adjacency" if not target.suffix else "")
    if kind not in CONVERSIONS:
        near = did_you_mean(kind, CONVERSIONS)
        raise ConfigError(
            f"unknown format {kind or target.suffix!r}, expected one of {', '.join(CONVERSIONS)}{near or '.'}"
        )
    if target.exists() and not overwrite and not target.is_dir():
        raise DataError(f"{target} exists already; choose another name, or overwrite it (--overwrite).")
    if target.is_dir() and kind != "adjacency":
        raise DataError(f"{target} is a folder, expected the name of a file to write.")
    CONVERSIONS[kind](dataset, target, overwrite)
    return {"name": dataset.name, "format": kind, "out": str(target), "fingerprint": dataset.fingerprint}


def _rows(dataset: Dataset) -> Iterator[tuple[str, str, str]]:
    """Yield user id, item id and split of every pair."""
    users, items = dataset.users.texts, dataset.items.texts
    for split in SPLITS:
        pairs = dataset.split(split)
        for user, item in zip(pairs.user_idx.tolist(), pairs.indices.tolist(), strict=True):
            yield users[user], items[item], split


def _write_table(delimiter: str) -> Callable[[Dataset, Path, bool], None]:
    def write(dataset: Dataset, target: Path, overwrite: bool) -> None:
        with atomic_file(target) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow(("user", "item", "split"))
            writer.writerows(_rows(dataset))

    return write


def _write_inter(dataset: Dataset, target: Path, overwrite: bool) -> None:
    """Write the format of RecBole, which has no quotes: an id with a tab or a line break is refused."""
    for text in (*dataset.users.texts, *dataset.items.texts):
        if set(text) & set("\t\r\n"):
            raise DataError(
                f"the id {text!r} holds a tab or a line break, which .inter cannot; convert to csv or parquet."
            )
    with atomic_file(target) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\tsplit:token\n")
        file.writelines("\t".join(row) + "\n" for row in _rows(dataset))


def _write_parquet(dataset: Dataset, target: Path, overwrite: bool) -> None:
    import duckdb

    with duckdb.connect() as con, atomic_file(target) as beside:
        con.execute(
            "CREATE TEMP TABLE users (idx INTEGER, id VARCHAR); CREATE TEMP TABLE items (idx INTEGER, id VARCHAR)"
        )
        for table, vocabulary in (("users", dataset.users), ("items", dataset.items)):
            columns = {"idx": np.arange(len(vocabulary)), "id": vocabulary.texts}
            con.execute(f"INSERT INTO {table} SELECT unnest($idx), unnest($id)", columns)
        con.execute("CREATE TEMP TABLE pairs (u INTEGER, i INTEGER, split VARCHAR)")
        for split in SPLITS:
            pairs = dataset.split(split)
            columns = {"u": pairs.user_idx, "i": pairs.indices}
            con.execute(f"INSERT INTO pairs SELECT unnest($u), unnest($i), '{split}'", columns)
        con.execute(
            "COPY (SELECT users.id AS user, items.id AS item, split FROM pairs JOIN users ON u = users.idx "
            f"JOIN items ON i = items.idx ORDER BY pairs.rowid) TO {path_literal(beside, write=True)} (FORMAT parquet)"
        )


def _items_in_order(pairs: Pairs, user: int) -> list[int]:
    """Return the items of a user, in their order if it is known."""
    items: list[int] = pairs[user].tolist()
    if pairs.place is None:
        return items
    return [items[at] for at in np.argsort(pairs.place[pairs.indptr[user] : pairs.indptr[user + 1]], kind="stable")]


def _write_adjacency(dataset: Dataset, target: Path, overwrite: bool) -> None:
    """Write lines of integers; other ids are replaced by indices, listed in user_list.txt and item_list.txt."""
    plain = all(text.isdecimal() for text in (*dataset.users.texts, *dataset.items.texts))
    users = dataset.users.texts if plain else [str(index) for index in range(dataset.n_users)]
    items = dataset.items.texts if plain else [str(index) for index in range(dataset.n_items)]
    with atomic_folder(target, overwrite=overwrite, also=[f"{split}.txt" for split in SPLITS]) as beside:
        for split in SPLITS:
            pairs = dataset.split(split)
            with (beside / f"{split}.txt").open("w") as file:
                for user in np.flatnonzero(pairs.user_degrees).tolist():
                    file.write(" ".join([users[user], *(items[item] for item in _items_in_order(pairs, user))]) + "\n")
            if not len(pairs):
                (beside / f"{split}.txt").unlink()
        for name, ids, texts in (("user", users, dataset.users.texts), ("item", items, dataset.items.texts)):
            lines = "".join(f"{text} {number}\n" for text, number in zip(texts, ids, strict=True))
            (beside / f"{name}_list.txt").write_text(f"org_id remap_id\n{lines}", encoding="utf-8")


CONVERSIONS: dict[str, Callable[[Dataset, Path, bool], None]] = {
    "csv": _write_table(","),
    "tsv": _write_table("\t"),
    "parquet": _write_parquet,
    "inter": _write_inter,
    "adjacency": _write_adjacency,
}

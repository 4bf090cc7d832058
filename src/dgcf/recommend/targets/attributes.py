"""Read a table of items as a JSON object for each item of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgcf.errors import DataError
from dgcf.recommend.item_tables import open_table
from dgcf.recommend.rules import TableOptions
from dgcf.recommend.snapshot import Snapshot

_WHOLE, _NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})"), re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")


def read_attributes(snapshot: Snapshot, path: Path) -> list[dict[str, Any]]:
    """Return the columns of a CSV or Parquet file for each item of a model, {} for an item that is not in it.

    A column of a text file whose values are all numbers becomes numbers. Missing values are left out.
    """
    items = snapshot.items
    rows: list[dict[str, Any]] = [{} for _ in items.texts]
    present: set[int] = set()
    options = TableOptions(trained_on=snapshot.about.get("dataset", {}).get("item_col"))
    with open_table(path, options) as table:
        fields = [field for field in table.table.fields if not _is_item(field.sql, table.item)]
        columns = [[*values] for values in zip(*table.rows(*(field.sql for field in fields)), strict=True)]
        label = table.label
    ids, *values = columns or [[]]
    typed = [_numbers(column) for column in values]
    for place, raw in enumerate(ids):
        index = next((items.index_of(text) for text in (raw, raw.strip()) if text in items), None)
        if index is None:
            continue
        if index in present:
            raise DataError(f"{label} has the item {raw!r} more than once; keep one row of each item.")
        present.add(index)
        pairs = ((field.name, _plain(column[place])) for field, column in zip(fields, typed, strict=True))
        rows[index] = {name: value for name, value in pairs if value is not None}
    if not present:
        raise DataError(
            f"{label} has none of the {len(items):,} items of the model; its ids must be those of the training data, "
            f"such as {items.texts[0]!r}."
        )
    return rows


def _is_item(column: str, item: str) -> bool:
    """Return whether the SQL of a column is that of the item, or the quoted name in it."""
    return column == item or (column.startswith('"') and column in item)


def _numbers(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column of texts as numbers if all of them are; other columns as they are."""
    texts = [value.strip() for value in column if isinstance(value, str) and value.strip()]
    if not texts or any(not isinstance(value, str) for value in column if value is not None):
        return column
    if all(map(_WHOLE.fullmatch, texts)):
        return [int(value) if value and value.strip() else None for value in column]
    if all(_WHOLE.fullmatch(text) or _NUMBER.fullmatch(text) for text in texts):
        return [float(value) if value and value.strip() else None for value in column]
    return column


def _plain(value: Any) -> Any:
    """Return a value as JSON data; None for one that is missing or no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.strip() or None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value)

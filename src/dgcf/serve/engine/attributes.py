"""Attributes of items, read from a table when the service starts."""

from __future__ import annotations

from pathlib import Path

from dgcf.errors import DataError


def read_attributes(path: Path | None) -> dict[str, dict[str, str | float | bool]]:
    """Return the attributes of each item of a CSV or Parquet file, by raw id; blank values are left out."""
    if path is None:
        return {}
    from dgcf.recommend.item_tables import open_table  # only now: it needs the table engine

    attributes: dict[str, dict[str, str | float | bool]] = {}
    with open_table(path) as table:
        names = [field.name for field in table.table.fields]
        for raw, *values in table.rows(*(table.column(name) for name in names)):
            item = str(raw).strip()
            if item in attributes:
                raise DataError(f"{table.label} has the item {item!r} more than once; keep one row of each item.")
            attributes[item] = {
                name: value for name, value in zip(names, values, strict=True) if value not in (None, item)
            }
    return attributes

"""The table of results: prints in terminals and notebooks, converts to pandas, Polars, Arrow and CSV."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.files import atomic_file
from dgcf.text import printable_line

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    import rich.table

_SHOWN = 40
Column = Sequence[Any] | np.ndarray[Any, Any]


class Table:
    """Columns of equal length, by name, with ``notes`` for the reader.

    >>> table = Table({"item": ["a", "b"], "rank": [1, 2], "score": [0.5, 0.25]})
    >>> table["item"]
    ['a', 'b']
    >>> print(table)
    item  rank   score
    a        1  0.5000
    b        2  0.2500
    """

    def __init__(self, columns: Mapping[str, Column], notes: Sequence[str] = (), title: str = "") -> None:
        self._columns = {name: list(column) for name, column in columns.items()}
        self.notes, self.title = tuple(notes), title
        if len({len(column) for column in self._columns.values()}) > 1:
            raise DataError("the columns of a table have different lengths.")

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, column: str) -> list[Any]:
        try:
            return self._columns[column]
        except KeyError:
            hint = did_you_mean(str(column), self.columns) or f"; it has {', '.join(self.columns)}."
            raise DataError(f"the table has no column {column!r}{hint}") from None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._columns == other._columns

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: list(column) for name, column in self._columns.items()}

    def to_pandas(self) -> pandas.DataFrame:
        return _frames("pandas").DataFrame(self.to_dict(), columns=self.columns)

    def to_polars(self) -> polars.DataFrame:
        frame: polars.DataFrame = _frames("polars").DataFrame(self.to_dict(), strict=False)
        return frame

    def to_arrow(self) -> pyarrow.Table:
        return _frames("pyarrow").table(self.to_dict())

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """Write a CSV file, or return its text if no path is given."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*self._columns.values(), strict=True))
        if path is None:
            return text.getvalue()
        with atomic_file(Path(path)) as beside:
            beside.write_text(text.getvalue(), encoding="utf-8", newline="")
        return None

    def __repr__(self) -> str:
        rows = [self.columns, *self._shown()]
        widths = [max(len(row[place]) for row in rows) for place in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.rjust(width) if self._is_number(name) else cell.ljust(width)
                for cell, width, name in zip(row, widths, self.columns, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *self._footnotes()])

    def __rich__(self) -> rich.table.Table:
        return self.to_rich()

    def to_rich(self, rows: int = _SHOWN) -> rich.table.Table:
        """Return a table for the terminal, with at most so many rows."""
        from rich.table import Table as RichTable
        from rich.text import Text  # not parsed as markup

        table = RichTable(title=Text(printable_line(self.title)), caption=Text("\n".join(self._footnotes(rows))))
        for name in self.columns:
            table.add_column(Text(name), justify="right" if self._is_number(name) else "left", overflow="fold")
        for row in self._shown(rows):
            table.add_row(*map(Text, row))
        return table

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks display."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._shown()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._footnotes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _shown(self, rows: int = _SHOWN) -> list[list[str]]:
        head = zip(*(column[:rows] for column in self._columns.values()), strict=True)
        return [[_cell(value) for value in row] for row in head]

    def _footnotes(self, rows: int = _SHOWN) -> list[str]:
        more = [f"… {len(self) - rows:,} more rows"] if len(self) > rows else []
        return [*more, *map(printable_line, self.notes)]

    def _is_number(self, name: str) -> bool:
        return name in ("rank", "score", "value", "share")


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else printable_line(str(value))


def _frames(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"{name} is not installed; install it with: pip install 'dgcf[frames]'.") from None

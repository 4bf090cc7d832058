"""DuckDB: a connection with bounded memory, SQL literals, and its errors as one sentence."""

from __future__ import annotations

import contextlib
import glob
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dgcf.data.paths import require_utf8, shown
from dgcf.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "700MB"
"""Memory of DuckDB before it spills to disk, without the resulting arrays."""


def quote_text(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def path_literal(path: Path, *, write: bool = False) -> str:
    """Return a string literal that DuckDB reads as exactly this path, for reading or (``write``) as a target of COPY.

    The path is made absolute, because DuckDB reads ``file:x`` and ``s3://x`` as URLs. For reading, pattern characters
    (``* ? [``) are escaped; COPY has no patterns.
    """
    text = str(require_utf8(path.absolute()))
    if write or not glob.has_magic(text):
        return quote_text(text)
    if "\\" in text:  # DuckDB reads a backslash in a pattern as a separator
        raise DataError(f"the name {shown(path)} holds a backslash beside one of * ? [ and cannot be read; rename it.")
    return quote_text(glob.escape(text))


@contextlib.contextmanager
def connect() -> Iterator[tuple[DuckDBPyConnection, Path]]:
    """Open a connection and a temporary folder that it spills to."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="dgcf-") as folder, duckdb.connect() as con:
        require_utf8(Path(folder))  # TMPDIR may not be UTF-8
        con.execute("SET preserve_insertion_order = false")
        con.execute("SET enable_progress_bar = false")
        con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        con.execute("SET temp_directory = $1", [folder])
        con.execute("SET TimeZone = 'UTC'")  # a time without an offset is UTC on every machine
        yield con, Path(folder)


def text_as_number(column: str) -> str:
    """Return the SQL of a column of text as numbers, NULL for other texts.

    Without ``trim`` DuckDB casts while it reads a CSV file, and then stops at other texts.
    """
    return f"try_cast(trim({column}) AS DOUBLE)"


def read_in_order(con: DuckDBPyConnection) -> None:
    """Make the row numbers of later queries follow the source; slower, to be used before an error."""
    con.execute("SET threads = 1; SET preserve_insertion_order = true")


def place(row: int, first_line: int | None) -> str:
    """Return where a row (from 1) is: its line, if the first row of the source is at a known one."""
    return f"line {row + first_line - 1}" if first_line else f"row {row}"


def sentence(message: str, label: str) -> str:
    """Turn a message of DuckDB into one sentence: what is wrong, what was expected, what to do."""
    line = re.search(r"Error on Line: (\d+)", message)
    where = f"line {line[1]} of {label}" if line else label
    columns = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if columns:
        return (
            f"{where} has {columns[2]} columns, expected {columns[1]} as in the first line; correct the line, or name "
            "the separator with --delimiter."
        )
    meanings = {
        "Invalid unicode": "is not UTF-8 text; save it as UTF-8 or name its encoding with --encoding latin-1",
        "not utf-8 encoded": "is not UTF-8 text; save it as UTF-8 or name its encoding with --encoding latin-1",
        "unterminated quote": "has a quoted value that does not end where it should; close or double its quotes",
        "state machine": "mixes line endings or quotes and cannot be read; save it with one kind of line ending",
        "Maximum line size": "has a line longer than 16 MB; is it really a table of users and items?",
        "GZIP": "is a damaged gzip file; download or compress it again",
        "too small to be a Parquet": "is not a complete Parquet file; write or download it again",
        "schema mismatch": "holds files of different columns or types; make them equal or name one of them",
        "No space left": "needs more temporary disk space than there is; free some, or set TMPDIR to a larger disk",
        "Out of Memory": "needs more memory or temporary disk than there is; free some, or set TMPDIR to a larger disk",
        "Permission denied": "may not be read; check its rights",
        "No magic bytes": "is not a complete Parquet file; write or download it again",
    }
    for fragment, meaning in meanings.items():
        if fragment in message:
            return f"{where} {meaning}."
    first = message.strip().splitlines()[0].removeprefix("Invalid Input Error: ")
    return f"{where} cannot be read ({first[:200]}); check the file, or name its format with --format."

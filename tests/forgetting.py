"""What the tests of forgetting share: data with an unmistakable user, and a search of all bytes of files for an id."""

from __future__ import annotations

import csv
import gzip
import json
import random
import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import duckdb

ODD = 'Zoë "Quixote" – 7731\\x'
"""An id that JSON, SQL and paths have to escape."""
NUMBER = 918_273_645_546_372
"""An id that no other bytes are likely to hold."""
SETTINGS = ("--preset", "plain", "--set", "epochs=3", "--set", "dim=8", "--set", "layers=2", "--device", "cpu")


def write_rows(path: Path, user: str | int, *, n_users: int = 60, n_items: int = 40, each: int = 12) -> Path:
    """Write events of users and items with times; ``user`` is one of the users and has more items than the others."""
    chance = random.Random(0)
    others = [f"u{number}" if isinstance(user, str) else number for number in range(1, n_users)]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("user", "item", "timestamp"))
        for name in [*others[:30], user, *others[30:]]:
            for item in chance.sample(range(n_items), each + 8 * (name == user)):
                rows.writerow((name, f"i{item}", 1_700_000_000 + chance.randrange(10**6)))
    return path


def forms(user: str | int) -> list[bytes]:
    """Return the bytes by which a file may hold an id: UTF-8, JSON, SQL, UTF-16, and as a number."""
    text = str(user)
    shown = [text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text.replace('"', '""')]
    encoded = {form.encode() for form in shown} | {text.encode("utf-16-le")}
    return [*encoded, *([struct.pack("<q", user), struct.pack(">q", user)] if isinstance(user, int) else [])]


def holders(folder: Path, user: str | int) -> list[str]:
    """Return the files, and members of files, that hold an id in any form; everything compressed is unpacked."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    parts = [part for path in files for part in _contents(str(path), path.read_bytes())]
    assert parts
    return [name for name, data in parts if any(form in data for form in forms(user))]


def _contents(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if data[:2] == b"PK":
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from _contents(f"{name}:{member}", archive.read(member))
    elif data[:2] == b"\x1f\x8b":
        yield from _contents(f"{name}:gzip", gzip.decompress(data))
    elif data[:4] == b"PAR1":
        with duckdb.connect() as con:
            rows = con.execute("SELECT * FROM read_parquet(?)", [name]).fetchall()
        yield f"{name}:rows", "\n".join(str(value) for row in rows for value in row).encode()

"""Write recommendations for all users to one file, in chunks: resumable, and the file appears atomically.

Each chunk of users is ranked and stored as a file in a folder beside the target (``chunks``). A stopped job is resumed
after its last complete chunk; a job with other weights, another k or other columns starts again. When all chunks are
written they are joined into the target, and the folder is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.sql import path_literal
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.files import ADVICE, atomic_file, explain_os_errors
from dgcf.ranking.arrays import Indices
from dgcf.ranking.topk import NUMPY, Backend, TopK
from dgcf.recommend.chunks import Chunks, chunks_beside, sweep_chunks
from dgcf.recommend.prepared import Prepared
from dgcf.recommend.rerank import ItemRules
from dgcf.recommend.snapshot import Snapshot

if TYPE_CHECKING:
    import duckdb

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json"}
CHUNK = 4096
_MEMORY = "256MB"
Update = Callable[[float, float | None], None]


@dataclass(frozen=True)
class Batch:
    """A job: the ``k`` best items of all users under rules, by default without the items they have seen."""

    snapshot: Snapshot
    k: int = 20
    exclude_seen: bool = True
    chunk: int = CHUNK
    rules: ItemRules | None = None

    def write(
        self, target: Path, *, overwrite: bool = False, update: Update | None = None, backend: Backend = NUMPY
    ) -> dict[str, Any]:
        """Write a Parquet, CSV or JSON-lines file, by its suffix; call ``update(done, total)`` after each chunk."""
        kind = self._check_target(target, overwrite)
        starts = range(0, self.snapshot.n_users, self.chunk)
        ranking, ranker = self.snapshot.ranking, Prepared(self.snapshot).ranker(self.rules)
        with chunks_beside(target, self._job()) as chunks, table_engine(target) as engine:
            sources = [path_literal(chunks.path(start)) for start in starts]
            resumed = len(chunks)
            for start in starts:
                if start not in chunks:
                    users = np.arange(start, min(start + self.chunk, self.snapshot.n_users))
                    hidden = self.snapshot.hidden_items(users, self.exclude_seen)
                    ranked = ranker.top_k(ranking.queries(users), hidden, self.k, backend)
                    self._write_chunk(engine, users, ranked, chunks)
                if update is not None:
                    update(min(start + self.chunk, self.snapshot.n_users), self.snapshot.n_users)
            rows = sum(chunks[start]["rows"] for start in starts)
            _join(engine, sources, target, kind, rows)
        done = {"out": str(target), "format": kind, "users": self.snapshot.n_users, "rows": rows, "resumed": resumed}
        return done | {"notes": self._notes(rows)}

    def _notes(self, rows: int) -> list[str]:
        if self.rules is None:
            return []
        short = self.k * self.snapshot.n_users - rows
        lists = [f"{short:,} places are empty: the rules leave some users fewer than {self.k} items."] if short else []
        return [*self.rules.notes, *lists]

    def _check_target(self, target: Path, overwrite: bool) -> str:
        """Return the format of the target; raise an error if it cannot be written."""
        kind = FORMATS.get(target.suffix.lower())
        if kind is None:
            near = did_you_mean(target.suffix, FORMATS)
            raise ConfigError(f"{target.name} has no known suffix, expected one of {', '.join(FORMATS)}{near or '.'}")
        if target.is_dir():
            raise DataError(f"{target} is a folder, expected the name of a file to write; choose another name.")
        if target.exists() and not overwrite:
            sweep_chunks(target)
            raise DataError(f"{target} exists already; choose another name, or overwrite it (--overwrite).")
        if self.k < 1:
            raise ConfigError(f"k is {self.k}; give a whole number from 1 on.")
        path_literal(target)  # raises for a name that could not be read back
        return kind

    def _job(self) -> str:
        """Return a checksum of everything that decides the output; chunks are reused only for an equal one."""
        seen, users, items = self.snapshot.seen, self.snapshot.users, self.snapshot.items
        digest = hashlib.sha256(f"{self.k} {self.exclude_seen} {self.chunk} 3".encode())
        arrays: list[NDArray[Any]] = [seen.indptr, seen.indices, *self.snapshot.ranking.arrays().values()]
        for array in (*arrays, users.blob, users.offsets, items.blob, items.offsets):
            digest.update(np.ascontiguousarray(array).data)
        digest.update(json.dumps(items.titles).encode())
        for array in () if self.rules is None else self.rules.arrays():
            digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _write_chunk(self, engine: duckdb.DuckDBPyConnection, users: Indices, ranked: TopK, chunks: Chunks) -> None:
        row, place = np.nonzero(ranked.item_idx >= 0)
        item, items = ranked.item_idx[row, place], self.snapshot.items
        columns = {"user": ids(self.snapshot.users, users[row]), "item": ids(items, item)}
        columns |= {"rank": (place + 1).astype(np.int32), "score": ranked.scores[row, place]}
        if items.titles:
            columns["title"] = np.array(items.titles, dtype=object)[item]
        engine.register("chunk", columns)
        with chunks.new(int(users[0]), len(row)) as beside:
            target = path_literal(beside, write=True)
            engine.execute(f"COPY (SELECT {_typed(columns)} FROM chunk) TO {target} (FORMAT parquet)")
        engine.unregister("chunk")


def ids(vocabulary: Vocabulary, index: Indices) -> NDArray[Any]:
    """Return the raw ids at ``index``: int64 if all ids are integers that fit, else text."""
    texts = vocabulary.texts
    if vocabulary.kind == "integer" and all(-(2**63) <= int(text) < 2**63 for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)[index]
    return np.array(texts, dtype=object)[index]


def _typed(columns: dict[str, NDArray[Any]]) -> str:
    """Return the columns as SQL, with text cast to VARCHAR: DuckDB cannot infer the type of a chunk without rows."""
    return ", ".join(f'"{name}"::VARCHAR AS "{name}"' if c.dtype == object else name for name, c in columns.items())


def _join(engine: duckdb.DuckDBPyConnection, sources: list[str], target: Path, kind: str, rows: int) -> None:
    """Join all chunks, in their order, into one file of ``rows`` rows."""
    options = {"parquet": "FORMAT parquet", "csv": "FORMAT csv, HEADER", "json": "FORMAT json"}[kind]
    with atomic_file(target) as beside:
        chunks, file = f"read_parquet([{', '.join(sources)}])", path_literal(beside, write=True)
        done = engine.execute(f"COPY (SELECT * FROM {chunks}) TO {file} ({options})").fetchone()
        if done is None or int(done[0]) != rows:
            raise DataError(f"{target} was not written: its chunks have changed in the meantime; start again.")


@contextlib.contextmanager
def table_engine(target: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to DuckDB with little memory and stable row order; errors become a ``DataError`` about ``target``."""
    import duckdb

    try:
        with duckdb.connect() as engine:
            engine.execute(f"SET memory_limit = '{_MEMORY}'; SET preserve_insertion_order = true; SET threads = 2")
            yield engine
    except duckdb.Error as problem:
        number = next((number for number in ADVICE if os.strerror(number) in str(problem)), None)
        if number is not None:
            with explain_os_errors(target):
                raise OSError(number, os.strerror(number)) from problem
        reason = str(problem).strip().splitlines()[0][:200]
        raise DataError(f"cannot write {target}: {reason}; choose another place.") from problem

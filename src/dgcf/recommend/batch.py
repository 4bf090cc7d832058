"""Recommendations for every user into one file: streamed in chunks, restartable, there whole or not at all.

Each chunk of users is ranked and kept as a file of its own in a folder beside the target (``chunks``). A job that was
stopped is resumed after its last whole chunk; one with other weights, another k or other columns starts again. When
all chunks are written they become the target in one step, and the folder goes.
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

from dgcf.data.pairs import Pairs
from dgcf.data.sql import path_literal
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.files import ADVICE, atomic_file, explain_os_errors
from dgcf.ranking.arrays import Indices
from dgcf.ranking.topk import NUMPY, Backend, TopK, top_k
from dgcf.recommend.chunks import Chunks, chunks_beside, sweep_chunks
from dgcf.recommend.snapshot import Snapshot

if TYPE_CHECKING:
    import duckdb

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json"}
CHUNK = 4096
_MEMORY = "256MB"
Update = Callable[[float, float | None], None]


@dataclass(frozen=True)
class Batch:
    """What to write: the ``k`` best items of all users, without those they have seen."""

    snapshot: Snapshot
    k: int = 20
    exclude_seen: bool = True
    chunk: int = CHUNK

    def write(
        self, target: Path, *, overwrite: bool = False, update: Update | None = None, backend: Backend = NUMPY
    ) -> dict[str, Any]:
        """Write a Parquet, CSV or JSON-lines file, by its name; ``update(done, total)`` hears of the progress."""
        kind = self._checked(target, overwrite)
        starts = range(0, self.snapshot.n_users, self.chunk)
        ranking, index = self.snapshot.ranking, self.snapshot.ranking.index()
        with chunks_beside(target, self._job()) as chunks, table_engine(target) as engine:
            sources = [path_literal(chunks.path(start)) for start in starts]
            resumed = len(chunks)
            for start in starts:
                if start not in chunks:
                    users = np.arange(start, min(start + self.chunk, self.snapshot.n_users))
                    ranked = top_k(index, ranking.queries(users), self._hidden(users), self.k, backend)
                    self._keep(engine, users, ranked, chunks, start)
                if update is not None:
                    update(min(start + self.chunk, self.snapshot.n_users), self.snapshot.n_users)
            rows = sum(chunks[start]["rows"] for start in starts)
            _join(engine, sources, target, kind, rows)
        return {"out": str(target), "format": kind, "users": self.snapshot.n_users, "rows": rows, "resumed": resumed}

    def _checked(self, target: Path, overwrite: bool) -> str:
        kind = FORMATS.get(target.suffix.lower())
        if kind is None:
            near = did_you_mean(target.suffix, FORMATS)
            raise ConfigError(f"{target.name} does not say a format, expected one of {', '.join(FORMATS)}{near or '.'}")
        if target.is_dir():
            raise DataError(f"{target} is a folder, expected the name of a file to write; choose another name.")
        if target.exists() and not overwrite:
            sweep_chunks(target)
            raise DataError(f"{target} exists already; choose another name, or overwrite it (--overwrite).")
        if self.k < 1:
            raise ConfigError(f"k is {self.k}; give a whole number from 1 on.")
        path_literal(target)  # refuses a name that could not be read back
        return kind

    def _job(self) -> str:
        """The same for the same output, so that chunks of another job are never taken over."""
        known = self.snapshot
        digest = hashlib.sha256(f"{self.k} {self.exclude_seen} {self.chunk} 3".encode())
        arrays: list[NDArray[Any]] = [known.seen.indptr, known.seen.indices]
        arrays += known.ranking.arrays().values()
        for array in (*arrays, known.users.blob, known.users.offsets, known.items.blob, known.items.offsets):
            digest.update(np.ascontiguousarray(array).data)
        digest.update(json.dumps(known.items.titles).encode())
        return digest.hexdigest()

    def _hidden(self, users: Indices) -> Pairs:
        """The seen items of some users."""
        seen = self.snapshot.seen
        return seen.take(users) if self.exclude_seen else Pairs.empty(len(users), seen.n_items)

    def _keep(
        self, engine: duckdb.DuckDBPyConnection, users: Indices, ranked: TopK, chunks: Chunks, start: int
    ) -> None:
        row, place = np.nonzero(ranked.item_idx >= 0)
        item = ranked.item_idx[row, place]
        known = self.snapshot
        columns = {
            "user": ids(known.users, users[row]),
            "item": ids(known.items, item),
            "rank": (place + 1).astype(np.int32),
            "score": ranked.scores[row, place],
        }
        if known.items.titles:
            columns["title"] = np.array(known.items.titles, dtype=object)[item]
        engine.register("chunk", columns)
        with chunks.new(start, len(row)) as beside:
            target = path_literal(beside, write=True)
            engine.execute(f"COPY (SELECT {_typed(columns)} FROM chunk) TO {target} (FORMAT parquet)")
        engine.unregister("chunk")


def ids(vocabulary: Vocabulary, index: Indices) -> NDArray[Any]:
    """The raw ids at ``index`` as a column: whole numbers where the data had them and 64 bits hold them, else text."""
    texts = vocabulary.texts
    if vocabulary.kind == "integer" and all(-(2**63) <= int(text) < 2**63 for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)[index]
    return np.array(texts, dtype=object)[index]


def _typed(columns: dict[str, NDArray[Any]]) -> str:
    """Text is called text: a chunk without rows shows DuckDB nothing to tell a type by, and would not join the rest."""
    return ", ".join(f'"{name}"::VARCHAR AS "{name}"' if c.dtype == object else name for name, c in columns.items())


def _join(engine: duckdb.DuckDBPyConnection, sources: list[str], target: Path, kind: str, rows: int) -> None:
    """Write all chunks, in their order, as one file of ``rows`` rows."""
    options = {"parquet": "FORMAT parquet", "csv": "FORMAT csv, HEADER", "json": "FORMAT json"}[kind]
    with atomic_file(target) as beside:
        chunks, file = f"read_parquet([{', '.join(sources)}])", path_literal(beside, write=True)
        done = engine.execute(f"COPY (SELECT * FROM {chunks}) TO {file} ({options})").fetchone()
        if done is None or int(done[0]) != rows:
            raise DataError(f"{target} was not written: its chunks have changed meanwhile; start again.")


@contextlib.contextmanager
def table_engine(target: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to DuckDB with little memory; it keeps the order of rows, and what it cannot write is one sentence."""
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

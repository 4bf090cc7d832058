"""Export embeddings as NumPy arrays or Parquet tables, or the recommender as an artefact."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.data.sql import path_literal
from dgcf.errors import ConfigError, did_you_mean
from dgcf.files import atomic_folder
from dgcf.ranking.arrays import Side
from dgcf.recommend import artifact
from dgcf.recommend.batch import ids, table_engine
from dgcf.recommend.snapshot import Snapshot

TARGETS = ("faiss", "pgvector", "qdrant")
"""Places for vectors, which ``dgcf.recommend.targets`` writes to."""
SIDES: tuple[Side, Side] = ("user", "item")


def kind_of(target: Path | None, kind: str | None = None) -> str:
    """Return the kind of an export, by default that of the target's suffix; npy for a name without one."""
    by_suffix = {"": "npy", ".npy": "npy", ".parquet": "parquet", ".dgcf": "dgcf", ".faiss": "faiss"}
    suffix = "" if target is None else target.suffix
    chosen = kind or by_suffix.get(suffix.lower(), suffix)
    known = (*EXPORTS, *TARGETS)
    if chosen not in known:
        near = did_you_mean(chosen, known)
        raise ConfigError(f"unknown export {chosen!r}, expected one of {', '.join(known)}{near or '.'}")
    return chosen


def export(
    snapshot: Snapshot, target: Path, kind: str | None = None, *, overwrite: bool = False, sign: Path | None = None
) -> dict[str, Any]:
    """Write ``snapshot`` as ``kind``, by default that of the target's suffix, and return what was written."""
    chosen = kind_of(target, kind)
    if chosen not in EXPORTS:
        raise ConfigError(f"{chosen} is an export of vectors; write it with dgcf.recommend.targets.export_vectors.")
    if sign is not None and chosen != "dgcf":
        raise ConfigError(f"only a recommender file can be signed, not {chosen}; name it with .dgcf, or omit --sign.")
    write = partial(_artifact, sign=sign) if chosen == "dgcf" else EXPORTS[chosen]
    write(snapshot, target, overwrite)
    return {
        "out": str(target),
        "format": chosen,
        "users": snapshot.n_users,
        "items": snapshot.n_items,
        "dim": None if snapshot.ranking.embeddings is None else snapshot.embeddings.dim,
    }


def _artifact(snapshot: Snapshot, target: Path, overwrite: bool, sign: Path | None = None) -> None:
    if target.suffix.lower() != ".dgcf":
        raise ConfigError(f"{target.name} is not a name of a recommender file; name it {target.name}.dgcf.")
    artifact.save(snapshot, target, overwrite=overwrite, sign=sign)


def _arrays(snapshot: Snapshot, target: Path, overwrite: bool) -> None:
    """Write ``users.npy`` and ``items.npy``, and in the same order the ids and titles as JSON."""
    with atomic_folder(target, overwrite=overwrite, also=("user_titles.json", "item_titles.json")) as beside:
        for side in SIDES:
            vocabulary = snapshot.vocabulary(side)
            np.save(beside / f"{side}s.npy", snapshot.embeddings.rows(side), allow_pickle=False)
            (beside / f"{side}_ids.json").write_text(_json(list(vocabulary)), encoding="utf-8")
            if vocabulary.titles:
                (beside / f"{side}_titles.json").write_text(_json(vocabulary.titles), encoding="utf-8")


def _parquet(snapshot: Snapshot, target: Path, overwrite: bool) -> None:
    """Write ``users.parquet`` and ``items.parquet``: id, title if there are titles, embedding as a list of floats."""
    with atomic_folder(target, overwrite=overwrite) as beside, table_engine(target) as engine:
        for side in SIDES:
            vocabulary, rows = snapshot.vocabulary(side), snapshot.embeddings.rows(side)
            columns = {"id": ids(vocabulary, np.arange(len(vocabulary)))}
            if vocabulary.titles:
                columns["title"] = np.array(vocabulary.titles, dtype=object)
            names = [f"e{place}" for place in range(snapshot.embeddings.dim)]
            columns |= {name: np.ascontiguousarray(rows[:, place]) for place, name in enumerate(names)}
            engine.register("rows", columns)
            kept = ", ".join(name for name in columns if name not in names)
            file = path_literal(beside / f"{side}s.parquet", write=True)
            engine.execute(
                f"COPY (SELECT {kept}, [{', '.join(names)}] AS embedding FROM rows) TO {file} (FORMAT parquet)"
            )
            engine.unregister("rows")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


EXPORTS: dict[str, Callable[[Snapshot, Path, bool], None]] = {
    "npy": _arrays,
    "parquet": _parquet,
    "dgcf": _artifact,
}

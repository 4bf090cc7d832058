"""The way from a source to a prepared dataset: read, filter, split, count what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.filters import Removed, drop_repeats, k_core
from dgcf.data.interactions import Interactions, RatingFilter, collect
from dgcf.data.pairs import Pairs
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split, assign
from dgcf.errors import ConfigError, DataError

_SPLIT_STEMS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class Preparation:
    """Everything that decides what becomes of a source, apart from how it is read.

    Filters run in this order: rating, repeated pairs, k-core (``iterate_core=False``: the counts of the input decide,
    once). Then the split.
    """

    ratings: RatingFilter = field(default_factory=RatingFilter)
    user_core: int = 0
    item_core: int = 0
    iterate_core: bool = True
    split: Split = field(default_factory=Split)


def prepare(
    source: Any,
    preparation: Preparation | None = None,
    read: ReadOptions | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    titles: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Dataset:
    """Make a dataset of a path, glob, frame or matrix; or of ready-made splits, with ``validation`` and ``test``."""
    how, read = preparation or Preparation(), read or ReadOptions()
    given = {"train": source, "validation": validation, "test": test}
    parts = [split for split in SPLITS if given[split] is not None]
    ready_made = len(parts) > 1
    if ready_made and (how.user_core or how.item_core):
        raise ConfigError("a k-core would change ready-made splits; filter before splitting, or drop the option.")
    need_time = how.split.needs_time and not ready_made
    rows = collect([given[split] for split in parts], read, how.ratings, need_time=need_time)
    record: dict[str, Any] = {"source": _describe(source), "rows": rows.rows_read, "filters": []}
    if how.ratings:
        record["filters"].append(Removed(str(how.ratings), rows.rows_read - len(rows), 0, 0).to_dict())
    if not len(rows):
        raise DataError(f"the filter '{how.ratings}' leaves no interaction of {rows.rows_read:,}; change it.")
    rows_of_part = np.bincount(rows.part, minlength=len(parts))
    rows, repeated = drop_repeats(rows)
    record["filters"].append(repeated.to_dict())
    if how.user_core > 1 or how.item_core > 1:
        rows, cored = k_core(rows, how.user_core, how.item_core, iterate=how.iterate_core)
        record["filters"].append(cored.to_dict())
    rows = rows.compact()
    repeats = dict.fromkeys(SPLITS, 0)
    if ready_made:
        left = np.bincount(rows.part, minlength=len(parts))
        repeats |= {split: int(rows_of_part[n] - left[n]) for n, split in enumerate(parts)}
        part = np.array([SPLITS.index(split) for split in parts], dtype=np.int8)[rows.part]
        record["split"] = {"method": "given"}
    else:
        repeats["train"] = repeated.pairs
        part = assign(rows, how.split)
        record["split"] = how.split.to_dict()
    return assemble(rows, part, name or _name_of(source), repeats, record, titles)


def assemble(
    rows: Interactions,
    part: NDArray[np.int8],
    name: str,
    repeats: Mapping[str, int],
    record: Mapping[str, Any],
    titles: Mapping[str, str] | None,
) -> Dataset:
    n_users, n_items = len(rows.users), len(rows.items)
    splits = {}
    for number, split in enumerate(SPLITS):
        chosen = part == number
        splits[split] = Pairs.from_indices(rows.user_idx[chosen], rows.item_idx[chosen], n_users, n_items)
    if not len(splits["train"]):
        raise DataError(f"{name} has no training pair; give more data or another split.")
    items = rows.items.with_titles(dict(titles)) if titles else rows.items
    return Dataset(name, rows.users, items, **splits, repeats=repeats, record=record)


def split_files(folder: Path) -> dict[str, Path] | None:
    """The ready-made split in a folder (``train.*``, ``validation.*`` or ``valid.*``, ``test.*``), if there is one."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.split(".")[0].lower()
        for split, stems in _SPLIT_STEMS.items():
            if stem in stems and path.is_file():
                if split in found:
                    raise DataError(
                        f"{folder} holds two files for {split} ({found[split].name}, {path.name}); name the ones you "
                        "mean with --validation and --test."
                    )
                found[split] = path
    return found if "train" in found else None


def _describe(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else type(source).__name__


def _name_of(source: Any) -> str:
    return Path(source).name.split(".")[0] if isinstance(source, (str, Path)) else type(source).__name__.lower()

"""The way from a source to a prepared dataset: read, filter, split, count what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.filters import Removed, drop_repeats, k_core
from dgcf.data.interactions import Interactions, RatingFilter, TimeUse, collect
from dgcf.data.pairs import Pairs, count_earlier
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split, assign
from dgcf.errors import ConfigError, DataError

_SPLIT_STEMS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}


SORTED = 20
"""From so many steps in lists on it is no chance if all go up."""


@dataclass(frozen=True)
class Preparation:
    """Everything that decides what becomes of a source, apart from how it is read.

    Filters run in this order: rating, repeated pairs, k-core (``iterate_core=False``: the counts of the input decide,
    once). Then the split; None keeps the one that the source brings along (ready-made files, a column ``split``), and
    splits at random where it brings none. ``keep_order``: the dataset is to know the order of each user's pairs, by
    time or, in lines ``user item item …``, by place; a split by time keeps it anyway.
    """

    ratings: RatingFilter = field(default_factory=RatingFilter)
    user_core: int = 0
    item_core: int = 0
    iterate_core: bool = True
    split: Split | None = None
    keep_order: bool = False

    def __post_init__(self) -> None:
        if min(self.user_core, self.item_core) < 0:
            raise ConfigError(f"a core of {min(self.user_core, self.item_core)} was asked for, expected 0 or more.")


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
    if len(parts) > 1 and how.split is not None:
        raise ConfigError("the data comes in ready-made splits; drop --split, or name one file to split it anew.")
    split = how.split or Split()
    time: TimeUse = "kept" if how.keep_order else split.time
    rows = collect([given[part] for part in parts], read, how.ratings, time=time, split_column=how.split is None)
    ready_made = len(parts) > 1 or rows.split_column
    if split.method == "temporal" and any(opened.listed for opened in rows.sources):
        raise DataError(
            f"{rows.sources[0].label} lists the items of each user in an order and has no times, so that pairs of "
            "different users cannot be compared; use --split user-temporal."
        )
    if ready_made and (how.user_core or how.item_core):
        raise ConfigError("a k-core would change ready-made splits; filter before splitting, or drop the option.")
    names = SPLITS if rows.split_column else tuple(parts)
    rows, removed, repeats = _filtered(rows, how, names)
    record: dict[str, Any] = {
        "source": _describe(source),
        "read": [dict(opened.read_as) for opened in rows.sources],
        "rows": rows.rows_read,
        "filters": [step.to_dict() for step in removed],
        "notes": list(rows.notes),
    }
    if ready_made:
        part = np.array([SPLITS.index(split) for split in names], dtype=np.int8)[rows.part]
        record["split"] = {"method": "given"}
    else:
        # Repeats were dropped before anything was split: they belong to the input, not to a part of it.
        repeats = {"input": sum(repeats.values())}
        part = assign(rows, split)
        record["split"] = split.to_dict()
        if split.method == "leave-k-out" and rows.timestamp is None:
            record["notes"].append("no time is known, so the pairs that leave-k-out leaves out are drawn at random.")
    if _sorted_lists(rows):
        record["notes"].append(
            "every list to train on has its items by ascending id, which is hardly the order in which they were chosen."
        )
    return assemble(rows, part, name or _name_of(source), repeats, record, titles)


def _sorted_lists(rows: Interactions) -> bool:
    """Whether all lists of the first file, which is trained on, are sorted by item, and not by chance."""
    if rows.timestamp is None or not rows.sources[0].listed:
        return False
    order = np.lexsort((rows.timestamp, rows.user_idx))
    order = order[rows.part[order] == 0]
    user, item = rows.user_idx[order], rows.item_idx[order]
    steps = user[1:] == user[:-1]
    return bool(np.count_nonzero(steps) >= SORTED and (item[1:] > item[:-1])[steps].all())


def _filtered(
    rows: Interactions, how: Preparation, names: Sequence[str]
) -> tuple[Interactions, list[Removed], dict[str, int]]:
    """The rows that stay, what each filter removed, and how many repeats each part had."""
    removed = [Removed(str(how.ratings), rows.rows_read - len(rows) - sum(rows.merged), 0, 0)] if how.ratings else []
    if not len(rows):
        raise DataError(f"the filter '{how.ratings}' leaves no interaction of {rows.rows_read:,}; change it.")
    before = np.bincount(rows.part, minlength=len(names)) + rows.merged[: len(names)]
    rows, repeated = drop_repeats(rows)
    after = np.bincount(rows.part, minlength=len(names))
    removed.append(repeated)
    if how.user_core > 1 or how.item_core > 1:
        rows, cored = k_core(rows, how.user_core, how.item_core, iterate=how.iterate_core)
        removed.append(cored)
    repeats = {name: int(before[number] - after[number]) for number, name in enumerate(names)}
    return rows.compact(), removed, repeats


def assemble(
    rows: Interactions,
    part: NDArray[np.int8],
    name: str,
    repeats: Mapping[str, int],
    record: Mapping[str, Any],
    titles: Mapping[str, str] | None,
) -> Dataset:
    n_users, n_items = len(rows.users), len(rows.items)
    place = None if rows.timestamp is None else count_earlier(rows.user_idx, rows.timestamp)
    key = rows.user_idx.astype(np.int64) * n_items + rows.item_idx
    splits = {}
    for number, split in enumerate(SPLITS):
        chosen = part == number
        pairs = Pairs.from_indices(rows.user_idx[chosen], rows.item_idx[chosen], n_users, n_items)
        splits[split] = pairs if place is None else pairs.with_places(key[chosen], place[chosen])
    if not len(splits["train"]):
        raise DataError(f"{name} has no training pair; give more data or another split.")
    items = rows.items.with_titles(dict(titles)) if titles else rows.items
    return Dataset(name, rows.users, items, **splits, repeats=repeats, record=record)


def split_files(folder: Path) -> dict[str, Path] | None:
    """The ready-made split in a folder (``train.*``, ``validation.*`` or ``valid.*``, ``test.*``), if there is one."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = path.name.lower().split(".")[:-1]  # train.txt, and RecBole's ml-1m.train.inter
        for split, stems in _SPLIT_STEMS.items():
            if set(words) & set(stems) and path.is_file():
                if split in found:
                    raise DataError(
                        f"{folder} holds two files for {split} ({found[split].name}, {path.name}); name the "
                        "training file as DATA, and the others with --validation and --test."
                    )
                found[split] = path
    return found if "train" in found else None


def _describe(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else type(source).__name__


def _name_of(source: Any) -> str:
    return Path(source).name.split(".")[0] if isinstance(source, (str, Path)) else type(source).__name__.lower()

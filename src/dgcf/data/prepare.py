"""Prepare a dataset from a source: read, filter, split, and record the steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.filters import REPEATED, core_of_events, drop_repeats, held_out_repeats, k_core
from dgcf.data.history import Removed
from dgcf.data.interactions import Interactions, RatingFilter, TimeUse, collect
from dgcf.data.pairs import Pairs, count_earlier
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import CARVED, Split, assign, carve, divides_events
from dgcf.data.weights import COUNTED, Weighting
from dgcf.errors import ConfigError, DataError, did_you_mean

_SPLIT_STEMS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
PLACEHOLDERS = frozenset(
    ("null", "none", "nil", "nan", "na", "n/a", "undefined", "unknown", "missing", "anonymous", "guest", "0", "-1", "-")
)
"""Ids that often stand for a missing one, lower case …"""
NAMED_SHARE, NAMED_TIMES = 0.01, 3
"""… warned of if they have more than this share of the pairs, and so many times the mean."""
LARGE_SHARE, MANY_TIMES = 0.1, 20
"""A user with more than this share of the pairs, and so many times the mean user, is warned of whatever the id is."""
SORTED_STEPS = 20
"""Number of ascending steps in lists from which on sorted lists are reported."""


Repeats = Literal["drop", "keep", "mask"]
REPEATS: Mapping[str, str] = {
    "drop": "left out",
    "keep": "kept as relevant items, which an evaluation that masks training items cannot reach",
    "mask": "kept in the dataset, but no relevant items of an evaluation",
}
"""What happens to held-out pairs that an earlier part has, too."""


@dataclass(frozen=True)
class Preparation:
    """The filters and the split to apply to a source.

    Filters run in this order: ratings, repeated pairs, k-core (``iterate_core=False``: one pass over the counts of the
    input). A split by time divides events first: repeated pairs are then dropped inside each part. ``repeats`` decides
    about held-out pairs that an earlier part has, too (see ``REPEATS``); the default is ``drop`` for a split by time
    and ``keep`` for a ready-made one.

    ``split=None`` keeps the split of the source (ready-made files, a column ``split``) and is a random split if there
    is none. ``carve`` is the share of the training part that becomes the validation part of a ready-made split without
    one, or of a cut; ``split`` then names the method. ``keep_order`` records the order of each user's pairs, by time
    or, in lines ``user item item …``, by position; a split by time records it in any case. ``keep_times`` records the
    times of pairs, as does every split that reads times. ``weighting`` gives each pair a weight, from the column that
    ``ReadOptions.weight_col`` names or from the number of its events.
    """

    ratings: RatingFilter = field(default_factory=RatingFilter)
    user_core: int = 0
    item_core: int = 0
    iterate_core: bool = True
    split: Split | None = None
    keep_order: bool = False
    repeats: Repeats | None = None
    carve: float | None = None
    keep_times: bool = False
    weighting: Weighting = field(default_factory=Weighting)

    def __post_init__(self) -> None:
        if self.repeats is not None and self.repeats not in REPEATS:
            near = did_you_mean(str(self.repeats), REPEATS) or "."
            raise ConfigError(f"repeats is {self.repeats!r}, expected one of {', '.join(REPEATS)}{near}")
        if min(self.user_core, self.item_core) < 0:
            raise ConfigError(f"a core of {min(self.user_core, self.item_core)} is not possible, expected 0 or more.")


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
    """Return the dataset of a path, glob, frame or matrix.

    With ``validation`` or ``test``, ``source`` holds the training pairs of a ready-made split.
    """
    how = preparation or Preparation()
    sources = {"train": source, "validation": validation, "test": test}
    parts = tuple(split for split in SPLITS if sources[split] is not None)
    carved = how.carve is not None and (how.split is None or how.split.cut is None)
    if len(parts) > 1 and how.split is not None and not carved:
        raise ConfigError("the data comes in ready-made splits; drop --split, or name one file to split it anew.")
    time: TimeUse = "needed" if how.keep_times else "kept" if how.keep_order else (how.split or Split()).time
    rows = collect(
        [sources[part] for part in parts],
        read or ReadOptions(),
        how.ratings,
        time=time,
        split_column=how.split is None or carved,
        count=how.weighting.count,
    )
    named, kind = isinstance(source, (str, Path)), type(source).__name__
    name = name or (Path(source).name.split(".")[0] if named else kind.lower())
    dataset = prepare_rows(rows, how, parts, name=name, titles=titles)
    options = {name: value for name, value in (read or ReadOptions()).given.items() if not name.startswith("titles")}
    how_read = {"source": str(source) if named else kind, **({"options": options} if options else {})}
    return replace(dataset, record={**how_read, **dataset.record})


def prepare_rows(
    rows: Interactions,
    how: Preparation,
    parts: Sequence[str] = ("train",),
    *,
    name: str = "rows",
    titles: Mapping[str, str] | None = None,
) -> Dataset:
    """Filter and split rows of indices; ``parts`` are the splits that the sources of the rows hold."""
    ready_made = len(parts) > 1 or rows.split_column
    split = how.split or Split()
    _refuse_impossible(rows, how, split, ready_made)
    names = SPLITS if rows.split_column else parts
    events = not ready_made and divides_events(rows, split)
    rows, removed, repeats = _filter(rows, how, names, merge=not events)
    notes = _notes(rows, split, events=events, ready_made=ready_made)
    rows = _divided(rows, how, split, names if ready_made else None)
    if events:
        rows, repeated = drop_repeats(rows)
        removed.append(repeated)
    if not ready_made:
        # Repeats belong to the input, not to a split that was given.
        repeats = {"input": next(step.pairs for step in removed if step.filter == REPEATED)}
    rows, held_out = _held_out(rows, how, removed, events=events)
    record = {
        "read": [dict(source.read_as) for source in rows.sources],
        "rows": rows.rows_read,
        "filters": [step.to_dict() for step in removed],
        "notes": [*rows.notes, *placeholder_notes(rows), *notes],
        **({"titles": rows.titles.to_dict()} if rows.titles is not None and titles is None else {}),
        "split": _split_record(how, split, ready_made=ready_made),
        **({"held_out": held_out} if held_out else {}),
        **({"weights": _weights_record(rows, how)} if rows.weight is not None else {}),
    }
    if titles is None and rows.titles is not None:
        titles = rows.titles.titles
    return assemble(rows, name, repeats, record, titles, how.weighting)


def _refuse_impossible(rows: Interactions, how: Preparation, split: Split, ready_made: bool) -> None:
    if split.method == "temporal" and any(source.listed for source in rows.sources):
        raise DataError(
            f"{rows.sources[0].label} lists the items of each user in an order and has no times, so that pairs of "
            "different users cannot be compared; use --split user-temporal."
        )
    if ready_made and (how.user_core or how.item_core):
        raise ConfigError("a k-core would change ready-made splits; filter before splitting, or drop the option.")
    if how.carve is not None and not ready_made and split.cut is None:
        raise ConfigError(
            "a share for validation is carved out of a ready-made training part, or of what is before a cut (--cut); "
            "set the shares of another split by --ratios."
        )
    if how.carve is not None and split.validation_cut is not None:
        raise ConfigError("a share and a cut for validation were both given; choose one of them.")
    if how.repeats is not None and not ready_made and not divides_events(rows, split):
        raise ConfigError(
            f"--repeats {how.repeats} is about pairs that a later part has again, which the split {split.method} never "
            "has; leave it out, or split by time."
        )


def _notes(rows: Interactions, split: Split, *, events: bool, ready_made: bool) -> list[str]:
    """Return remarks on the times and the order of the rows before they are split."""
    notes = []
    if split.method == "leave-k-out" and not ready_made and rows.timestamp is None:
        notes.append("no time is known, so the pairs that leave-k-out leaves out are drawn at random.")
    if events and any(rows.merged):
        notes.append(
            "the source repeats its rows so often that they were merged while reading: only the latest event of each "
            "pair was split."
        )
    if _sorted_lists(rows):
        notes.append(
            "every list to train on has its items by ascending id, which is hardly the order in which they were chosen."
        )
    return notes


def _divided(rows: Interactions, how: Preparation, split: Split, given: Sequence[str] | None) -> Interactions:
    """Return the rows with their parts: those of sources, which hold the ``given`` splits, or those of ``split``."""
    if given is None:
        part, share = assign(rows, split), _share_of_cut(how, split)
    else:
        part, share = np.array([SPLITS.index(name) for name in given], dtype=np.int8)[rows.part], how.carve
        if share is not None and (part == 1).any():
            raise ConfigError("the data has a validation part already; leave the share for validation out.")
    return replace(rows, part=part if share is None else carve(rows, part, share, split))


def _share_of_cut(how: Preparation, split: Split) -> float | None:
    """Return the share for validation of the events before a cut, or None for other splits."""
    if split.cut is None or split.validation_cut is not None:
        return None
    return CARVED if how.carve is None else how.carve


def _split_record(how: Preparation, split: Split, *, ready_made: bool) -> dict[str, Any]:
    if not ready_made:
        share = _share_of_cut(how, split)
        return split.to_dict() | _carved_record(share, split)
    return {"method": "given"} | _carved_record(how.carve, split)


def _carved_record(share: float | None, split: Split) -> dict[str, Any]:
    return {} if share is None else {"carved": {"share": share, "method": split.method, "seed": split.seed}}


def carve_prepared(dataset: Dataset, how: Preparation) -> Dataset:
    """Return a prepared dataset without validation pairs, with a share of its training pairs in their place."""
    split, pairs = how.split or Split(), dataset.train
    if how.carve is None or len(dataset.validation):
        raise ConfigError(f"{dataset.name} has a validation part already; leave the share for validation out.")
    time = pairs.place if pairs.time is None and split.method != "temporal" else pairs.time
    if split.time == "needed" and time is None:
        raise DataError(f"{dataset.name} has no times, which the split {split.method} needs; choose another split.")
    part = np.zeros(len(pairs), dtype=np.int8)
    rows = Interactions(
        dataset.users,
        dataset.items,
        pairs.user_idx.astype(np.int32),
        pairs.indices,
        part,
        None if time is None else time.astype(np.float64),
        len(pairs),
    )
    held = carve(rows, part, how.carve, split) > 0
    record = {**dataset.record, "split": {**dataset.record.get("split", {}), **_carved_record(how.carve, split)}}
    return replace(dataset, train=pairs.where(~held), validation=pairs.where(held), record=record)


def _held_out(
    rows: Interactions, how: Preparation, removed: list[Removed], *, events: bool
) -> tuple[Interactions, dict[str, Any]]:
    """Return the rows without the held-out pairs that ``how.repeats`` drops, and the entry of the record."""
    if not events and how.repeats is None:
        return rows, {}
    rule = how.repeats or "drop"
    again, counts = held_out_repeats(rows)
    if rule == "drop":
        removed.append(Removed("held-out pairs of an earlier part", int(again.sum()), 0, 0))
        rows = rows.keep(~again)
    return rows, {"repeats": rule, **counts}


def _weights_record(rows: Interactions, how: Preparation) -> dict[str, str]:
    column = rows.sources[0].read_as.get("columns", {}).get("weight", "") if rows.sources else ""
    return {"from": COUNTED if how.weighting.count else str(column), "transform": str(how.weighting)}


def _sorted_lists(rows: Interactions) -> bool:
    """Return whether all lists of the training file are sorted by item, in too many steps for chance."""
    if rows.timestamp is None or not rows.sources[0].listed:
        return False
    order = np.lexsort((rows.timestamp, rows.user_idx))
    order = order[rows.part[order] == 0]
    user, item = rows.user_idx[order], rows.item_idx[order]
    steps = user[1:] == user[:-1]
    return bool(np.count_nonzero(steps) >= SORTED_STEPS and (item[1:] > item[:-1])[steps].all())


def _filter(
    rows: Interactions, how: Preparation, names: Sequence[str], *, merge: bool
) -> tuple[Interactions, list[Removed], dict[str, int]]:
    """Return the remaining rows, what each filter removed, and the number of repeats in each part.

    ``merge``: each pair of a part is kept once.
    """
    removed = list(rows.removed)
    if not len(rows):
        filters = " and ".join(f"'{step.filter}'" for step in removed if step.pairs)
        raise DataError(f"the filter {filters} leaves no interaction of {rows.rows_read:,}; change it.")
    before = np.bincount(rows.part, minlength=len(names)) + rows.merged[: len(names)]
    if merge:
        rows, repeated = drop_repeats(rows)
        removed.append(repeated)
    after = np.bincount(rows.part, minlength=len(names))
    if how.user_core > 1 or how.item_core > 1:
        core = k_core if merge else core_of_events
        rows, cored = core(rows, how.user_core, how.item_core, iterate=how.iterate_core)
        removed.append(cored)
    repeats = {name: int(before[number] - after[number]) for number, name in enumerate(names)}
    return rows.compact(), removed, repeats


def placeholder_notes(rows: Interactions) -> list[str]:
    """Return warnings of ids that may stand for missing ones, such as ``guest``; the rows hold each pair once."""
    notes = []
    columns = rows.sources[0].read_as.get("columns", {}) if rows.sources else {}
    for vocabulary, index in ((rows.users, rows.user_idx), (rows.items, rows.item_idx)):
        degrees = np.bincount(index, minlength=len(vocabulary))
        most = int(degrees.argmax())
        mean = len(rows) / len(vocabulary)
        least = max(NAMED_SHARE * len(rows), NAMED_TIMES * mean)
        named = [at for at in np.flatnonzero(degrees > least).tolist() if _is_placeholder(vocabulary.texts[at])]
        # One item may be in most baskets, but hardly one user has a tenth of all pairs among many others.
        alone = vocabulary.what == "user" and degrees[most] > LARGE_SHARE * len(rows)
        alone = alone and degrees[most] > MANY_TIMES * mean
        for at in {*named, *([most] if alone else [])}:
            column = str(columns.get(vocabulary.what, vocabulary.what))
            name = column if column.isidentifier() else '"' + column.replace('"', '""') + '"'
            text = vocabulary.texts[at].replace("'", "''")
            condition = re.sub(r'(["$`\\])', r"\\\1", f"{name} <> '{text}'")
            notes.append(
                f"{vocabulary.what} {vocabulary.texts[at]!r} has {degrees[at]:,} of {len(rows):,} pairs "
                f"({degrees[at] / len(rows):.0%}) and may stand for missing ids; if so, leave it out with --where "
                f'"{condition}".'
            )
    return notes


def _is_placeholder(text: str) -> bool:
    return text.strip(" ()<>#").lower() in PLACEHOLDERS


def assemble(
    rows: Interactions,
    name: str,
    repeats: Mapping[str, int],
    record: Mapping[str, Any],
    titles: Mapping[str, str] | None,
    weighting: Weighting = Weighting(),
) -> Dataset:
    """Return the dataset of rows that hold each pair of a part once; a part is 0 for train, 1 validation, 2 test."""
    n_users, n_items = len(rows.users), len(rows.items)
    # The positions in lists are an order, not times.
    listed = any(source.listed for source in rows.sources)
    values = {
        "place": None if rows.timestamp is None else count_earlier(rows.user_idx, rows.timestamp),
        "time": None if listed else rows.timestamp,
        "weight": None if rows.weight is None else weighting.apply(rows.weight),
    }
    key = rows.user_idx.astype(np.int64) * n_items + rows.item_idx
    splits: dict[str, Any] = {}
    for number, split in enumerate(SPLITS):
        chosen = rows.part == number
        pairs = Pairs.from_indices(rows.user_idx[chosen], rows.item_idx[chosen], n_users, n_items)
        known = {what: array[chosen] for what, array in values.items() if array is not None}
        splits[split] = pairs.with_values(key[chosen], **known) if known else pairs
    if not len(splits["train"]):
        raise DataError(f"{name} has no training pair; give more data or another split.")
    items = rows.items.with_titles(dict(titles)) if titles else rows.items
    return Dataset(name, rows.users, items, **splits, repeats=repeats, record=record)


def split_files(folder: Path) -> dict[str, Path] | None:
    """Return the files of a ready-made split (``train.*``, ``valid.*``, ``test.*``), or None if there is none."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = path.name.lower().split(".")[:-1]  # train.txt, and RecBole's ml-1m.train.inter
        for split, stems in _SPLIT_STEMS.items():
            if set(words) & set(stems) and path.is_file():
                if split in files:
                    raise DataError(
                        f"{folder} holds two files for {split} ({files[split].name}, {path.name}); name the "
                        "training file as DATA, and the others with --validation and --test."
                    )
                files[split] = path
    if len(files) == 1 and "train" in files:
        raise DataError(f"{folder} holds {files['train'].name} and no file to test on; name the file to have it split.")
    return files if "train" in files else None

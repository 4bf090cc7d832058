"""Statistics of a dataset and warnings about its flaws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs
from dgcf.stored import InvalidFileError, NonNegativeInt, check_type

RELATIVE_CHANGE, STANDARD_ERRORS = 0.05, 4.0
"""A difference in popularity between two splits beyond both of these is warned of."""
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class _Step(TypedDict):
    filter: str
    pairs: int
    users: int
    items: int


class _HeldOut(TypedDict):
    repeats: str
    validation: NonNegativeInt
    test: NonNegativeInt
    test_validation: NonNegativeInt


class _Update(TypedDict):
    new_pairs: NonNegativeInt
    known_pairs: NonNegativeInt
    new_users: NonNegativeInt
    new_items: NonNegativeInt
    expired_pairs: NonNegativeInt
    held_out: NonNegativeInt
    held_out_by: str


@dataclass(frozen=True)
class Statistics:
    """Counts of a dataset.

    ``train``, ``validation`` and ``test`` count the pairs of ready-made splits with repeats. Repeats of an input that
    was split by dgcf are dropped before and counted as ``duplicates["input"]``. ``popularity`` is the mean number of
    other users who have the item of a pair in training, per split (None if empty); it is about equal for splits drawn
    from the same distribution. ``ordered``: the order of each user's pairs is known.
    ``values``: what is known of every pair (``place``, ``time``, ``weight``).

    The history: ``source``, the ``rows`` that were read, what each of the ``filters`` removed, ``split`` with its
    parameters, ``held_out``: the numbers of held-out pairs that an earlier part has, too, and what was done with them,
    the origin and the spread of the ``weights``, and what each of the ``updates`` changed afterwards.
    """

    name: str
    users: int
    items: int
    train: int
    validation: int
    test: int
    density: float
    duplicates: dict[str, int]
    leaks: dict[str, int]
    cold: dict[str, int]
    degrees: dict[str, dict[str, float]]
    popularity: dict[str, float | None]
    ordered: bool
    values: tuple[str, ...]
    source: str
    rows: int | None
    filters: tuple[dict[str, Any], ...]
    split: dict[str, Any]
    held_out: dict[str, Any]
    weights: dict[str, Any]
    updates: tuple[dict[str, Any], ...]
    fingerprint: str
    known_as: str | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"warnings": list(self.warnings)}


def _without_pairs(train: Pairs, validation: Pairs, test: Pairs) -> dict[str, int]:
    """Return the numbers of users and items that have no pair in a split."""
    return {
        "users": int(np.count_nonzero(train.user_degrees == 0)),
        "items": int(np.count_nonzero(train.item_degrees == 0)),
        "users_without_validation": int(np.count_nonzero(validation.user_degrees == 0)),
        "users_without_test": int(np.count_nonzero(test.user_degrees == 0)),
    }


def statistics(dataset: Dataset, known_as: str | None = None, caveats: Sequence[str] = ()) -> Statistics:
    """Return the statistics of a dataset; ``known_as`` and ``caveats`` come from the catalogue."""
    train, validation, test = (dataset.split(name) for name in SPLITS)
    leaks = {
        "train_validation": _common(train, validation),
        "train_test": _common(train, test),
        "validation_test": _common(validation, test),
    }
    distinct = len(train.union(validation, test))
    popular = {name: train.item_degrees[dataset.split(name).indices] for name in SPLITS}
    popular["train"] = popular["train"] - 1  # a pair does not count for itself
    counts = Statistics(
        name=dataset.name,
        users=dataset.n_users,
        items=dataset.n_items,
        train=len(train) + dataset.repeats.get("train", 0),
        validation=len(validation) + dataset.repeats.get("validation", 0),
        test=len(test) + dataset.repeats.get("test", 0),
        density=distinct / (dataset.n_users * dataset.n_items),
        duplicates={**dict.fromkeys((*SPLITS, "input"), 0), **dataset.repeats},
        leaks=leaks,
        cold=_without_pairs(train, validation, test),
        degrees={"users": _quantiles(train.user_degrees), "items": _quantiles(train.item_degrees)},
        popularity={name: _mean(others) for name, others in popular.items()},
        ordered=dataset.order is not None,
        values=dataset.values,
        source=_recorded(dataset, "source", str, ""),
        rows=_recorded(dataset, "rows", NonNegativeInt, None),
        filters=tuple(_recorded(dataset, "filters", list[_Step], [])),
        split=_recorded(dataset, "split", dict[str, Any], {}),
        held_out=_recorded(dataset, "held_out", _HeldOut, {}),
        weights=_weights(dataset),
        updates=tuple(_recorded(dataset, "updates", list[_Update], [])),
        fingerprint=dataset.fingerprint,
        known_as=known_as,
        warnings=(),
    )
    notes = (*caveats, *dataset.record.get("notes", ()))
    before = ("validation", popular["validation"]) if len(validation) else ("training", popular["train"])
    return replace(counts, warnings=(*notes, *_warnings(counts), *_popularity_warning(*before, popular["test"])))


def _weights(dataset: Dataset) -> dict[str, Any]:
    weight = dataset.train.weight
    if weight is None:
        return {}
    spread = {"min": float(weight.min()), "mean": float(weight.mean(dtype=np.float64)), "max": float(weight.max())}
    return {**_recorded(dataset, "weights", dict[str, str], {}), **spread}


def _recorded(dataset: Dataset, name: str, kind: Any, default: Any) -> Any:
    """Return an entry of the record, or ``default`` if there is none or it has another form."""
    try:
        return check_type(dataset.record[name], kind)
    except (KeyError, InvalidFileError):
        return default


def _common(first: Pairs, second: Pairs) -> int:
    return len(np.intersect1d(first.keys(), second.keys(), assume_unique=True))


def _mean(values: NDArray[np.int64]) -> float | None:
    return float(values.mean()) if len(values) else None


def _popularity_warning(split: str, before: NDArray[np.int64], test: NDArray[np.int64]) -> list[str]:
    """Return a warning if the items of test differ in popularity from those of another split, not by chance."""
    if min(len(before), len(test)) < 2 or not before.any():
        return []
    change = test.mean() / before.mean() - 1
    noise = np.sqrt(before.var() / len(before) + test.var() / len(test))
    if abs(change) < RELATIVE_CHANGE or abs(test.mean() - before.mean()) < STANDARD_ERRORS * noise:
        return []
    return [
        f"the items of test pairs are {abs(change):.0%} {'more' if change > 0 else 'less'} popular in training than "
        f"those of {split} pairs: they were not drawn alike, and settings chosen on the one may not suit the other."
    ]


def _quantiles(degrees: NDArray[np.int64]) -> dict[str, float]:
    values = np.quantile(degrees, QUANTILES)
    return {f"{share:.0%}": float(value) for share, value in zip(QUANTILES, values, strict=True)} | {
        "mean": float(degrees.mean())
    }


def _warnings(s: Statistics) -> list[str]:
    warnings = []
    if s.duplicates["input"]:
        once = "once in each part" if s.held_out else "once"
        warnings.append(f"{s.duplicates['input']:,} rows of the input repeat a pair; each pair is kept {once}.")
    for split, count in s.duplicates.items():
        if count and split != "input":
            size = getattr(s, split)
            warnings.append(
                f"{count:,} of the {size:,} {split} pairs are repeats; each pair is kept once, {size - count:,} remain."
            )
    masked = s.held_out.get("repeats") == "mask"
    effect = "evaluations leave them out" if masked else "masking seen items makes them unreachable"
    twice = "evaluations on test leave them out" if masked else "tuning sees part of the answer"
    for key, what in (
        ("train_validation", f"validation pairs are also in train: {effect}"),
        ("train_test", f"test pairs are also in train: {effect}"),
        ("validation_test", f"pairs are both in validation and in test: {twice}"),
    ):
        if s.leaks[key]:
            warnings.append(f"{s.leaks[key]:,} {what}.")
    if s.cold["items"]:
        warnings.append(f"{s.cold['items']:,} items have no training pair: no model can learn them.")
    if s.cold["users"]:
        warnings.append(f"{s.cold['users']:,} users have no training pair: they get recommendations by fold-in only.")
    if not s.validation:
        warnings.append("there is no validation split: nothing to stop training by or to choose settings on.")
    if not s.test:
        warnings.append("there is no test split: nothing to report accuracy on.")
    elif s.cold["users_without_test"]:
        warnings.append(f"{s.cold['users_without_test']:,} users have no test pair and are left out of test averages.")
    if s.validation and s.cold["users_without_validation"]:
        warnings.append(
            f"{s.cold['users_without_validation']:,} users have no validation pair and are left out of its averages."
        )
    if s.degrees["users"]["50%"] < 3:
        warnings.append("half of the users have fewer than 3 training pairs: consider a k-core (--user-core 5).")
    return warnings

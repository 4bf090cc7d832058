"""What a careful person wants to know of a dataset before training on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import SPLITS, Dataset
from dgcf.data.pairs import Pairs

UNLIKE, SIGMAS = 0.05, 4.0
"""How far apart the popularity of two parts is warned of: by more than this share and so many standard errors."""
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Statistics:
    """Counts of a dataset.

    ``train``, ``validation`` and ``test`` count the pairs of ready-made splits as given, repeats included; repeats of
    an input that was split here are dropped first, and counted as ``duplicates["input"]``. ``popularity`` is how many
    other users have the item of a pair in training, on average over each part's pairs: about the same for parts that
    were drawn alike. An empty part has none. ``ordered``: the order of each user's pairs is known.
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
    fingerprint: str
    known_as: str | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"warnings": list(self.warnings)}


def statistics(dataset: Dataset, known_as: str | None = None, caveats: Sequence[str] = ()) -> Statistics:
    """Count; ``known_as`` and ``caveats`` come from the catalogue of known datasets."""
    train, validation, test = (dataset.split(name) for name in SPLITS)
    leaks = {
        "train_validation": _common(train, validation),
        "train_test": _common(train, test),
        "validation_test": _common(validation, test),
    }
    cold = {
        "users": int(np.count_nonzero(train.user_degrees == 0)),
        "items": int(np.count_nonzero(train.item_degrees == 0)),
        "users_without_validation": int(np.count_nonzero(validation.user_degrees == 0)),
        "users_without_test": int(np.count_nonzero(test.user_degrees == 0)),
    }
    distinct = len(train.union(validation, test))
    popular = {name: train.item_degrees[dataset.split(name).indices] for name in SPLITS}
    popular["train"] = popular["train"] - 1  # a pair does not count for itself
    found = Statistics(
        name=dataset.name,
        users=dataset.n_users,
        items=dataset.n_items,
        train=len(train) + dataset.repeats.get("train", 0),
        validation=len(validation) + dataset.repeats.get("validation", 0),
        test=len(test) + dataset.repeats.get("test", 0),
        density=distinct / (dataset.n_users * dataset.n_items),
        duplicates={**dict.fromkeys((*SPLITS, "input"), 0), **dataset.repeats},
        leaks=leaks,
        cold=cold,
        degrees={"users": _quantiles(train.user_degrees), "items": _quantiles(train.item_degrees)},
        popularity={name: _mean(others) for name, others in popular.items()},
        ordered=dataset.order is not None,
        fingerprint=dataset.fingerprint,
        known_as=known_as,
        warnings=(),
    )
    notes = (*caveats, *dataset.record.get("notes", ()))
    before = ("validation", popular["validation"]) if len(validation) else ("training", popular["train"])
    unlike = _unlike(*before, popular["test"])
    return Statistics(**{**found.__dict__, "warnings": (*notes, *_warnings(found), *unlike)})


def _common(one: Pairs, other: Pairs) -> int:
    return len(np.intersect1d(one.keys(), other.keys(), assume_unique=True))


def _mean(values: NDArray[np.int64]) -> float | None:
    return float(values.mean()) if len(values) else None


def _unlike(part: str, before: NDArray[np.int64], test: NDArray[np.int64]) -> list[str]:
    """A warning where the items of test are more popular than those of another part, or less, and not by chance."""
    if min(len(before), len(test)) < 2 or not before.any():
        return []
    change = test.mean() / before.mean() - 1
    noise = np.sqrt(before.var() / len(before) + test.var() / len(test))
    if abs(change) < UNLIKE or abs(test.mean() - before.mean()) < SIGMAS * noise:
        return []
    return [
        f"the items of test pairs are {abs(change):.0%} {'more' if change > 0 else 'less'} popular in training than "
        f"those of {part} pairs: they were not drawn alike, and settings chosen on the one may not suit the other."
    ]


def _quantiles(degrees: NDArray[np.int64]) -> dict[str, float]:
    values = np.quantile(degrees, QUANTILES)
    return {f"{share:.0%}": float(value) for share, value in zip(QUANTILES, values, strict=True)} | {
        "mean": float(degrees.mean())
    }


def _warnings(s: Statistics) -> list[str]:
    found = []
    if s.duplicates["input"]:
        found.append(f"{s.duplicates['input']:,} rows of the input repeat a pair; each pair is kept once.")
    for split, count in s.duplicates.items():
        if count and split != "input":
            size = getattr(s, split)
            found.append(
                f"{count:,} of the {size:,} {split} pairs are repeats; each pair is kept once, {size - count:,} remain."
            )
    for key, what in (
        ("train_validation", "validation pairs are also in train: masking seen items makes them unreachable"),
        ("train_test", "test pairs are also in train: masking seen items makes them unreachable"),
        ("validation_test", "pairs are both in validation and in test: tuning sees part of the answer"),
    ):
        if s.leaks[key]:
            found.append(f"{s.leaks[key]:,} {what}.")
    if s.cold["items"]:
        found.append(f"{s.cold['items']:,} items have no training pair: no model can learn them.")
    if s.cold["users"]:
        found.append(f"{s.cold['users']:,} users have no training pair: they get recommendations by fold-in only.")
    if not s.validation:
        found.append("there is no validation split: nothing to stop training by or to choose settings on.")
    if not s.test:
        found.append("there is no test split: nothing to report accuracy on.")
    elif s.cold["users_without_test"]:
        found.append(f"{s.cold['users_without_test']:,} users have no test pair and are left out of test averages.")
    if s.validation and s.cold["users_without_validation"]:
        found.append(
            f"{s.cold['users_without_validation']:,} users have no validation pair and are left out of its averages."
        )
    if s.degrees["users"]["50%"] < 3:
        found.append("half of the users have fewer than 3 training pairs: consider a k-core (--user-core 5).")
    return found

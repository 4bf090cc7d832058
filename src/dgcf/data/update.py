"""Update a dataset: add the pairs, users and items of new rows, and drop pairs that have expired.

Known ids keep their indices, and new ids come after them. All pairs of the dataset, those of its validation and test
included, become training pairs; a share of the new pairs is held out for validation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import Dataset
from dgcf.data.everything import everything
from dgcf.data.pairs import Pairs, count_earlier
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError
from dgcf.random import bits

HELD_OUT = 0.1
"""The share of the new pairs that is held out for validation."""
_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Counts:
    """What an update changed: pairs added, pairs that were known already, users and items added, pairs expired, and
    pairs held out for validation, the newest ones (``time``) or a random choice."""

    new_pairs: int
    known_pairs: int
    new_users: int
    new_items: int
    expired_pairs: int
    held_out: int
    held_out_by: Literal["time", "random"]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


NO_CHANGE = Counts(0, 0, 0, 0, 0, 0, "time")


def seconds_of_window(text: str) -> float:
    """Return the length of a window such as ``365d``, ``52w`` or ``48h`` in seconds."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([hdw])\s*", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not seconds > 0:
        raise ConfigError(f"--window is {text!r}, expected a length above 0 in days, weeks or hours, such as 365d.")
    return seconds


def update(
    dataset: Dataset, rows: Dataset, *, window: float | None = None, held_out: float = HELD_OUT, seed: int = 0
) -> tuple[Dataset, Counts]:
    """Return a dataset with the pairs of ``rows`` added, and the counts of what changed.

    ``window``: drop pairs that are so many seconds older than the newest one. ``held_out``: the share of the new pairs
    that is held out for validation; each user and item keeps a training pair.
    """
    if not 0 <= held_out < 1:
        raise ConfigError(f"the share {held_out:g} of new pairs to hold out is not from 0 to below 1.")
    users, user_map = _extended(dataset.users, rows.users)
    items, item_map = _extended(dataset.items, rows.items)
    before = resized(everything(dataset).train, len(users), len(items))
    added = _renumbered(everything(rows).train, user_map, item_map, len(users), len(items))
    fresh = added.without(before)
    together = _with_places(before, added, fresh)
    current = together if window is None else together.where(_since(together, window))
    kept = np.isin(fresh.keys(), current.keys())
    fresh = fresh.where(kept)
    held = _hold_out(current, fresh, held_out, seed)
    counts = Counts(
        new_pairs=len(fresh),
        known_pairs=len(added) - len(kept),
        new_users=len(users) - len(dataset.users),
        new_items=len(items) - len(dataset.items),
        expired_pairs=len(together) - len(current),
        held_out=int(held.sum()),
        held_out_by="random" if fresh.time is None else "time",
    )
    if not len(current.where(~held)):
        raise DataError("no training pair is left after the update; lengthen --window, or add more rows.")
    record = {**dataset.record, "updates": [*dataset.record.get("updates", []), counts.to_dict()]}
    train, validation, test = current.where(~held), current.where(held), Pairs.empty(len(users), len(items))
    options = dataset.read_options
    return Dataset(dataset.name, users, items, train, validation, test, record=record, read_options=options), counts


def resized(pairs: Pairs, n_users: int, n_items: int) -> Pairs:
    """Return the same pairs among more users and items."""
    indptr = np.concatenate([pairs.indptr, np.full(n_users - pairs.n_users, pairs.indptr[-1], dtype=np.int64)])
    return replace(pairs, indptr=indptr, n_items=n_items)


def _extended(known: Vocabulary, new: Vocabulary) -> tuple[Vocabulary, NDArray[np.int64]]:
    """Return the known ids followed by the unknown ones of ``new``, and the index of each id of ``new`` there."""
    if known.kind == "integer" and not all(map(_WHOLE.fullmatch, new.texts)):
        example = next(text for text in new.texts if not _WHOLE.fullmatch(text))
        raise DataError(
            f"the {known.what} ids of the data are whole numbers, but the new rows have {example[:40]!r}; name the "
            f"right column with --{known.what}-col, or correct the ids."
        )
    unknown = [index for index, text in enumerate(new.texts) if text not in known]
    place = {new.texts[index]: len(known) + number for number, index in enumerate(unknown)}
    mapped = np.array([place[text] if text in place else known.index_of(text) for text in new.texts], dtype=np.int64)
    more = [new.texts[index] for index in unknown]
    titles: list[str] | None = None
    if known.titles is not None or new.titles is not None:
        titles = list(known.titles or [""] * len(known))
        for index, at in enumerate(mapped.tolist()):
            title = new.titles[index] if new.titles else ""
            if at >= len(known):
                titles.append(title)
            elif title and not titles[at]:
                titles[at] = title
    return Vocabulary.from_sorted(known.what, [*known.texts, *more], known.kind, titles), mapped


def _renumbered(
    pairs: Pairs, user_map: NDArray[np.int64], item_map: NDArray[np.int64], n_users: int, n_items: int
) -> Pairs:
    """Return the pairs with other indices, and with their values."""
    key = user_map[pairs.user_idx] * n_items + item_map[pairs.indices]
    order = np.argsort(key)
    renumbered = Pairs.from_keys(key[order], n_users, n_items)
    return renumbered.with_values(key, **pairs.values)


def _with_places(before: Pairs, added: Pairs, fresh: Pairs) -> Pairs:
    """Return the union; if the order of all pairs is known, new pairs come after the known ones of their user."""
    together = before.union(added)
    if together.time is not None:
        return replace(together, place=None if before.place is None else _rank(together.user_idx, together.time))
    if before.place is None or fresh.place is None:
        return replace(together, place=None)
    user_idx = np.concatenate([before.user_idx, fresh.user_idx])
    later = np.concatenate([before.place, fresh.place + np.int64(2**31)])
    key = np.concatenate([before.keys(), fresh.keys()])
    return replace(together, place=None).with_values(key, place=_rank(user_idx, later))


def _rank(user_idx: NDArray[np.integer], time: NDArray[Any]) -> NDArray[np.int32]:
    return count_earlier(user_idx, time).astype(np.int32)


def _since(pairs: Pairs, window: float) -> NDArray[np.bool_]:
    """Return (n_pairs,) which pairs are at most ``window`` seconds older than the newest one."""
    if pairs.time is None:
        raise DataError(
            "--window needs the time of every pair, which the data or the new rows do not have; prepare the data with "
            "`dgcf data prepare --keep-times`, give new rows with a timestamp column, or leave --window out."
        )
    newest = float(pairs.time.max())
    return np.asarray(pairs.time >= newest - window * ticks_per_second(newest))


def ticks_per_second(time: float) -> float:
    """Return how many units of a time of this century make a second: 1, or 1000 for milliseconds, and so on."""
    return next((ticks for least, ticks in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)) if time >= least), 1.0)


def _hold_out(current: Pairs, fresh: Pairs, share: float, seed: int) -> NDArray[np.bool_]:
    """Return (n_pairs,) which pairs are held out: a share of the fresh ones, whose users and items have others."""
    held = np.zeros(len(current), dtype=bool)
    count = round(share * len(fresh))
    if not count:
        return held
    draw = bits(seed, "update/held-out", len(fresh))
    keys: Sequence[NDArray[Any]] = (draw,) if fresh.time is None else (draw, fresh.time)
    newest = np.sort(np.lexsort(keys)[-count:])
    held[np.searchsorted(current.keys(), fresh.keys()[newest])] = True
    train = current.where(~held)
    kept = (train.user_degrees[current.user_idx] > 0) & (train.item_degrees[current.indices] > 0)
    return held & kept

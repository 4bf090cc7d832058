"""Forget users: datasets without them, and the list of digests by which their old rows are not read again.

The list of a dataset is ``record["forgotten"]``, and that of a saved model ``about["forgotten"]``. An entry has the
digest of an id and the time of the forgetting, in seconds since 1970. New rows of such a user are left out, unless
their times are later: so old rows do not bring a user back, and a user who comes back begins a new history.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import ABOUT, SPLITS, Dataset
from dgcf.data.history import Removed
from dgcf.data.pairs import Pairs
from dgcf.data.update import ticks_per_second
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError
from dgcf.ids import user_digest
from dgcf.stored import InvalidFileError, check_type, decode_json, read_member

LIST = "forgotten"
FILTER = "rows of forgotten users, not known to be later"


class Forgotten(TypedDict):
    """A forgotten user: the digest of the id, and the time in seconds since 1970."""

    digest: str
    at: float


class _About(TypedDict):
    record: dict[str, Any]


def entries_of(record: Mapping[str, Any]) -> list[Forgotten]:
    """Return the list of forgotten users in a record; raise ``DataError`` for a damaged one."""
    try:
        return check_type(record.get(LIST, []), list[Forgotten], LIST)
    except InvalidFileError as problem:
        raise DataError(f"the list of forgotten users is damaged ({problem}); restore the data from a copy.") from None


def with_entries(known: Iterable[Forgotten], users: Iterable[str], at: float) -> list[Forgotten]:
    """Return a list of forgotten users with ``users`` added, in the order of the digests."""
    entries = {entry["digest"]: entry["at"] for entry in known}
    entries |= {user_digest(user): at for user in users}
    return [{"digest": digest, "at": entries[digest]} for digest in sorted(entries)]


def others(vocabulary: Vocabulary, users: Collection[str]) -> NDArray[np.int64]:
    """Return the indices of all ids but ``users``, ascending."""
    gone = [vocabulary.index_of(user) for user in users if user in vocabulary]
    return np.setdiff1d(np.arange(len(vocabulary)), gone)


def without_users(dataset: Dataset, users: Collection[str], at: float) -> Dataset:
    """Return the dataset without some users, their pairs and titles, and with their digests in its list."""
    record = dict(dataset.record)
    record[LIST] = with_entries(entries_of(record), users, at)
    if isinstance(record.get("notes"), list):
        record["notes"] = [note for note in record["notes"] if not any(names(note, user) for user in users)]
    return _with_users(replace(dataset, record=record), others(dataset.users, users))


def names(text: str, user: str) -> bool:
    """Return whether a text has the id of a user, as a word or in quotes."""
    forms = "|".join(re.escape(form) for form in {user, repr(user)[1:-1], user.replace("'", "''")})
    return re.search(rf"(?<!\w)({forms})(?!\w)", text) is not None


def _with_users(dataset: Dataset, kept: NDArray[np.int64]) -> Dataset:
    splits: dict[str, Any] = {name: dataset.split(name).of_users(kept) for name in SPLITS}
    if not len(splits["train"]):
        raise DataError(f"no training pair of {dataset.name} would be left; delete it instead.")
    return replace(dataset, users=dataset.users.take(kept), **splits)


def without_old_rows(rows: Dataset, forgotten: Sequence[Forgotten]) -> Dataset:
    """Return new rows without those of forgotten users that are not known to be later than the forgetting.

    Users and items that have no other rows are left out, and a filter in the record counts what was removed.
    """
    since = {entry["digest"]: entry["at"] for entry in forgotten}
    last = np.array([since.get(user_digest(user), -np.inf) for user in rows.users.texts]) if since else np.zeros(0)
    if not (last > -np.inf).any():
        return rows
    splits = {name: rows.split(name) for name in SPLITS}
    kept = {name: pairs.where(_later(pairs, last)) for name, pairs in splits.items()}
    pairs = sum(len(before) - len(kept[name]) for name, before in splits.items())
    users = _used(splits.values(), kept.values(), lambda pairs: pairs.user_degrees)
    items = _used(splits.values(), kept.values(), lambda pairs: pairs.item_degrees)
    removed = Removed(FILTER, pairs, rows.n_users - len(users), rows.n_items - len(items))
    record = {**rows.record, "filters": [*rows.record.get("filters", []), removed.to_dict()]}
    fewer: dict[str, Any] = {name: _of_items(pairs.of_users(users), items) for name, pairs in kept.items()}
    return replace(rows, users=rows.users.take(users), items=rows.items.take(items), record=record, **fewer)


def _later(pairs: Pairs, last: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return (n_pairs,) which pairs are of no forgotten user, or later than the forgetting; ``last`` (n_users,)."""
    limit = last[pairs.user_idx]
    if pairs.time is None or not len(pairs):
        return np.asarray(limit == -np.inf)
    return np.asarray(pairs.time > limit * ticks_per_second(float(pairs.time.max())))


def _of_items(pairs: Pairs, items: NDArray[np.int64]) -> Pairs:
    """Return pairs that are all of some ``items``, with these numbered anew."""
    return replace(pairs, indices=np.searchsorted(items, pairs.indices).astype(np.int32), n_items=len(items))


def _used(before: Iterable[Pairs], after: Iterable[Pairs], degrees: Any) -> NDArray[np.int64]:
    """Return the indices of the users, or items, that have a pair still or had none before."""
    had, have = (sum(degrees(pairs) for pairs in parts) for parts in (before, after))
    return np.flatnonzero((np.asarray(have) > 0) | (np.asarray(had) == 0))


def in_place_of(folder: Path, dataset: Dataset) -> Dataset:
    """Return a dataset without old rows of users that were forgotten in the one in ``folder``, and with its list."""
    try:
        known = entries_of(decode_json(read_member(folder / ABOUT), _About)["record"])
    except (OSError, InvalidFileError):  # none, or a damaged one
        return dataset
    fewer = without_old_rows(dataset, known)
    if not len(fewer.train):
        raise DataError(f"all training pairs are old ones of users that were forgotten in {folder}; choose another.")
    return replace(fewer, record={**fewer.record, LIST: known}) if known else dataset


def mentions(record: Mapping[str, Any], users: Collection[str]) -> str | None:
    """Return the condition by which a source was read if it names one of the users; it cannot be changed."""
    where = record.get("options", {}).get("where") or record.get("where")
    return where if isinstance(where, str) and any(names(where, user) for user in users) else None

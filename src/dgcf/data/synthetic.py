"""Generated datasets with a known structure: a checkerboard, and planted genres with titles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import Dataset
from dgcf.data.interactions import Interactions
from dgcf.data.prepare import assemble
from dgcf.data.splits import Split, assign
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError
from dgcf.random import permutation, uniform

GENRES = ("Noir", "Western", "Space", "Romance", "Heist", "Ghost", "Sports", "Cooking")
_FIRST = [
    "Silent",
    "Golden",
    "Broken",
    "Hidden",
    "Burning",
    "Distant",
    "Paper",
    "Crimson",
    "Electric",
    "Frozen",
    "Wandering",
    "Last",
]
_SECOND = [
    "Harbour",
    "Lantern",
    "Orchard",
    "Signal",
    "Compass",
    "Garden",
    "Mirror",
    "Station",
    "Letter",
    "Horizon",
    "Kitchen",
    "Voyage",
]


def checkerboard(n_users: int = 60, n_items: int = 40, seed: int = 0) -> Dataset:
    """Return a dataset where user u has item i if u + i is even: held-out pairs follow from the training pairs."""
    _check_size(n_users, n_items)
    user_idx, item_idx = np.nonzero((np.arange(n_users)[:, None] + np.arange(n_items)) % 2 == 0)
    return _dataset("checkerboard", user_idx, item_idx, n_users, n_items, seed, titles=None)


def planted(n_users: int = 800, n_items: int = 400, seed: int = 0) -> Dataset:
    """Return a dataset with power-law degrees, where each item has a genre and each user two favourite genres.

    The items of a user are drawn without replacement, with probability ∝ popularity · affinity. The affinity is 20 for
    the first genre, 8 for the second and 1 for others; popularity falls as a power of the rank of an item in its genre.
    """
    _check_size(n_users, n_items)
    n_genres = len(GENRES)
    genre = np.arange(n_items) % n_genres
    popularity = (np.arange(n_items) // n_genres + 1.0) ** -0.8
    first = permutation(seed, "planted/first", n_users) % n_genres
    second = (first + 1 + permutation(seed, "planted/second", n_users) % (n_genres - 1)) % n_genres
    affinity = np.ones((n_users, n_genres))
    affinity[np.arange(n_users), second] = 8.0
    affinity[np.arange(n_users), first] = 20.0
    weight = affinity[:, genre] * popularity
    # Weighted sampling without replacement: the k smallest of Exp(1) / weight.
    race = -np.log1p(-uniform(seed, "planted/race", n_users * n_items)).reshape(n_users, n_items) / weight
    most = max(1, n_items // 3)
    degree = np.minimum(8.0 * (1.0 - uniform(seed, "planted/degree", n_users)) ** -0.7, most).astype(np.int64)
    rank = np.argsort(np.argsort(race, axis=1, kind="stable"), axis=1, kind="stable")
    user_idx, item_idx = np.nonzero(rank < degree[:, None])
    titles = [_title(item, int(genre[item])) for item in range(n_items)]
    return _dataset("planted", user_idx, item_idx, n_users, n_items, seed, titles)


def _title(item: int, genre: int) -> str:
    number = item // len(GENRES)
    first, second = _FIRST[number % len(_FIRST)], _SECOND[(number * 7 + genre) % len(_SECOND)]
    # Words repeat with period 12 (the length of the lists); a number keeps further titles distinct.
    sequel = number // len(_FIRST)
    return f"The {first} {second}{f' {sequel + 1}' if sequel else ''} ({GENRES[genre]})"


def _dataset(
    name: str,
    user_idx: NDArray[np.integer],
    item_idx: NDArray[np.integer],
    n_users: int,
    n_items: int,
    seed: int,
    titles: list[str] | None,
) -> Dataset:
    rows = Interactions(
        users=Vocabulary.from_sorted("user", [f"u{user:05d}" for user in range(n_users)]),
        items=Vocabulary.from_sorted("item", [f"i{item:05d}" for item in range(n_items)], titles=titles),
        user_idx=user_idx.astype(np.int32),
        item_idx=item_idx.astype(np.int32),
        part=np.zeros(len(user_idx), dtype=np.int8),
        timestamp=None,
        rows_read=len(user_idx),
    ).compact()
    split = Split(seed=seed)
    record = {
        "source": f"generated ({name}, seed {seed})",
        "rows": len(rows),
        "filters": [],
        "split": split.to_dict(),
    }
    return assemble(replace(rows, part=assign(rows, split)), name, {}, record, None)


def _check_size(n_users: int, n_items: int) -> None:
    if n_users < 4 or n_items < 4:
        raise ConfigError(f"{n_users} users and {n_items} items are too few, expected at least 4 of each.")

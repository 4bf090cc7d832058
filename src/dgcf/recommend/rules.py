"""Business rules as given, by raw ids: one object for Python, the command line and a service.

``Rules`` is checked when it is made. ``resolve`` reads its files and turns ids into indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.paths import shown
from dgcf.errors import ConfigError, DataError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Indices, Rows
from dgcf.recommend.lookup import Names, as_list, note_unknown, quoted
from dgcf.recommend.rerank import ItemRules, Limit

Items = RawId | Path | Iterable[RawId | Path]
"""Items by id or title, and files of ids (``Path``)."""

LARGEST_BOOST = 1000.0


class RuleArguments(TypedDict, total=False):
    """The fields of ``Rules``, as keyword arguments."""

    only: Items | None
    exclude: Items | None
    items_table: Any
    where: str | None
    max_per: Mapping[str, int]
    boost: Any
    mmr: float
    mmr_candidates: int
    item_col: str | None
    encoding: str


@dataclass(frozen=True)
class TableOptions:
    """How to read tables of items: the name of the item column (None: by its name), and the encoding of text files.

    ``trained_on`` is the name of the item column of the training data, which is recognised as well.
    """

    item_col: str | None = None
    encoding: str = "utf-8"
    trained_on: str | None = None


@dataclass(frozen=True)
class Rules:
    """Rules that every list keeps.

    ``only``: the only items to recommend; ``exclude``: items never to recommend. A ``Path`` is a file of ids.
    ``items_table``: attributes of items, a path (CSV or Parquet) or a data frame. ``where``: an SQL condition on its
    columns, which recommended items satisfy. ``max_per``: how many items of a list may share a value of a column.
    ``boost``: numbers to add to the scores, as a mapping by item, or as a table with the columns item and boost; 1 is
    the difference between the best and the 100th best score of a user. ``mmr``: the weight, 0 to 1, of being unlike the
    items before in the list; the best ``mmr_candidates`` items are re-ranked. ``item_col``: the column of the item in
    all files and tables, if it has none of the usual names; ``encoding``: that of all text files.
    """

    only: Items | None = None
    exclude: Items | None = None
    items_table: Any = None
    where: str | None = None
    max_per: Mapping[str, int] = field(default_factory=dict)
    boost: Any = None
    mmr: float = 0.0
    mmr_candidates: int = 100
    item_col: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not isinstance(self.max_per, Mapping):
            raise ConfigError(f"max_per is {self.max_per!r}, expected columns and numbers, such as {{'brand': 2}}.")
        if (self.where is not None or self.max_per) and self.items_table is None:
            needing = "where" if self.where is not None else "max_per"
            raise ConfigError(f"{needing} needs a table of the items; give one (items_table, --items-table).")
        if self.items_table is not None and self.where is None and not self.max_per:
            raise ConfigError("the table of items is not used by any rule; give where or max_per, or leave it out.")
        for column, n in self.max_per.items():
            if not _whole(n):
                raise ConfigError(f"max_per allows {n!r} items per {column}; give a whole number from 1 on.")
        if isinstance(self.mmr, bool) or not isinstance(self.mmr, (int, float)) or not 0 <= self.mmr <= 1:
            raise ConfigError(f"mmr is {self.mmr!r}, expected a number from 0 (relevance alone) to 1.")
        if not _whole(self.mmr_candidates):
            raise ConfigError(f"mmr_candidates is {self.mmr_candidates!r}; give a whole number from 1 on.")
        files = (self.only, self.exclude, self.items_table, self.boost)
        if all(given is None for given in files) and (self.item_col is not None or self.encoding != "utf-8"):
            raise ConfigError(
                "a column or an encoding of files was given, but no file; give only, exclude, items_table or boost, or "
                "leave it out."
            )

    def resolve(self, names: Names, trained_on: str | None = None) -> ItemRules:
        """Return the rules by item index; raise ``DataError`` if they leave no item at all.

        ``trained_on``: the name of the item column of the training data, which is recognised in files too.
        """
        return _Resolver(names, TableOptions(self.item_col, self.encoding, trained_on)).resolve(self)


class _Resolver:
    """Turns ids into indices, and collects notes on ids that are ignored."""

    def __init__(self, names: Names, options: TableOptions) -> None:
        self.names, self.items, self.notes = names, names.vocabulary, list[str]()
        self.options = options

    def resolve(self, rules: Rules) -> ItemRules:
        allowed = np.ones(len(self.items), dtype=bool)
        counts: list[str] = []
        limits: tuple[Limit, ...] = ()
        if rules.only is not None:
            only = self._find(rules.only, needed=True)
            allowed &= _mask(only, len(allowed))
            counts.append(f"only has {len(np.unique(only)):,}")
        if rules.items_table is not None:
            chosen, limits = self._attributes(rules)
            allowed &= chosen
            counts += [] if rules.where is None else [f"where chooses {chosen.sum():,}"]
        if rules.exclude is not None:
            exclude = self._find(rules.exclude, needed=False)
            allowed &= ~_mask(exclude, len(allowed))
            counts.append(f"exclude has {len(np.unique(exclude)):,}")
        if not allowed.any():
            raise DataError(
                f"the rules leave none of the {len(allowed):,} items ({', '.join(counts)}); change one of them."
            )
        boost = None if rules.boost is None else self._boost(rules.boost)
        return ItemRules(allowed, limits, boost, float(rules.mmr), int(rules.mmr_candidates), tuple(self.notes))

    def _find(self, given: Items, *, needed: bool) -> Indices:
        """Return the indices of items, and of the known ones of files; one at least if they are ``needed``."""
        names = [given] if isinstance(given, Path) else as_list(given)  # type: ignore[arg-type]
        index: list[int] = []
        for name in names:
            index += self._in_file(name, needed) if isinstance(name, Path) else [self.names.find(name)]
        if needed and not index:
            raise DataError("the list of items is empty; give at least one item.")
        return np.array(index, dtype=np.int64)

    def _in_file(self, path: Path, needed: bool) -> list[int]:
        from dgcf.recommend.item_tables import read_ids  # only now: rules without files need no table engine

        ids, label = read_ids(path, self.options), shown(path.name)
        if not ids:
            if needed:
                raise DataError(f"{label} holds no ids; give at least one item, or leave the rule out.")
            self.notes.append(f"{label} holds no ids.")
        index = self._known(ids, label)
        if needed and not index:
            raise self._none_known(ids, label)
        return index

    def _known(self, ids: Sequence[str], label: str) -> list[int]:
        """Return the indices of the known ids, and note the unknown ones."""
        index = {raw: self._index(raw) for raw in ids}
        unknown = [raw for raw, number in index.items() if number is None]
        self.notes += note_unknown(unknown, "id", "ignored", f" in {label}")
        return [number for number in index.values() if number is not None]

    def _index(self, raw: str) -> int | None:
        """Return the index of an id as written in a file, with or without the blanks around it; None if unknown."""
        return next((self.items.index_of(text) for text in (raw, raw.strip()) if text in self.items), None)

    def _none_known(self, ids: Sequence[str], label: str) -> DataError:
        return DataError(
            f"none of the {len(set(ids)):,} ids in {label} is known ({quoted(ids)}), expected ids as in the training "
            f"data, such as {quoted(self.items.texts)}."
        )

    def _attributes(self, rules: Rules) -> tuple[NDArray[np.bool_], tuple[Limit, ...]]:
        """Return which items satisfy ``where``, and the limits of ``max_per``."""
        from dgcf.recommend.item_tables import open_table

        present, chosen = np.zeros((2, len(self.items)), dtype=bool)
        groups = [dict[str, int]() for _ in rules.max_per]
        group = np.full((len(rules.max_per), len(self.items)), -1, dtype=np.int64)
        with open_table(rules.items_table, self.options) as table:
            columns = [table.column(name) for name in rules.max_per]
            condition = "true" if rules.where is None else table.condition(rules.where)
            for raw, satisfies, *values in table.rows(condition, *columns):
                item = self._index(raw)
                if item is None:
                    continue
                if present[item]:
                    raise DataError(f"{table.label} has the item {raw!r} more than once; keep one row of each item.")
                present[item], chosen[item] = True, satisfies
                for place, value in enumerate(values):
                    if value is not None:
                        group[place, item] = groups[place].setdefault(value, len(groups[place]))
        if not present.any():
            raise DataError(
                f"{table.label} has none of the {len(self.items):,} items of the training data; its ids must be the "
                f"same, such as {quoted(self.items.texts)}."
            )
        if missing := int((~present).sum()):
            are = f"{missing:,} items are" if missing > 1 else "1 item is"
            effect = "in no group" if rules.where is None else "left out"
            self.notes.append(f"{are} not in {table.label} and therefore {effect}.")
        limits = (Limit(row, int(n)) for row, n in zip(group, rules.max_per.values(), strict=True))
        return chosen if rules.where is not None else np.ones_like(chosen), tuple(limits)

    def _boost(self, given: Any) -> Rows:
        """Return the boost of every item, 0 for those without one."""
        values, boosted = np.zeros(len(self.items), dtype=np.float32), set[int]()
        for raw, item, given_number in self._boosts(given):
            number = _number(given_number)
            if item in boosted:
                raise DataError(f"the item {raw!r} has more than one boost; keep one.")
            if not abs(number) <= LARGEST_BOOST:
                shown_number = "missing" if given_number is None else repr(given_number)
                raise DataError(
                    f"the boost of {raw!r} is {shown_number}, expected a number from {-LARGEST_BOOST:.0f} to "
                    f"{LARGEST_BOOST:.0f}."
                )
            values[item] = number
            boosted.add(item)
        return values

    def _boosts(self, given: Any) -> list[tuple[RawId, int, Any]]:
        """Return the id as given, the index and the boost of the known items."""
        if isinstance(given, Mapping):
            return [(name, self.names.find(name), number) for name, number in given.items()]
        from dgcf.recommend.item_tables import open_table

        with open_table(given, self.options) as table:
            read = list(table.rows(table.column("boost")))
        if read and not self._known([raw for raw, _ in read], table.label):
            raise self._none_known([raw for raw, _ in read], table.label)
        indices = ((raw, self._index(raw), number) for raw, number in read)
        return [(raw, item, number) for raw, item, number in indices if item is not None]


def _mask(index: Indices, n: int) -> NDArray[np.bool_]:
    mask = np.zeros(n, dtype=bool)
    mask[index] = True
    return mask


def _whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and int(number) >= 1


def _number(given: Any) -> float:
    """Return a number, or NaN for anything else."""
    try:
        return math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        return math.nan

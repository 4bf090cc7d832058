"""A prepared dataset: vocabularies, three splits, a fingerprint, and the record of how it was made.

It is saved as a folder of arrays and JSON, and loads with NumPy alone, so training needs no table engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import DataError
from dgcf.files import whole_folder

FORMAT = 1
SPLITS = ("train", "validation", "test")
OPTIONAL = ("user_titles.json", "item_titles.json", *(f"{split}_place.npy" for split in SPLITS))
"""Files that a dataset may do without, and another one in its place, too."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """What every later room needs to know of the data.

    ``repeats`` counts, per split, the pairs that were given more than once (the splits hold each pair once);
    ``record`` says how the dataset was made: source, filters with what each removed, split and seed.
    """

    name: str
    users: Vocabulary
    items: Vocabulary
    train: Pairs
    validation: Pairs
    test: Pairs
    repeats: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    record: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.split(split)):,}" for split in SPLITS)
        return f"<Dataset {self.name}: {len(self.users):,} users, {len(self.items):,} items, {sizes}>"

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    def split(self, name: str) -> Pairs:
        """``train``, ``validation`` or ``test``."""
        pairs = {"train": self.train, "validation": self.validation, "test": self.test}
        return pairs[name]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the raw ids and of each split's set of pairs: the same for any order of the lines."""
        return self._hash(*(self.split(name) for name in SPLITS))

    @cached_property
    def pairs_fingerprint(self) -> str:
        """The same over all pairs together: equal for two splits of the same interactions."""
        return self._hash(self.train.union(self.validation, self.test))

    def _hash(self, *parts: Pairs) -> str:
        digest = hashlib.sha256(b"dgcf dataset 1")
        arrays: list[NDArray[Any]] = [self.users.offsets, self.users.blob, self.items.offsets, self.items.blob]
        for pairs in parts:
            arrays += [pairs.indptr, pairs.indices]
        for array in arrays:
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()

    @cached_property
    def order(self) -> str | None:
        """SHA-256 of the places of all pairs, where these are in an order; the fingerprint is the same without it."""
        digest = hashlib.sha256(b"dgcf order 1")
        for pairs in map(self.split, SPLITS):
            if pairs.place is None:
                return None
            digest.update(np.ascontiguousarray(pairs.place, dtype="<i4").tobytes())
        return digest.hexdigest()

    def renamed(self, name: str) -> Dataset:
        return replace(self, name=name)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the dataset as a folder that appears whole or not at all."""
        target = Path(folder)
        head = {
            "format": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "order": self.order,
            "n_users": self.n_users,
            "n_items": self.n_items,
            "id_kinds": {"users": self.users.kind, "items": self.items.kind},
            "repeats": dict(self.repeats),
            "record": dict(self.record),
        }
        with whole_folder(target, overwrite=overwrite, also=OPTIONAL) as beside:
            for file, array in self._arrays().items():
                np.save(beside / f"{file}.npy", array, allow_pickle=False)
            for file, vocabulary in (("user_titles", self.users), ("item_titles", self.items)):
                if vocabulary.titles:
                    (beside / f"{file}.json").write_text(json.dumps(vocabulary.titles, ensure_ascii=False))
            (beside / "dataset.json").write_text(json.dumps(head, indent=1, ensure_ascii=False) + "\n")
        return target

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            "user_ids": self.users.blob,
            "user_offsets": self.users.offsets,
            "item_ids": self.items.blob,
            "item_offsets": self.items.offsets,
        }
        for name in SPLITS:
            pairs = self.split(name)
            arrays[f"{name}_indptr"], arrays[f"{name}_indices"] = pairs.indptr, pairs.indices
            if self.order is not None and pairs.place is not None:
                arrays[f"{name}_place"] = pairs.place
        return arrays

    @classmethod
    def load(cls, folder: str | Path) -> Dataset:
        """Read a folder that ``save`` wrote, and check that its content is what was saved."""
        path = Path(folder)
        try:
            head = json.loads((path / "dataset.json").read_text())
            if head["format"] > FORMAT:
                raise DataError(
                    f"{path} was written by a newer dgcf (format {head['format']}, this one reads {FORMAT}); "
                    "upgrade dgcf."
                )
            dataset = cls._assemble(path, head)
            if (dataset.fingerprint, dataset.order) != (head["fingerprint"], head.get("order")):
                raise ValueError("its content does not match its fingerprint")
        except FileNotFoundError as problem:
            raise DataError(
                f"{path} is not a prepared dataset: {Path(str(problem.filename)).name} is missing; "
                "make one with `dgcf data prepare`."
            ) from problem
        except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as problem:
            raise DataError(
                f"{path} is a damaged dataset ({problem}); prepare it again with `dgcf data prepare`."
            ) from problem
        return dataset

    @classmethod
    def _assemble(cls, path: Path, head: dict[str, Any]) -> Dataset:
        def array(name: str, dtype: str) -> NDArray[Any]:
            loaded = np.load(path / f"{name}.npy", allow_pickle=False)
            if loaded.ndim != 1 or loaded.dtype != np.dtype(dtype):
                raise ValueError(f"{name}.npy holds {loaded.dtype} of {loaded.ndim} dimensions")
            return np.asarray(loaded)

        def vocabulary(what: str) -> Vocabulary:
            titles_file = path / f"{what}_titles.json"
            titles = tuple(json.loads(titles_file.read_text())) if titles_file.exists() else None
            kind = head["id_kinds"][f"{what}s"]
            return Vocabulary(what, array(f"{what}_ids", "uint8"), array(f"{what}_offsets", "<i8"), kind, titles)

        n_items = int(head["n_items"])
        splits = {}
        for name in SPLITS:
            indices = array(f"{name}_indices", "<i4")
            place = array(f"{name}_place", "<i4") if head.get("order") else None
            if place is not None and len(place) != len(indices):
                raise ValueError(f"{name}_place.npy has {len(place)} numbers for {len(indices)} pairs")
            splits[name] = Pairs(array(f"{name}_indptr", "<i8"), indices, n_items, place)
        users, items = vocabulary("user"), vocabulary("item")
        if len(users) != head["n_users"] or len(items) != n_items:
            raise ValueError("the number of ids is not that of its description")
        return cls(head["name"], users, items, **splits, repeats=head["repeats"], record=head["record"])

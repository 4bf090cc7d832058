"""A prepared dataset: vocabularies, three splits, a fingerprint, and the record of its preparation.

It is saved as a folder of arrays and JSON. Loading needs NumPy only, so training does not need DuckDB.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import VALUES, Pairs
from dgcf.data.vocabulary import IdKind, IdKinds, Vocabulary
from dgcf.errors import DataError
from dgcf.files import atomic_folder, recover_folder
from dgcf.stored import (
    FileEntry,
    NonNegativeInt,
    Range,
    Sha256,
    UncheckedWarning,
    check_type,
    decode_json,
    decode_npy,
    file_entry,
    read_checked,
    read_member,
    seal,
    verify_seal,
)

FORMAT = 1
SPLITS = ("train", "validation", "test")
OPTIONAL = (
    "user_titles.json",
    "item_titles.json",
    *(f"{split}_{value}.npy" for split in SPLITS for value in VALUES),
)
"""Optional files; overwriting may delete them."""
ABOUT = "dataset.json"
TITLE_BYTES = 4096
"""Largest mean length of a title that is read back."""


class _Format(TypedDict):
    format: NonNegativeInt


class _Description(_Format):
    """``dataset.json``; version 0.1 wrote no ``files`` and ``sha256``, and at first no ``order``."""

    name: str
    fingerprint: Sha256
    order: NotRequired[Sha256 | None]
    n_users: Annotated[int, Range(1, 2**31)]
    n_items: Annotated[int, Range(1, 2**31)]
    id_kinds: IdKinds
    repeats: dict[str, NonNegativeInt]
    record: dict[str, Any]
    files: NotRequired[dict[str, FileEntry]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Vocabularies and the pairs of the three splits.

    ``repeats`` counts, per split, the repeated pairs of the source (the splits hold each pair once). ``record``
    describes the preparation: source, filters and the number of pairs each removed, split and seed. ``read_options``
    are the options with which its source was read, for reading it again; they are not saved.
    """

    name: str
    users: Vocabulary
    items: Vocabulary
    train: Pairs
    validation: Pairs
    test: Pairs
    repeats: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    record: Mapping[str, Any] = field(default_factory=dict)
    read_options: Mapping[str, Any] = field(default_factory=dict)

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
        """Return the pairs of ``train``, ``validation`` or ``test``."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the raw ids and the pairs of each split; independent of the order of lines."""
        return self._hash(*(self.split(name) for name in SPLITS))

    @cached_property
    def pairs_fingerprint(self) -> str:
        """SHA-256 of the raw ids and all pairs: equal for two splits of the same interactions."""
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
        """SHA-256 of the places of all pairs, or None if no order is known; not part of the fingerprint."""
        digest = hashlib.sha256(b"dgcf order 1")
        for pairs in map(self.split, SPLITS):
            if pairs.place is None:
                return None
            digest.update(np.ascontiguousarray(pairs.place, dtype="<i4").tobytes())
        return digest.hexdigest()

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the optional values that the pairs of all splits have: ``place``, ``time``, ``weight``."""
        return tuple(name for name in VALUES if all(name in self.split(split).values for split in SPLITS))

    @property
    def masks_repeats(self) -> bool:
        """Whether held-out pairs that an earlier part has, too, are no relevant items of an evaluation."""
        held_out = self.record.get("held_out")
        return isinstance(held_out, dict) and held_out.get("repeats") == "mask"

    @cached_property
    def weighting(self) -> str | None:
        """SHA-256 of the weights of the training pairs, or None without weights; not part of the fingerprint."""
        if self.train.weight is None:
            return None
        return hashlib.sha256(np.ascontiguousarray(self.train.weight, dtype="<f4").tobytes()).hexdigest()

    def renamed(self, name: str) -> Dataset:
        return replace(self, name=name)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the dataset to a folder, atomically."""
        with atomic_folder(Path(folder), overwrite=overwrite, also=OPTIONAL) as beside:
            self.write_files(beside)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Write the files of the dataset into an empty folder."""
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
        files = {}
        for name, data in self._files():
            (folder / name).write_bytes(data)
            files[name] = file_entry(data)
        text = json.dumps(seal({**head, "files": files}), indent=1, ensure_ascii=False)
        (folder / ABOUT).write_text(text + "\n", encoding="utf-8")

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Yield every file but the description, by name."""
        for name, array in self._arrays().items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            yield f"{name}.npy", content.getvalue()
        for what, vocabulary in (("user", self.users), ("item", self.items)):
            if vocabulary.titles:
                yield f"{what}_titles.json", json.dumps(vocabulary.titles, ensure_ascii=False).encode()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {**self.users.to_arrays(), **self.items.to_arrays()}
        for name in SPLITS:
            arrays |= self.split(name).to_arrays(f"{name}_", self.values)
        return arrays

    @classmethod
    def load(cls, folder: str | Path) -> Dataset:
        """Read a folder that ``save`` wrote and verify its checksums and fingerprint."""
        path = Path(folder)
        try:
            recover_folder(path)
            raw = decode_json(read_member(path / ABOUT), dict[str, Any], ABOUT)
            if (written := check_type(raw, _Format, ABOUT)["format"]) > FORMAT:
                raise DataError(
                    f"{path} was written by a newer dgcf (format {written}, this one reads {FORMAT}); upgrade dgcf."
                )
            checked = verify_seal(raw, ABOUT)
            head = check_type(raw, _Description, ABOUT)
            dataset = cls._assemble(path, head)
            if (dataset.fingerprint, dataset.order) != (head["fingerprint"], head.get("order")):
                raise ValueError("its content does not match its fingerprint")
        except FileNotFoundError as problem:
            raise DataError(
                f"{path} is not a prepared dataset: {Path(str(problem.filename)).name} is missing; "
                "make one with `dgcf data prepare`."
            ) from problem
        except (OSError, ValueError) as problem:
            raise DataError(
                f"{path} is a damaged dataset ({problem}); prepare it again with `dgcf data prepare`."
            ) from problem
        if not checked:
            warnings.warn(
                f"{path} has no checksums, as it was written by dgcf 0.1: damage to its titles or kinds of ids would "
                f"go unnoticed; write it again with `dgcf data prepare {path} --out …`.",
                UncheckedWarning,
                stacklevel=2,
            )
        return dataset

    @classmethod
    def _assemble(cls, path: Path, head: _Description) -> Dataset:
        files = head.get("files")

        def content(name: str, limit: int | None = None) -> bytes:
            if files is not None and name not in files:
                raise ValueError(f"{ABOUT} does not list {name}")
            return read_checked(path / name, None if files is None else files[name], limit)

        def array(name: str, dtype: str) -> NDArray[Any]:
            return decode_npy(content(f"{name}.npy"), dtype, f"{name}.npy")

        def vocabulary(what: str, kind: IdKind, n: int) -> Vocabulary:
            name = f"{what}_titles.json"
            titled = (path / name).exists() if files is None else name in files
            titles = decode_json(content(name, 2**20 + n * TITLE_BYTES), list[str], name) if titled else None
            vocabulary = Vocabulary.from_arrays(what, array, kind, titles)
            if len(vocabulary) != n:
                raise ValueError(f"there are {len(vocabulary)} {what} ids, {ABOUT} says {n}")
            return vocabulary

        n_users, n_items = head["n_users"], head["n_items"]
        values = [value for value in VALUES if files is not None and f"train_{value}.npy" in files and value != "place"]
        values += ["place"] if head.get("order") else []
        users = vocabulary("user", head["id_kinds"]["users"], n_users)
        items = vocabulary("item", head["id_kinds"]["items"], n_items)
        train, validation, test = (Pairs.from_arrays(f"{split}_", array, n_users, n_items, values) for split in SPLITS)
        if not len(train):
            raise ValueError("it has no training pair")
        repeats, record = head["repeats"], head["record"]
        return cls(head["name"], users, items, train, validation, test, repeats=repeats, record=record)

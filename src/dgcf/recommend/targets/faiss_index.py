"""Export to a folder with a faiss index of the items, their ids, and the vectors of the users."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.errors import ConfigError, DataError
from dgcf.files import atomic_folder
from dgcf.ids import RawId
from dgcf.recommend.targets.base import Search, Vectors, checked_index

INDEX, ITEMS, USERS, USER_IDS, README = "items.faiss", "items.json", "users.npy", "user_ids.json", "README.md"
_NEIGHBOURS, _BUILD, _SEARCH = 32, 200, 256
"""HNSW: links of an item, and candidates while it is built and searched."""
_PER_LIST = 39
"""IVF: the fewest items per list for which faiss trains without a warning."""


class Faiss:
    """A folder. ``index``: flat (exact), hnsw or ivf."""

    def __init__(self, folder: Path, index: str = "flat") -> None:
        self.folder, self.index = folder, checked_index(index, ("flat", "hnsw", "ivf"), "faiss")
        self._parameters: dict[str, int] = {}

    def describe(self) -> dict[str, Any]:
        return {"out": str(self.folder), "index": self.index, "parameters": self._parameters}

    @contextlib.contextmanager
    def staged(self, vectors: Vectors, *, overwrite: bool) -> Iterator[Search]:
        faiss = _faiss()
        with atomic_folder(self.folder, overwrite=overwrite) as beside:
            index = self._build(faiss, vectors)
            try:
                faiss.write_index(index, str(beside / INDEX))
            except RuntimeError as problem:  # raised for a full disk
                raise DataError(
                    f"cannot write {self.folder}: faiss failed; free some space or choose another disk."
                ) from problem
            items = [vectors.payload("item", place) for place in range(len(vectors.rows["item"]))]
            (beside / ITEMS).write_text(_json(items), encoding="utf-8")
            (beside / USER_IDS).write_text(_json(vectors.ids("user")), encoding="utf-8")
            np.save(beside / USERS, vectors.rows["user"], allow_pickle=False)
            (beside / README).write_text(_readme(vectors, self.describe()), encoding="utf-8")
            yield lambda users, k: _search(faiss, beside, users, k)

    def _build(self, faiss: Any, vectors: Vectors) -> Any:
        rows = np.ascontiguousarray(vectors.rows["item"])
        if self.index == "flat":
            index = faiss.IndexFlatIP(vectors.dim)
        elif self.index == "hnsw":
            index = faiss.IndexHNSWFlat(vectors.dim, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction, index.hnsw.efSearch = _BUILD, _SEARCH
            self._parameters = {"efSearch": _SEARCH}
        else:
            lists = max(1, min(round(4 * len(rows) ** 0.5), len(rows) // _PER_LIST))
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(vectors.dim), vectors.dim, lists, faiss.METRIC_INNER_PRODUCT)
            index.nprobe = max(1, -(-lists // 4))
            index.train(rows)
            self._parameters = {"nlist": lists, "nprobe": index.nprobe}
        index.add(rows)
        return index


def _search(faiss: Any, folder: Path, users: Sequence[int], k: int) -> list[list[RawId]]:
    index = faiss.read_index(str(folder / INDEX))
    items = json.loads((folder / ITEMS).read_text(encoding="utf-8"))
    queries = np.load(folder / USERS)[np.asarray(users)]
    return [[items[place]["id"] for place in row if place >= 0] for row in index.search(queries, k)[1].tolist()]


def _faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError:
        raise ConfigError("an index needs faiss; install it with: pip install 'dgcf[faiss]'.") from None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _readme(vectors: Vectors, about: dict[str, Any]) -> str:
    parameters = ", ".join(f"{name} {value}" for name, value in about["parameters"].items())
    lost = "" if vectors.lost is None else f" They lack {vectors.lost}."
    return f"""\
# A faiss index of items

Scores are {vectors.scores}.{lost}

| file | content |
| --- | --- |
| `{INDEX}` | the index, {about["index"]}{f" ({parameters})" if parameters else ""}; numbers are places in `{ITEMS}` |
| `{ITEMS}` | id, title and attributes of each item |
| `{USERS}`, `{USER_IDS}` | the vectors of the users, float32, and their ids in the same order |

```python
import json, faiss, numpy as np

index = faiss.read_index("{INDEX}")
items = json.load(open("{ITEMS}", encoding="utf-8"))
users, user_ids = np.load("{USERS}"), json.load(open("{USER_IDS}", encoding="utf-8"))
scores, places = index.search(users[[user_ids.index(USER)]], 10)
print([items[place]["id"] for place in places[0]])  # items that the user has already are among them
```
"""

"""The artefact: a snapshot as safetensors and JSON members, written without pickle and read with NumPy alone.

``about.json``               model, settings, seed, metrics, dataset and fingerprint, how the graph was made
``embeddings.safetensors``   what is ranked: ``users`` (n_users, dim), ``items`` (n_items, dim); or, since format 2,
``weights.safetensors``      W (n_items, n_items): ``values``, and where it is sparse ``indptr`` and ``indices``
``layers.safetensors``       ``layers`` (L + 1, N, dim), ``gate_logits``: for fold-in and explanations, read on demand
``data.safetensors``         the ids' bytes, the training pairs, and the pairs that were seen elsewhere
``titles.json``              what users and items are called, where that is known
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as decode
from safetensors.numpy import save as encode

from dgcf.data.pairs import Pairs
from dgcf.data.rows import DenseRows, Matrix, SparseRows
from dgcf.data.vocabulary import Vocabulary
from dgcf.recommend import container
from dgcf.recommend.container import Container, explained
from dgcf.recommend.snapshot import Embedded, GraphRule, Layers, LeastSquares, Side, Snapshot

ABOUT, EMBEDDINGS, LAYERS = "about.json", "embeddings.safetensors", "layers.safetensors"
WEIGHTS = "weights.safetensors"
DATA, TITLES = "data.safetensors", "titles.json"
MEMBERS = frozenset((ABOUT, EMBEDDINGS, WEIGHTS, LAYERS, DATA, TITLES))
Arrays = Mapping[str, NDArray[Any]]


def save(snapshot: Snapshot, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write one ``.dgcf`` file, or a folder for any other name."""
    about = {
        "about": dict(snapshot.about),
        "rule": None if snapshot.rule is None else asdict(snapshot.rule),
        "readout": snapshot.readout,
        "cosine": snapshot.cosine,
        "least_squares": None if snapshot.least_squares is None else asdict(snapshot.least_squares),
        "id_kinds": {"users": snapshot.users.kind, "items": snapshot.items.kind},
    }
    members = {
        ABOUT: json.dumps(about, indent=1, ensure_ascii=False).encode(),
        DATA: encode(_data(snapshot)),
    }
    if isinstance(snapshot.ranking, Matrix):
        members[WEIGHTS] = encode(dict(snapshot.ranking.arrays()))
    else:
        members[EMBEDDINGS] = encode({"users": snapshot.user_rows, "items": snapshot.item_rows})
    layers = snapshot.layers
    if layers is not None:
        gates = {} if layers.gate_logits is None else {"gate_logits": layers.gate_logits}
        members[LAYERS] = encode({"layers": layers.embeddings, **gates})
    titles = {"users": snapshot.users.titles, "items": snapshot.items.titles}
    if any(titles.values()):
        members[TITLES] = json.dumps(titles, ensure_ascii=False).encode()
    written = 2 if WEIGHTS in members else 1
    return container.write(Path(path), members, overwrite=overwrite, known=MEMBERS, written=written)


def _data(snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    train, seen = snapshot.train, snapshot.seen
    more = np.setdiff1d(seen.keys(), train.keys(), assume_unique=True)
    rest = Pairs.from_keys(np.sort(more), seen.n_users, seen.n_items)
    return {
        "user_ids": snapshot.users.blob,
        "user_offsets": snapshot.users.offsets,
        "item_ids": snapshot.items.blob,
        "item_offsets": snapshot.items.offsets,
        "train_indptr": train.indptr,
        "train_indices": train.indices,
        "more_indptr": rest.indptr,
        "more_indices": rest.indices,
    }


def load(path: str | Path) -> Snapshot:
    """Read what ``save`` wrote; every byte is checked now, the layers are decoded when they are asked for."""
    target = Path(path)
    opened = Container(target, MEMBERS)
    if LAYERS in opened:
        opened.check(LAYERS)
    with explained(target):
        try:
            return _assemble(opened)
        except SafetensorError as problem:
            raise ValueError(str(problem)) from problem


def _assemble(opened: Container) -> Snapshot:
    head = json.loads(opened.read(ABOUT))
    arrays = decode(opened.read(DATA))
    titles = json.loads(opened.read(TITLES)) if TITLES in opened else {}
    users = _vocabulary("user", arrays, head, titles)
    items = _vocabulary("item", arrays, head, titles)
    train = _rows("train_", arrays, len(users), len(items))
    more = _rows("more_", arrays, len(users), len(items))
    ranking = _weights(opened, len(items)) if WEIGHTS in opened else _embedded(opened, len(users), len(items))
    if not isinstance(head["about"]["model"], str) or head["readout"] not in ("mean", "last"):
        raise ValueError(f"{ABOUT} does not describe a model")
    return Snapshot(
        about=head["about"],
        users=users,
        items=items,
        train=train,
        seen=train.union(more) if len(more) else train,
        ranking=ranking,
        rule=None if head["rule"] is None else _rule(head["rule"]),
        readout=head["readout"],
        cosine=bool(head["cosine"]),
        load_layers=_later(opened, ranking) if LAYERS in opened else None,
        least_squares=_least_squares(head.get("least_squares")),
    )


def _embedded(opened: Container, n_users: int, n_items: int) -> Embedded:
    rows = decode(opened.read(EMBEDDINGS))
    dim = rows["users"].shape[1]
    return Embedded(_floats(rows, "users", (n_users, dim)), _floats(rows, "items", (n_items, dim)))


def _weights(opened: Container, n_items: int) -> Matrix:
    arrays = decode(opened.read(WEIGHTS))
    if "indptr" not in arrays:
        return DenseRows(_floats(arrays, "values", (n_items, n_items)))
    places = _rows("", arrays, n_items, n_items)
    return SparseRows(places.indptr, places.indices, _floats(arrays, "values", (len(places),)), n_items)


def _least_squares(fields: dict[str, Any] | None) -> LeastSquares | None:
    if fields is None:
        return None
    found = LeastSquares(**fields)
    if not all(isinstance(value, (float, int)) and value > 0 for value in fields.values()):
        raise ValueError(f"{ABOUT} does not describe least squares")
    return found


def _later(opened: Container, ranking: Embedded | Matrix) -> Callable[[], Layers]:
    if isinstance(ranking, Matrix):
        raise ValueError(f"{LAYERS} does not go with {WEIGHTS}")
    return lambda: _layers(opened, len(ranking.users) + len(ranking.items), ranking.users.shape[1])


def _rule(fields: dict[str, Any]) -> GraphRule:
    rule = GraphRule(**fields)
    flags = [value for name, value in fields.items() if name != "epsilon"]
    if not all(isinstance(flag, bool) for flag in flags) or not isinstance(rule.epsilon, (float, int, type(None))):
        raise ValueError(f"{ABOUT} does not describe a graph")
    return rule


def _layers(opened: Container, n_nodes: int, dim: int) -> Layers:
    with explained(opened.path):
        try:
            arrays = decode(opened.read(LAYERS))
        except SafetensorError as problem:
            raise ValueError(str(problem)) from problem
        embeddings = _floats(arrays, "layers", (len(arrays["layers"]), n_nodes, dim))
        logits = arrays.get("gate_logits")
        if not len(embeddings) or (logits is not None and not len(logits)):
            raise ValueError(f"{LAYERS} has no layer")
        gates = None if logits is None else _floats(arrays, "gate_logits", (len(logits), n_nodes))
        return Layers(embeddings, gates)


def _floats(arrays: Arrays, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = arrays[name]
    if array.shape != shape or array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, expected float32 of shape {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return array


def _vocabulary(side: Side, arrays: Arrays, head: dict[str, Any], titles: dict[str, Any]) -> Vocabulary:
    blob, offsets = _integers(arrays, f"{side}_ids", np.uint8), _integers(arrays, f"{side}_offsets", np.int64)
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(blob) or (np.diff(offsets) < 0).any():
        raise ValueError(f"{side}_offsets do not cut {side}_ids into ids")
    kind, named = head["id_kinds"][f"{side}s"], titles.get(f"{side}s")
    if kind not in ("text", "integer"):
        raise ValueError(f"ids are {kind!r}, expected text or integer")
    if named is not None and (len(named) != len(offsets) - 1 or not all(isinstance(title, str) for title in named)):
        raise ValueError(f"{TITLES} does not have one title for each {side}")
    found = Vocabulary(side, blob, offsets, kind, None if named is None else tuple(named))
    if kind == "integer":
        for text in found.texts:
            int(text)
    return found


def _rows(prefix: str, arrays: Arrays, n_rows: int, n_items: int) -> Pairs:
    """Compressed rows of items: of each user, or of each item."""
    indptr, indices = _integers(arrays, f"{prefix}indptr", np.int64), _integers(arrays, f"{prefix}indices", np.int32)
    if len(indptr) != n_rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"{prefix}indptr does not give each row a place in {prefix}indices")
    pairs = Pairs(indptr, indices, n_items)
    if len(indices) and not (indices.min() >= 0 and indices.max() < n_items and (np.diff(pairs.keys()) > 0).all()):
        raise ValueError(f"{prefix}indices are not ascending item indices")
    return pairs


def _integers(arrays: Arrays, name: str, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    array = arrays[name]
    if array.ndim != 1 or array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype} of {array.ndim} dimensions, expected {np.dtype(dtype)} of one")
    return array

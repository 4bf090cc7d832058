"""Save and load a snapshot as an artefact of safetensors and JSON members; without pickle or torch.

``about.json``               model, settings, seed, metrics, dataset and fingerprint, graph rule
``embeddings.safetensors``   ``users`` (n_users, dim), ``items`` (n_items, dim); or, since format 2,
``weights.safetensors``      W (n_items, n_items): ``values``, and ``indptr`` and ``indices`` if it is sparse; since
                             format 3 beside the embeddings of a composed ranking, with ``indices`` of two bytes each
                             if there are at most 65,536 items; since format 4 with ``prior`` (n_items,)
``layers.safetensors``       ``layers`` (L + 1, N, dim), ``gate_logits``: for fold-in and explanations, read on demand
``data.safetensors``         the bytes of the ids, the training pairs, and the pairs of the other splits
``titles.json``              titles of users and items, if there are any
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as encode

from dgcf.data.forget import Forgotten
from dgcf.data.pairs import Pairs
from dgcf.data.vocabulary import IdKind, IdKinds, Vocabulary
from dgcf.ranking.arrays import Rows, Side
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings, ItemWeights, Ranking
from dgcf.ranking.user_rules import ConstantRow, LeastSquares, LinearLayers, UserRule, embeddings_rule
from dgcf.ranking.weights import DenseWeights, SparseWeights, WeightMatrix
from dgcf.recommend import container
from dgcf.recommend.container import Container, explain_damage
from dgcf.recommend.snapshot import GraphRule, Layers, Snapshot
from dgcf.stored import InvalidFileError, NonNegativeInt, Range, Sha256, check_type, decode_json

ABOUT, EMBEDDINGS, LAYERS = "about.json", "embeddings.safetensors", "layers.safetensors"
WEIGHTS = "weights.safetensors"
DATA, TITLES = "data.safetensors", "titles.json"
MEMBERS = frozenset((ABOUT, EMBEDDINGS, WEIGHTS, LAYERS, DATA, TITLES))
Scalar = str | bool | int | float | None
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_RESERVED = frozenset(("self", "model", "preset", "seed", "device"))  # Recommender's own; no setting has these names
_HEADER_BYTES = 2**16
"""The largest header that is read; members of an artefact have at most eight arrays."""
_LARGEST = 1e16
"""The largest number accepted: inner products of larger ones overflow float32."""
_DTYPES = {"U8": "|u1", "U16": "<u2", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
Arrays = dict[str, NDArray[Any]]


class _Dataset(TypedDict):
    name: str
    fingerprint: Sha256
    item_col: NotRequired[str]
    window: NotRequired[list[str]]
    split: NotRequired[dict[str, Any]]


class _About(TypedDict):
    model: Annotated[str, Range(1, 200)]
    preset: NotRequired[str]
    settings: NotRequired[dict[str, Scalar]]
    seed: NotRequired[int]
    epochs: NotRequired[int]
    metrics: NotRequired[dict[str, Scalar]]
    dataset: NotRequired[_Dataset]
    dgcf: NotRequired[str]
    weights: NotRequired[Sha256 | None]
    blend: NotRequired[dict[str, Scalar]]
    update: NotRequired[dict[str, Any]]
    refresh: NotRequired[dict[str, Any]]
    stopped: NotRequired[str]
    forgotten: NotRequired[list[Forgotten]]
    trained_at: NotRequired[str]


class _Head(TypedDict):
    about: _About
    rule: GraphRule | None
    readout: Literal["mean", "last"]
    cosine: bool
    least_squares: NotRequired[LeastSquares | None]
    users: NotRequired[Literal["constant"]]
    id_kinds: IdKinds


class _Titles(TypedDict):
    users: NotRequired[list[str] | None]
    items: NotRequired[list[str] | None]


class _Tensor(TypedDict):
    dtype: Literal["U8", "U16", "I32", "I64", "F32"]
    shape: list[NonNegativeInt]
    data_offsets: list[NonNegativeInt]


def save(snapshot: Snapshot, path: str | Path, *, overwrite: bool = False, sign: str | Path | None = None) -> Path:
    """Write one ``.dgcf`` file, or a folder for any other name; ``sign`` is the file of a private key."""
    rule, embeddings = embeddings_rule(snapshot.ranking.user_rule), snapshot.ranking.embeddings
    weights = snapshot.ranking.item_weights
    about: dict[str, Any] = {
        "about": _finite(dict(snapshot.about)),
        "rule": None if snapshot.rule is None else asdict(snapshot.rule),
        "readout": snapshot.readout,
        "cosine": snapshot.cosine,
        "least_squares": asdict(rule) if isinstance(rule, LeastSquares) else None,
        "id_kinds": {"users": snapshot.users.kind, "items": snapshot.items.kind},
    }
    if isinstance(rule, ConstantRow):
        about["users"] = "constant"
    members = {ABOUT: json.dumps(about, indent=1, ensure_ascii=False).encode(), DATA: encode(_data(snapshot))}
    prior = snapshot.ranking.prior if isinstance(snapshot.ranking, Blend) else None
    if weights is not None:
        added = {} if prior is None else {"prior": prior}
        members[WEIGHTS] = encode({**_weight_arrays(weights, compact=embeddings is not None), **added})
    if embeddings is not None:
        members[EMBEDDINGS] = encode({"users": embeddings.users, "items": embeddings.items})
    layers = snapshot.layers
    if layers is not None:
        gates = {} if layers.gate_logits is None else {"gate_logits": layers.gate_logits}
        members[LAYERS] = encode({"layers": layers.embeddings, **gates})
    titles = {"users": snapshot.users.titles, "items": snapshot.items.titles}
    if any(titles.values()):
        members[TITLES] = json.dumps(titles, ensure_ascii=False).encode()
    version = 1 + (WEIGHTS in members) + ({WEIGHTS, EMBEDDINGS} <= members.keys()) + (prior is not None)
    key = None if sign is None else Path(sign).expanduser()
    return container.write(Path(path), members, overwrite=overwrite, known=MEMBERS, version=version, sign=key)


def _weight_arrays(weights: WeightMatrix, *, compact: bool) -> dict[str, NDArray[Any]]:
    """Return the arrays of W; ``compact``: with column indices of two bytes each if they fit."""
    arrays = dict(weights.arrays())
    if compact and isinstance(weights, SparseWeights) and weights.n_columns <= 2**16:
        arrays["indices"] = weights.indices.astype(np.uint16)
    return arrays


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot represent and a metric may be, by None."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _data(snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    train, seen = snapshot.train, snapshot.seen
    held_out = np.sort(np.setdiff1d(seen.keys(), train.keys(), assume_unique=True))
    more = Pairs.from_keys(held_out, seen.n_users, seen.n_items)
    vocabularies = {**snapshot.users.to_arrays(), **snapshot.items.to_arrays()}
    return {**vocabularies, **train.to_arrays("train_"), **more.to_arrays("more_")}


def load(path: str | Path) -> Snapshot:
    """Read what ``save`` wrote; every byte is checked now, the layers are decoded on first use."""
    opened = Container(Path(path), MEMBERS)
    if LAYERS in opened:
        opened.check(LAYERS)
    with explain_damage(opened.path):
        return _assemble(opened)


def _assemble(opened: Container) -> Snapshot:
    head = decode_json(opened.read(ABOUT, container.DESCRIPTION_BYTES), _Head, ABOUT)
    for name in head["about"].get("settings", {}):
        if not name.isidentifier() or name in _RESERVED:
            raise InvalidFileError(f"{ABOUT} has a setting {name[:40]!r}")
    arrays = _decode_tensors(opened.read(DATA), DATA)
    ids = sum(arrays[name].size for name in ("user_offsets", "item_offsets") if name in arrays)
    titles = _titles(opened.read(TITLES), ids) if TITLES in opened else {}
    users = _vocabulary("user", arrays, head["id_kinds"]["users"], titles.get("users"))
    items = _vocabulary("item", arrays, head["id_kinds"]["items"], titles.get("items"))
    train = _rows("train_", arrays, len(users), len(items))
    more = _rows("more_", arrays, len(users), len(items))
    if not len(train):
        raise InvalidFileError(f"{DATA} has no training pair")
    ranking, rule = _ranking(opened, head, train), head["rule"]
    embeddings = ranking.embeddings if LAYERS in opened else None
    return Snapshot(
        about=head["about"],
        users=users,
        items=items,
        train=train,
        seen=train.union(more) if len(more) else train,
        ranking=ranking,
        rule=rule,
        readout=head["readout"],
        cosine=head["cosine"],
        load_layers=None if embeddings is None else partial(_layers, opened, embeddings, rule is not None),
    )


def _ranking(opened: Container, head: _Head, train: Pairs) -> Ranking:
    if WEIGHTS not in opened and EMBEDDINGS not in opened:
        raise InvalidFileError(f"it has neither {EMBEDDINGS} nor {WEIGHTS}")
    weights, added = None, Arrays()
    if WEIGHTS in opened:
        added = _decode_tensors(opened.read(WEIGHTS), WEIGHTS)
        weights = _weights(added, train.n_items)
    if EMBEDDINGS not in opened:
        assert weights is not None
        if LAYERS in opened:
            raise InvalidFileError(f"{LAYERS} does not belong to {WEIGHTS} alone")
        return ItemWeights(train, weights)
    rows = _decode_tensors(opened.read(EMBEDDINGS), EMBEDDINGS)
    dim = _shape(rows, "users", 2)[1]
    users, items = _floats(rows, "users", (train.n_users, dim)), _floats(rows, "items", (train.n_items, dim))
    embeddings = Embeddings(users, items, _user_rule(head, LAYERS in opened))
    if weights is None:
        return embeddings
    if not isinstance(weights, SparseWeights):
        raise InvalidFileError(f"{WEIGHTS} beside {EMBEDDINGS} is dense, expected sparse weights")
    prior = _floats(added, "prior", (train.n_items,)) if "prior" in added else None
    return Blend(embeddings, train, weights, prior)


def _user_rule(head: _Head, layers: bool) -> UserRule | None:
    if (solved := head.get("least_squares")) is not None:
        return solved
    if layers:
        return LinearLayers()
    # At first the format had no field for this rule, which popularity alone had.
    return ConstantRow() if "users" in head or head["about"]["model"] == "popularity" else None


def _weights(arrays: Arrays, n_items: int) -> WeightMatrix:
    if "indptr" not in arrays:
        return DenseWeights(_floats(arrays, "values", (n_items, n_items)))
    if "indices" in arrays and arrays["indices"].dtype == np.uint16:
        arrays = {**arrays, "indices": arrays["indices"].astype(np.int32)}
    places = _rows("", arrays, n_items, n_items)
    return SparseWeights(places.indptr, places.indices, _floats(arrays, "values", (len(places),)), n_items)


def _shape(arrays: Arrays, name: str, dimensions: int) -> tuple[int, ...]:
    """Return the shape of an array, some lengths of which do not follow from the ids."""
    shape = arrays[name].shape if name in arrays else ()
    if len(shape) != dimensions or 0 in shape:
        raise InvalidFileError(f"{name} has the shape {shape}, expected {dimensions} dimensions")
    return shape


def _layers(opened: Container, ranked: Embeddings[Rows], graph: bool) -> Layers:
    n_nodes = len(ranked.users) + len(ranked.items)
    with explain_damage(opened.path):
        arrays = _decode_tensors(opened.read(LAYERS), LAYERS)
        depth = _shape(arrays, "layers", 3)[0] - 1
        embeddings = _floats(arrays, "layers", (depth + 1, n_nodes, ranked.dim))
        if graph and depth < 1:
            raise InvalidFileError(f"{LAYERS} has one layer, a model with a graph has more")
        if "gate_logits" not in arrays:
            return Layers(embeddings, None)
        gates = _shape(arrays, "gate_logits", 2)[0]
        if gates not in (1, depth):
            raise InvalidFileError(f"{LAYERS} has gates of {gates} layers, expected 1 or {depth}")
        return Layers(embeddings, _floats(arrays, "gate_logits", (gates, n_nodes)))


def _vocabulary(side: Side, arrays: Arrays, kind: IdKind, titles: list[str] | None) -> Vocabulary:
    vocabulary = Vocabulary.from_arrays(side, partial(_integers, arrays), kind, titles)
    if not len(vocabulary):
        raise InvalidFileError(f"{DATA} has no {side}")
    return vocabulary


def _titles(data: bytes, most: int) -> _Titles:
    """Decode at most ``most`` titles; other JSON is refused, because it could take far more memory than its bytes."""
    if len(_TEXT.sub(b"", data)) > 2 * most + 64:  # what is not text: commas and a few brackets
        raise InvalidFileError(f"{TITLES} holds more than titles")
    return decode_json(data, _Titles, TITLES)


def _rows(prefix: str, arrays: Arrays, n_rows: int, n_items: int) -> Pairs:
    """Return the items of each user, or of each item, as compressed rows."""
    return Pairs.from_arrays(prefix, partial(_integers, arrays), n_rows, n_items)


def _decode_tensors(data: bytes, name: str) -> Arrays:
    """Return the arrays of a safetensors file as read-only views of ``data``, which they must fill without gaps."""
    start = 8 + int.from_bytes(data[:8], "little")
    if start > min(len(data), _HEADER_BYTES):
        raise InvalidFileError(f"{name} has a damaged header")
    header = decode_json(data[8:start], dict[str, Any], name)
    header.pop("__metadata__", None)
    tensors = check_type(header, dict[str, _Tensor], name)
    arrays: Arrays = {}
    end = 0
    for key, tensor in sorted(tensors.items(), key=lambda entry: entry[1]["data_offsets"]):
        dtype, count = np.dtype(_DTYPES[tensor["dtype"]]), math.prod(tensor["shape"])
        if tensor["data_offsets"] != [end, end + count * dtype.itemsize]:
            raise InvalidFileError(f"{name}: the bytes of {key[:40]!r} do not follow from its shape")
        end += count * dtype.itemsize
        if end > len(data) - start or len(tensor["shape"]) > 3 or any(n > len(data) for n in tensor["shape"]):
            raise InvalidFileError(f"{name}: {key[:40]!r} is larger than the file")
        array = np.frombuffer(data, dtype, count, start + end - count * dtype.itemsize).reshape(tensor["shape"])
        arrays[key] = array if array.flags.aligned else array.copy()
    if end != len(data) - start:
        raise InvalidFileError(f"{name} has {len(data) - start - end:,} bytes that belong to no array")
    return arrays


def _floats(arrays: Arrays, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a float32 array of this shape; raise if a number is not finite or beyond ``_LARGEST``."""
    array = _named(arrays, name, np.float32)
    if array.shape != shape:
        raise InvalidFileError(f"{name} has the shape {array.shape}, expected {shape}")
    # Not isfinite(): minimum and maximum need no memory, and NaN fails both comparisons.
    if array.size and not (array.min() >= -_LARGEST and array.max() <= _LARGEST):
        raise InvalidFileError(f"{name} holds a number that is not finite, or beyond {_LARGEST:g}")
    return array


def _integers(arrays: Arrays, name: str, dtype: str) -> NDArray[Any]:
    """Return a one-dimensional array of integers of a NumPy dtype."""
    array = _named(arrays, name, dtype)
    if array.ndim != 1:
        raise InvalidFileError(f"{name} has {array.ndim} dimensions, expected one")
    return array


def _named(arrays: Arrays, name: str, dtype: Any) -> NDArray[Any]:
    if name not in arrays:
        raise InvalidFileError(f"there is no array {name}")
    if arrays[name].dtype != dtype:
        raise InvalidFileError(f"{name} is {arrays[name].dtype}, expected {np.dtype(dtype)}")
    return arrays[name]

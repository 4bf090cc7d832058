"""Artefacts that were made to mislead: each is refused with one sentence, before it takes memory."""

from __future__ import annotations

import json
import os
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as decode
from safetensors.numpy import save as encode

import dgcf
from dgcf.errors import ArtifactError, DgcfError
from dgcf.recommend import Snapshot, artifact, container
from tests.recommend.conftest import random_dataset, untrained

ZEROS = 2**27  # bytes that compress to 130 kB


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return untrained(random_dataset(4, 5, titles={"0": "Zero"}, density=0.9), layers=1, dim=2)


@pytest.fixture(scope="module")
def members(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = artifact.save(snapshot, tmp_path_factory.mktemp("members") / "kept")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}


def use(path: Path) -> None:
    rec = dgcf.load(path)
    users, items = list(rec.snapshot.users), list(rec.snapshot.items)
    rec.recommend(users, 3)
    rec.explain(users[0], items[0])
    rec.recommend_for(items[:2], 3)


def refusal(path: Path) -> str:
    """Load and use what lies at ``path``; return the one line that refuses it."""
    with pytest.raises(DgcfError) as caught:
        use(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(tmp_path: Path, members: Mapping[str, bytes], reason: str) -> None:
    """Both forms, under right checksums."""
    for name in ("crafted.dgcf", "crafted"):
        assert re.search(reason, refusal(container.write(tmp_path / name, members)))


# -- ZIP ---------------------------------------------------------------------------------------------------------------


def packed(path: Path, members: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> Path:
    """A recommender file whose members are packed in another way."""
    whole = container.write(path.with_suffix(".whole"), members)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("manifest.json", *members):
            info = zipfile.ZipInfo(name)
            if change is not None:
                change(info)
            archive.writestr(info, (whole / name).read_bytes(), info.compress_type)
    return path


def test_repacked_members_load(tmp_path: Path, members: dict[str, bytes]) -> None:
    assert len(dgcf.load(packed(tmp_path / "a.dgcf", members)).recommend(0, 1, exclude_seen=False)) == 1


@pytest.mark.parametrize("member", ["about.json", "embeddings.safetensors", "titles.json"])
def test_compressed_member_is_refused_without_using_memory(
    tmp_path: Path, members: dict[str, bytes], member: str
) -> None:
    """One of 1.4 MB took 2.9 GB."""
    path = packed(
        tmp_path / "bomb.dgcf",
        {**members, member: bytes(ZEROS)},
        lambda info: setattr(info, "compress_type", zipfile.ZIP_DEFLATED),
    )
    assert path.stat().st_size < 2**18
    tracemalloc.start()
    try:
        assert "is compressed or encrypted" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_directory_of_many_members_is_refused_without_using_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.dgcf"
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    count = 2**24 // len(entry)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count % 2**16, count % 2**16, count * len(entry), 0, 0)
    path.write_bytes(entry * count + end)
    tracemalloc.start()
    try:
        assert "damaged" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def edited(path: Path, members: Mapping[str, bytes], change: Callable[[bytearray, int, int], None]) -> Path:
    """A recommender file after ``change(content, start of the directory, its second entry)``."""
    content = bytearray(container.write(path, members).read_bytes())
    start = int.from_bytes(content[-6:-2], "little")
    change(content, start, content.index(b"PK\1\2", start + 4))
    path.write_bytes(content)
    return path


def overlap(content: bytearray, start: int, second: int) -> None:
    content[second + 42 : second + 46] = content[start + 42 : start + 46]


def encrypt(content: bytearray, start: int, second: int) -> None:
    content[second + 8] |= 1


def descriptor(content: bytearray, start: int, second: int) -> None:
    content[second + 8] |= 8


def beyond(content: bytearray, start: int, second: int) -> None:
    for place in (20, 24):
        content[second + place : second + place + 4] = (2**31 - 1).to_bytes(4, "little")


def unequal(content: bytearray, start: int, second: int) -> None:
    content[second + 24 : second + 28] = (2**31 - 1).to_bytes(4, "little")


def prefixed(content: bytearray, start: int, second: int) -> None:
    content[:0] = b"#!/bin/sh\n"


def appended(content: bytearray, start: int, second: int) -> None:
    content += b'{"a": 1}\n'


def comment(content: bytearray, start: int, second: int) -> None:
    content[-2:] = b"\2\0hi"


def gap(content: bytearray, start: int, second: int) -> None:
    content[start:start] = b"more"
    content[-6:-2] = (start + 4).to_bytes(4, "little")


@pytest.mark.parametrize("change", [overlap, encrypt, descriptor, beyond, unequal, prefixed, appended, comment, gap])
def test_inconsistent_directory_is_refused(
    tmp_path: Path, members: dict[str, bytes], change: Callable[[bytearray, int, int], None]
) -> None:
    assert "damaged" in refusal(edited(tmp_path / "edited.dgcf", members, change))


def test_zip64_directory_is_read(tmp_path: Path, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # as if these members were so large
    path = container.write(tmp_path / "large.dgcf", members)
    monkeypatch.undo()
    assert path.read_bytes().count(b"PK\6\6") == 1
    assert len(dgcf.load(path).recommend(0, 1, exclude_seen=False)) == 1


def test_member_missing_from_manifest_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = container.write(tmp_path / "more.dgcf", {name: members[name] for name in members if name != "titles.json"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo("titles.json"), members["titles.json"])
    assert "manifest.json does not name titles.json" in refusal(path)


# -- folders -----------------------------------------------------------------------------------------------------------


def link(path: Path) -> None:
    moved = path.with_name("moved")
    path.rename(moved)
    path.symlink_to(moved)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("change", [link, fifo, folder, device])
@pytest.mark.parametrize("member", ["manifest.json", "about.json", "embeddings.safetensors", "layers.safetensors"])
def test_members_that_are_not_regular_files_are_refused(
    tmp_path: Path, members: dict[str, bytes], member: str, change: Callable[[Path], None]
) -> None:
    path = container.write(tmp_path / "kept", members)
    change(path / member)
    assert re.search("regular file|neither a recommender nor a run", refusal(path))


def test_link_to_artefact_is_followed(tmp_path: Path, members: dict[str, bytes]) -> None:
    for name in ("kept", "kept.dgcf"):
        target = tmp_path / f"to-{name}"
        target.symlink_to(container.write(tmp_path / name, members))
        assert len(dgcf.load(target).recommend(0, 1, exclude_seen=False)) == 1


# -- descriptions ------------------------------------------------------------------------------------------------------

NESTED = b"[" * 100_000


def without(head: dict[str, Any], *path: str) -> dict[str, Any]:
    if len(path) == 1:
        return {key: value for key, value in head.items() if key != path[0]}
    return {**head, path[0]: without(head[path[0]], *path[1:])}


def put(head: dict[str, Any], value: Any, *path: str) -> dict[str, Any]:
    return {**head, path[0]: value if len(path) == 1 else put(head[path[0]], value, *path[1:])}


WRONG: dict[str, tuple[Any, ...]] = {
    "about": (None, [], 3, "dgcf"),
    "about.model": (3, None, "", "x" * 500, ["dgcf"]),
    "about.preset": (3, None),
    "about.settings": (None, [], "dim=2", 7),
    "about.settings.dim": ([], {}, [1]),
    "about.settings.self": (1,),
    "about.settings.model": ("dgcf",),
    "about.settings.seed": (1,),
    "about.settings.a b": (1,),
    "about.seed": ("0", 0.5, None, 2**70),
    "about.metrics": ([], 3),
    "about.metrics.recall@20": ([], {}),
    "about.dataset": (None, "films"),
    "about.dataset.fingerprint": (3, "abc"),
    "about.dgcf": (1,),
    "rule": (3, [], "cross", {}),
    "rule.direct": (1, None, "yes"),
    "rule.epsilon": ("auto", True, []),
    "readout": ("first", None, 1),
    "cosine": (None, 0, "no"),
    "least_squares": ({}, 3, {"confidence": 1}, {"confidence": 0, "regularization": 1}),
    "users": (None, 3, "mean", ["constant"]),
    "id_kinds": (None, {}, []),
    "id_kinds.items": ("float", None, 1),
}


@pytest.mark.parametrize(("where", "value"), [(where, value) for where, values in WRONG.items() for value in values])
def test_description_field_of_wrong_type_is_refused(
    tmp_path: Path, members: dict[str, bytes], where: str, value: Any
) -> None:
    head = put(json.loads(members["about.json"]), value, *where.split("."))
    refused(tmp_path, {**members, "about.json": json.dumps(head).encode()}, "about.json")


@pytest.mark.parametrize("where", ["about", "about.model", "rule", "rule.cross", "readout", "cosine", "id_kinds.users"])
def test_description_with_missing_field_is_refused(tmp_path: Path, members: dict[str, bytes], where: str) -> None:
    head = without(json.loads(members["about.json"]), *where.split("."))
    refused(tmp_path, {**members, "about.json": json.dumps(head).encode()}, "is missing")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xff" + text,
        lambda text: text[:-5],
        lambda text: NESTED,
        lambda text: b'{"about": ' + NESTED + b"]" * 100_000 + b"}",
        lambda text: text.replace(b'"epsilon": ', b'"epsilon": 1e400, "x": '),
        lambda text: text.replace(b'"epsilon": ', b'"epsilon": NaN, "x": '),
        lambda text: text.replace(b'"seed": ', b'"seed": -Infinity, "x": '),
        lambda text: text.replace(b'"preset": "', b'"preset": "\\ud800'),
        lambda text: b"",
        lambda text: b"null",
        lambda text: b" " * 2**21,
    ],
)
def test_malformed_description_is_refused(
    tmp_path: Path, members: dict[str, bytes], change: Callable[[bytes], bytes]
) -> None:
    refused(tmp_path, {**members, "about.json": change(members["about.json"])}, "about.json")


@pytest.mark.parametrize(
    "titles",
    [
        b"[]",
        b"{",
        b"\xff",
        NESTED,
        b'{"items": ["a"]}',
        b'{"items": ["a", "b", "c", "d", 5]}',
        b'{"items": "abcde"}',
        b'{"items": ["a", "b", "c", "d", "\\udfff"]}',
        b'{"items": [' + b"[]," * 10_000 + b"[]]}",
        b'{"users": {}, "items": null}',
    ],
)
def test_invalid_titles_are_refused(tmp_path: Path, members: dict[str, bytes], titles: bytes) -> None:
    refused(tmp_path, {**members, "titles.json": titles}, r"titles")


def test_any_title_survives_saving(tmp_path: Path, members: dict[str, bytes]) -> None:
    titles = ['"', "\\", '\\"[{,', "\n\x00\u2028", "👩‍🚀"]
    content = json.dumps({"users": None, "items": titles}).encode()
    path = container.write(tmp_path / "kept.dgcf", {**members, "titles.json": content})
    assert dgcf.load(path).snapshot.items.titles == tuple(titles)


# -- arrays ------------------------------------------------------------------------------------------------------------


def array(values: Any, dtype: Any) -> Any:
    return np.array(values, dtype=dtype)


MEANINGLESS: list[tuple[str, dict[str, Any], str]] = [
    ("data", {"user_ids": array(list(b"\xff123"), np.uint8)}, "user_ids holds an id that is not UTF-8"),
    ("data", {"user_ids": array(list(b"0113"), np.uint8)}, "user_ids holds an id twice"),
    ("data", {"user_ids": array(list(b"01x3"), np.uint8)}, "user_ids holds an id that is not the whole"),
    ("data", {"user_offsets": array([0, 1, 2, 4], np.int64), "user_ids": array(list(b"0 01"), np.uint8)}, "user_ids"),
    ("data", {"user_offsets": array([0, 2, 1, 3, 4], np.int64)}, "user_offsets does not give each id its place"),
    (
        "data",
        {"user_offsets": array([0, 2**63 - 1, -(2**63), -1, 4], np.int64)},
        "user_offsets does not give each id its place",
    ),
    ("data", {"user_offsets": array([0], np.int64), "user_ids": array([], np.uint8)}, "has no user"),
    ("data", {"user_offsets": array([0, 1, 2, 3, 4], np.int32)}, "int32, expected int64"),
    ("data", {"train_indptr": array([0] * 5, np.int64), "train_indices": array([], np.int32)}, "no training pair"),
    ("data", {"train_indptr": array([0, 2, 2, 2, 2], np.int64), "train_indices": array([1, 1], np.int32)}, "ascending"),
    (
        "data",
        {"train_indptr": array([0, 2, 2, 2, 2], np.int64), "train_indices": array([1, 5], np.int32)},
        "item indices",
    ),
    (
        "data",
        {"train_indptr": array([0, 2, 2, 2, 2], np.int64), "train_indices": array([-1, 1], np.int32)},
        "item indices",
    ),
    ("data", {"train_indptr": array([0, 2**63 - 1, -(2**63), -1, 0], np.int64)}, "train_indptr does not give"),
    ("data", {"more_indptr": array([[0] * 5], np.int64)}, "2 dimensions"),
    ("embeddings", {"users": array(np.full((4, 2), np.inf), np.float32)}, "not finite"),
    ("embeddings", {"items": array(np.full((5, 2), np.nan), np.float32)}, "not finite"),
    ("embeddings", {"items": array(np.full((5, 2), 3e38), np.float32)}, "not finite, or beyond"),
    ("embeddings", {"users": np.zeros((4, 0), np.float32), "items": np.zeros((5, 0), np.float32)}, "shape"),
    ("embeddings", {"users": np.zeros(8, np.float32)}, "shape"),
    ("layers", {"layers": np.zeros((1, 9, 2), np.float32)}, "one layer"),
    ("layers", {"layers": np.zeros((0, 9, 2), np.float32)}, "shape"),
    ("layers", {"layers": np.full((2, 9, 2), np.nan, np.float32)}, "not finite"),
    ("layers", {"gate_logits": np.full((1, 9), np.inf, np.float32)}, "not finite"),
    ("layers", {"gate_logits": np.zeros((2, 9), np.float32)}, "gates of 2 layers"),
    ("layers", {"gate_logits": np.zeros((0, 9), np.float32)}, "shape"),
]


@pytest.mark.parametrize(("member", "arrays", "reason"), MEANINGLESS)
def test_invalid_arrays_are_refused(
    tmp_path: Path, members: dict[str, bytes], member: str, arrays: dict[str, Any], reason: str
) -> None:
    name = f"{member}.safetensors"
    refused(tmp_path, {**members, name: encode({**decode(members[name]), **arrays})}, reason)


@pytest.mark.parametrize("values", [np.full((5, 5), np.nan), np.full((5, 4), 0.5), np.full((5, 5), np.inf)])
def test_invalid_weights_are_refused(tmp_path: Path, members: dict[str, bytes], values: Any) -> None:
    kept = {name: members[name] for name in ("about.json", "data.safetensors", "titles.json")}
    refused(tmp_path, {**kept, "weights.safetensors": encode({"values": values.astype(np.float32)})}, "values")


def test_embeddings_or_weights_are_required(tmp_path: Path, members: dict[str, bytes]) -> None:
    kept = {name: data for name, data in members.items() if name != "embeddings.safetensors"}
    refused(tmp_path, kept, "it has neither embeddings.safetensors nor weights.safetensors")


def test_dense_weights_beside_embeddings_are_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    dense = encode({"values": np.zeros((5, 5), np.float32)})
    reason = "weights.safetensors beside embeddings.safetensors is dense, expected sparse weights"
    refused(tmp_path, {**members, "weights.safetensors": dense}, reason)


def header(fields: Any, data: bytes = b"") -> bytes:
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        header(b"{"),
        header(NESTED),
        header([]),
        header({"users": 3}),
        header({"users": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 2**82]}}),
        header({"users": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
        header({"users": {"dtype": "F32", "shape": [2, -1], "data_offsets": [0, 8]}}, bytes(8)),
        header({"users": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12)),
        header({"users": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(12)),
        header({"users": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
        header({"users": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}),
        header({"users": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        header({"users": {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]}}, bytes(4)),
        header({"users": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, bytes(4)),
        header({"users": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}, bytes(8)),
    ],
)
def test_inconsistent_header_is_refused(tmp_path: Path, members: dict[str, bytes], content: bytes) -> None:
    refused(tmp_path, {**members, "embeddings.safetensors": content}, r"damaged or not a recommender \(.*(users|embed)")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 3},
        {"format": "1"},
        {"format": True},
        {"format": 0},
        {"format": 1e400},
        {"files": []},
        {"files": {"about.json": None}},
        {"files": {"about.json": {"sha256": 3, "bytes": 1}}},
        {"files": {"about.json": {"sha256": "", "bytes": -1}}},
        {"files": {"about.json": {"sha256": "", "bytes": 2**62}}},
    ],
)
def test_manifest_field_of_wrong_type_is_refused(
    tmp_path: Path, members: dict[str, bytes], change: dict[str, Any]
) -> None:
    from dgcf.stored import seal

    path = container.write(tmp_path / "kept", members)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps(seal({**manifest, **change})))
    assert re.search("damaged|expected", refusal(path))


def test_nan_metric_is_saved_as_null(tmp_path: Path, snapshot: Snapshot) -> None:
    from dataclasses import replace

    odd = replace(snapshot, about={**snapshot.about, "metrics": {"loss": float("nan"), "recall@20": 0.5}})
    loaded = artifact.load(artifact.save(odd, tmp_path / "kept.dgcf"))
    assert loaded.about["metrics"] == {"loss": None, "recall@20": 0.5}


def test_run_does_not_use_symlinked_recommender(tmp_path: Path, members: dict[str, bytes]) -> None:
    """What lies beside the weights is read only if it is a file of its own."""
    from dgcf.data.synthetic import planted
    from dgcf.train import Run, resolve, train

    films = planted(n_users=40, n_items=30)
    films.save(tmp_path / "films")
    recipe = resolve("popularity")
    run = Run.create(tmp_path / "run", films, recipe, seed=0, device="cpu", source=str(tmp_path / "films"))
    train(films, recipe, device="cpu", run=run)
    built: list[str] = []
    dgcf.load(run.path, notify=built.append)
    kept = run.path / "recommender.dgcf"
    kept.rename(tmp_path / "elsewhere.dgcf")
    kept.symlink_to(tmp_path / "elsewhere.dgcf")
    dgcf.load(run.path, notify=built.append)
    assert len(built) == 2
    assert kept.is_file()
    assert not kept.is_symlink()


def test_messages_name_the_file(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = container.write(tmp_path / "kept.dgcf", {**members, "about.json": b"{}"})
    with pytest.raises(ArtifactError, match=rf"^{re.escape(str(path))} is damaged or not a recommender \(about.json: "):
        dgcf.load(path)

"""The artefact: it comes back as it went, and whatever is done to its bytes is refused or harmless."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as encode

from dgcf.errors import ArtifactError, DataError
from dgcf.recommend import Recommender, Snapshot, artifact, container, load
from dgcf.stored import seal
from tests.recommend.conftest import MODELS, random_dataset, untrained

# Any text that UTF-8 can hold: the empty one, line breaks, signs of CSV and JSON, and letters of any script.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def same(one: Snapshot, other: Snapshot) -> bool:
    fields = ("about", "users", "items", "train", "seen", "rule", "readout", "cosine")
    equal = all(getattr(one, name) == getattr(other, name) for name in fields)
    equal &= np.array_equal(one.user_rows, other.user_rows) and np.array_equal(one.item_rows, other.item_rows)
    if one.layers is None or other.layers is None:
        return equal and one.layers is other.layers
    gates = [layers.gate_logits for layers in (one.layers, other.layers)]
    equal &= (gates[0] is None) == (gates[1] is None)
    equal &= gates[0] is None or np.array_equal(gates[0], gates[1])  # type: ignore[arg-type]
    return equal and np.array_equal(one.layers.embeddings, other.layers.embeddings)


@given(st.sets(texts, min_size=2, max_size=8), st.sets(texts, min_size=2, max_size=8), st.booleans(), st.data())
def test_arbitrary_ids_survive_saving(
    tmp_path_factory: pytest.TempPathFactory, users: set[str], items: set[str], folder: bool, data: st.DataObject
) -> None:
    titles = data.draw(st.dictionaries(st.sampled_from(sorted(items)), texts, max_size=3))
    dataset = random_dataset(len(users), len(items), users=users, items=items, kind="text", titles=titles)
    snapshot = untrained(dataset, layers=1)
    path = tmp_path_factory.mktemp("a") / ("kept" if folder else "kept.dgcf")
    rec = Recommender.of(snapshot)
    rec.save(path)
    again = load(path)
    assert same(again.snapshot, snapshot)
    assert again.recommend(sorted(users), 3) == rec.recommend(sorted(users), 3)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["kept", "kept.dgcf"])
def test_every_model_survives_saving(tmp_path: Path, model: tuple[str, dict[str, Any]], name: str) -> None:
    snapshot = untrained(random_dataset(), model[0], **model[1])
    assert same(artifact.load(artifact.save(snapshot, tmp_path / name)), snapshot)


def test_same_recommender_gives_same_bytes(tmp_path: Path) -> None:
    snapshot = untrained(random_dataset())
    one, other = (artifact.save(snapshot, tmp_path / name) for name in ("a.dgcf", "b.dgcf"))
    assert one.read_bytes() == other.read_bytes()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, bytes]:
    snapshot = untrained(random_dataset(3, 3, titles={"0": "Zero"}), layers=1, dim=2)
    path = tmp_path_factory.mktemp("small") / "small.dgcf"
    return snapshot, artifact.save(snapshot, path).read_bytes()


def refused_or_harmless(path: Path, snapshot: Snapshot) -> None:
    loaded, message = None, ""
    try:
        loaded = artifact.load(path)
    except ArtifactError as problem:
        message = str(problem)
    assert same(loaded, snapshot) if loaded else (str(path) in message and "\n" not in message)


@pytest.mark.parametrize(("step", "flips"), [(7, (0x01,)), pytest.param(1, (0x01, 0x80, 0xFF), marks=pytest.mark.slow)])
def test_flipped_byte_in_file_is_refused_or_harmless(
    small: tuple[Snapshot, bytes], tmp_path: Path, step: int, flips: tuple[int, ...]
) -> None:
    snapshot, content = small
    path = tmp_path / "flipped.dgcf"
    for place in range(0, len(content), step):
        for flip in flips:
            damaged = bytearray(content)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            refused_or_harmless(path, snapshot)


def test_flipped_byte_in_folder_is_refused_or_harmless(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    """No archive's own checksum stands by here."""
    snapshot, _ = small
    folder = artifact.save(snapshot, tmp_path / "kept")
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for place in range(0, len(content), 5):
            damaged = bytearray(content)
            damaged[place] ^= 1 << place % 8
            file.write_bytes(damaged)
            refused_or_harmless(folder, snapshot)
        file.write_bytes(content)
    assert same(artifact.load(folder), snapshot)


def test_edited_manifest_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    folder = artifact.save(small[0], tmp_path / "kept")
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"format": 1', '"format": 0'))
    with pytest.raises(ArtifactError, match=r"manifest\.json does not match its checksum"):
        artifact.load(folder)


def test_truncated_file_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    path = tmp_path / "short.dgcf"
    for length in range(0, len(small[1]), 37):
        path.write_bytes(small[1][:length])
        with pytest.raises(ArtifactError, match="damaged or not a recommender"):
            artifact.load(path)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/b", "layers.pkl"])
def test_hostile_names_are_refused(small: tuple[Snapshot, bytes], tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.dgcf"
    path.write_bytes(small[1])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"boo")
    with pytest.raises(ArtifactError, match="holds an unknown member"):
        artifact.load(path)
    assert not list(tmp_path.parent.glob("evil"))


def test_hostile_names_in_a_manifest_are_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    folder = container.write(tmp_path / "kept", {"../secret": b"mine"})
    with pytest.raises(ArtifactError, match=r"unknown member '\.\./secret'"):
        artifact.load(folder)


def test_duplicate_member_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    path = tmp_path / "twice.dgcf"
    path.write_bytes(small[1])
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("about.json", b"{}")
    with pytest.raises(ArtifactError, match="twice"):
        artifact.load(path)


def rewritten(snapshot: Snapshot, folder: Path, change: Any) -> Path:
    """An artefact whose manifest is changed and signed again: what another version, or a liar, would write."""
    path = artifact.save(snapshot, folder)
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps(seal(manifest)))
    return path


def test_newer_format_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    path = rewritten(small[0], tmp_path / "new", lambda manifest: manifest.update(format=5))
    with pytest.raises(ArtifactError, match=r"written by a newer dgcf \(format 5, this one reads 4\); upgrade dgcf"):
        artifact.load(path)


def test_other_kind_of_file_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    path = rewritten(small[0], tmp_path / "other", lambda manifest: manifest.update(kind="a cake"))
    with pytest.raises(ArtifactError, match="holds a 'a cake', expected a 'dgcf recommender'"):
        artifact.load(path)


def lied(snapshot: Snapshot, path: Path, member: str, content: bytes) -> Path:
    """An artefact with one member replaced, under right checksums."""
    folder = artifact.save(snapshot, path / "honest")
    members = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    return container.write(path / "lie.dgcf", {**members, member: content})


@pytest.mark.parametrize(
    ("member", "arrays", "message"),
    [
        ("embeddings.safetensors", {"users": np.zeros((2, 2), np.float32)}, "users"),
        ("embeddings.safetensors", {"users": np.full((3, 2), np.nan, np.float32)}, "not finite"),
        ("embeddings.safetensors", {"users": np.zeros((3, 2), np.float64)}, "F64"),
        ("data.safetensors", {"train_indices": np.array([0, 9, 1], np.int32)}, "train_ind"),
        ("data.safetensors", {"train_indptr": np.array([0, 5, 1, 3], np.int64)}, "train_indptr"),
        ("data.safetensors", {"user_offsets": np.array([0, 9, 1, 3], np.int64)}, "user_offsets"),
    ],
)
def test_inconsistent_arrays_with_valid_checksums_are_refused(
    small: tuple[Snapshot, bytes], tmp_path: Path, member: str, arrays: dict[str, Any], message: str
) -> None:
    snapshot = small[0]
    whole: dict[str, Any] = {"users": snapshot.user_rows, "items": snapshot.item_rows}
    if member == "data.safetensors":
        whole = artifact._data(snapshot)
    with pytest.raises(ArtifactError, match=message):
        artifact.load(lied(snapshot, tmp_path, member, encode({**whole, **arrays})))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": {"direct": 1}},
        {"readout": "first"},
        {"id_kinds": {}},
        {"about": {"model": 3}},
        {"id_kinds": {"users": "text", "items": "float"}},
    ],
)
def test_invalid_description_is_refused(small: tuple[Snapshot, bytes], tmp_path: Path, change: dict[str, Any]) -> None:
    folder = artifact.save(small[0], tmp_path / "kept")
    head = json.loads((folder / "about.json").read_text()) | change
    with pytest.raises(ArtifactError, match="damaged or not a recommender"):
        artifact.load(lied(small[0], tmp_path, "about.json", json.dumps(head).encode()))


def test_layers_of_other_model_are_refused_on_first_use(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    layers = encode({"layers": np.zeros((2, 5, 2), np.float32)})
    rec = Recommender.of(artifact.load(lied(small[0], tmp_path, "layers.safetensors", layers)))
    assert len(rec.recommend(0, 1, exclude_seen=False))
    with pytest.raises(ArtifactError, match=r"layers has the shape \(2, 5, 2\), expected \(2, 6, 2\)"):
        rec.explain(0, 0)


def test_existing_target_is_kept_without_overwrite(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    for name in ("kept", "kept.dgcf"):
        artifact.save(small[0], tmp_path / name)
        with pytest.raises((ArtifactError, DataError), match="exists already"):
            artifact.save(small[0], tmp_path / name)
        other = replace(small[0], about={**small[0].about, "seed": 9})
        assert artifact.load(artifact.save(other, tmp_path / name, overwrite=True)).about["seed"] == 9


def test_serving_needs_no_torch(small: tuple[Snapshot, bytes], tmp_path: Path) -> None:
    """Recommend, fold in, explain and compare in a process in which torch, duckdb and all frames cannot be imported."""
    path = tmp_path / "small.dgcf"
    path.write_bytes(small[1])
    code = f"""
import sys
for name in ("torch", "duckdb", "pandas", "polars", "pyarrow", "matplotlib", "typer", "pydantic"):
    sys.modules[name] = None
import dgcf
rec = dgcf.load({str(path)!r})
print(rec.recommend(0, 2, exclude_seen=False)["item"], rec.recommend_for([0, 1], 1)["item"])
print(rec.explain(0, 1).text(), rec.similar_items(0, 1)["item"], rec.audience_for([0], 1)["user"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rec = Recommender.of(small[0])
    assert done.stdout.splitlines()[0] == f"{rec.recommend(0, 2, exclude_seen=False)['item']} [2]"


def test_importing_dgcf_imports_nothing_heavy() -> None:
    code = "import sys, dgcf; dgcf.__version__; print(sorted({'torch', 'numpy', 'duckdb', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

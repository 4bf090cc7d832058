"""Prepared datasets: atomic saves, verified loads, fingerprints."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset, load
from dgcf.data.dataset import SPLITS
from dgcf.data.prepare import Preparation, prepare, prepare_rows
from dgcf.errors import DataError
from dgcf.stored import UncheckedWarning
from tests.data.rows import rows_of
from tests.ordering import dataset_in_order
from tests.resealing import reseal_dataset

VERSION_0_1 = Path(__file__).parent.parent / "golden" / "version-0.1"
raw_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)


def same(one: Dataset, other: Dataset) -> bool:
    names = ("name", "users", "items", "train", "validation", "test", "fingerprint", "order")
    return all(getattr(one, name) == getattr(other, name) for name in names) and one.record == other.record


@given(st.lists(st.tuples(raw_ids, raw_ids), min_size=1, max_size=30))
def test_save_and_load_round_trip(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    titles = {item: f"title of {item}" for _, item in pairs[:3]}
    dataset = prepare_rows(rows_of(pairs), Preparation(), titles=titles)
    folder = dataset.save(tmp_path_factory.mktemp("saved") / "set")
    assert same(Dataset.load(folder), dataset)
    assert same(load(folder), dataset)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["set"]


@given(st.lists(st.tuples(raw_ids, raw_ids, st.integers(0, 9)), min_size=1, max_size=30))
def test_places_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]]) -> None:
    pairs, times = [(user, item) for user, item, _ in rows], [float(time) for *_, time in rows]
    dataset = prepare_rows(rows_of(pairs, times), Preparation(keep_order=True))
    folder = dataset.save(tmp_path_factory.mktemp("saved") / "set")
    for loaded in (Dataset.load(folder), load(folder)):
        assert same(loaded, dataset)
        for split in SPLITS:
            place = loaded.split(split).place
            assert place is not None
            assert place.tolist() == dataset.split(split).place.tolist()


def test_fingerprint_is_independent_of_the_order(tmp_path: Path) -> None:
    plain = load("checkerboard")
    one, again, other = (dataset_in_order(plain, seed) for seed in (0, 0, 1))
    assert one.fingerprint == other.fingerprint == plain.fingerprint
    assert one.pairs_fingerprint == other.pairs_fingerprint == plain.pairs_fingerprint
    assert plain.order is None
    assert one.order == again.order
    assert len({plain.order, one.order, other.order}) == 3
    for split in SPLITS:
        without = {split: replace(one.split(split), place=None)}
        assert replace(one, **without).order is None, "an order is that of all parts"


def test_overwriting_deletes_stale_places(tmp_path: Path) -> None:
    files = {f"{split}_place.npy" for split in SPLITS}
    plain = load("checkerboard")
    for dataset in (plain, dataset_in_order(plain, 1), dataset_in_order(plain, 2), plain):
        dataset.save(tmp_path / "set", overwrite=True)
        assert {path.name for path in (tmp_path / "set").glob("*_place.npy")} == (files if dataset.order else set())
        assert same(Dataset.load(tmp_path / "set"), dataset)
        assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_old_description_without_order_loads(tmp_path: Path) -> None:
    folder = load("checkerboard").save(tmp_path / "set")
    reseal_dataset(folder, order=...)
    assert same(Dataset.load(folder), load("checkerboard"))


def test_damaged_places_are_refused(tmp_path: Path) -> None:
    dataset = dataset_in_order(load("checkerboard"))
    folder = dataset.save(tmp_path / "set")
    for split in SPLITS:
        path, place = folder / f"{split}_place.npy", dataset.split(split).place
        assert place is not None
        changed = place.copy()
        changed[3] += 1
        swapped = np.roll(place, 1)
        assert not np.array_equal(swapped, place)
        for bad, sentence in (
            (place[:-1], f"{split}_place has {len(place) - 1} numbers for {len(place)} pairs"),
            (np.append(place, place[:1]), f"{split}_place has {len(place) + 1} numbers for {len(place)} pairs"),
            (place.astype(np.int64), f"{split}_place.npy holds <i8"),
            (place[:, None], "of 2 dimensions"),
            (changed, "its content does not match its fingerprint"),
            (swapped, "its content does not match its fingerprint"),
        ):
            np.save(path, bad)
            with pytest.raises(DataError, match=f"damaged dataset.*{split}_place.npy does not match its checksum"):
                Dataset.load(folder)
            reseal_dataset(folder)
            with pytest.raises(DataError, match="damaged dataset") as caught:
                Dataset.load(folder)
            assert sentence in str(caught.value)
            assert "\n" not in str(caught.value)
        np.save(path, place)
        reseal_dataset(folder)
    assert same(Dataset.load(folder), dataset)


def test_fingerprint_depends_on_content_only(tmp_path: Path) -> None:
    pairs = [(user, item) for user in range(20) for item in range(user % 7 + 3)]
    lines = [f"{user},{item}" for user, item in pairs]

    def fingerprint(name: str, rows: list[str]) -> str:
        (tmp_path / name).write_text("user,item\n" + "\n".join(rows) + "\n")
        return load(tmp_path / name).fingerprint

    reference = fingerprint("a.csv", lines)
    assert fingerprint("b.csv", random.Random(0).sample(lines, len(lines))) == reference
    assert fingerprint("c.csv", [*lines, lines[3]]) == reference, "a repeated pair is the same set"
    assert fingerprint("d.csv", [*lines[:-1], "19,11"]) != reference
    assert fingerprint("e.csv", lines[:-1]) != reference
    typed = prepare(pd.DataFrame(pairs, columns=["user", "item"]))
    assert typed.fingerprint == reference, "numbers and their text are the same ids"


def test_splits_of_the_same_pairs_share_pairs_fingerprint() -> None:
    a, b = pd.DataFrame({"user": [1, 1], "item": [1, 2]}), pd.DataFrame({"user": [2, 2], "item": [1, 2]})
    one, other = prepare(a, test=b), prepare(b, test=a)
    assert one.fingerprint != other.fingerprint
    assert one.pairs_fingerprint == other.pairs_fingerprint


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return load("checkerboard").save(tmp_path / "set")


def test_existing_folder_is_replaced_only_with_overwrite(saved: Path) -> None:
    before = (saved / "dataset.json").read_bytes()
    with pytest.raises(DataError, match="exists already"):
        load("planted").save(saved)
    assert (saved / "dataset.json").read_bytes() == before
    load("planted").save(saved, overwrite=True)
    assert Dataset.load(saved).name == "planted"
    assert [path.name for path in saved.parent.iterdir()] == ["set"]


def test_folder_with_foreign_files_is_never_replaced(saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds other things \(notes.txt\)"):
        load("planted").save(saved, overwrite=True)
    assert (saved / "notes.txt").read_text() == "mine"
    assert Dataset.load(saved).name == "checkerboard"


@pytest.mark.parametrize("order", [False, True], ids=["without an order", "in an order"])
def test_damage_is_detected(saved: Path, order: bool) -> None:
    if order:
        dataset_in_order(load("checkerboard")).save(saved, overwrite=True)
    files = sorted(saved.iterdir())
    assert len(files) == (14 if order else 11)
    for path in files:
        content = path.read_bytes()
        damaged = [content[: len(content) // 2], b""]
        if path.suffix == ".npy":
            flipped = bytearray(content)
            flipped[-1] ^= 1
            damaged.append(bytes(flipped))
        for bad in damaged:
            path.write_bytes(bad)
            with pytest.raises(DataError, match=r"damaged dataset|not a prepared dataset"):
                Dataset.load(saved)
        path.unlink()
        with pytest.raises(DataError, match="is missing"):
            Dataset.load(saved)
        path.write_bytes(content)
    assert Dataset.load(saved).name == "checkerboard"


def test_any_flipped_bit_is_detected(saved: Path) -> None:
    """Titles, kinds of ids and the record are no part of the fingerprint; they have checksums."""
    load("checkerboard").save(saved, overwrite=True)
    titled = replace(Dataset.load(saved), items=Dataset.load(saved).items.with_titles({"i00001": "One", "i00002": "é"}))
    titled.save(saved, overwrite=True)
    generator = random.Random(0)
    for path in sorted(saved.iterdir()):
        content = path.read_bytes()
        for at in generator.sample(range(len(content)), min(40, len(content))):
            changed = bytearray(content)
            changed[at] ^= 1 << generator.randrange(8)
            path.write_bytes(changed)
            try:
                loaded = Dataset.load(saved)
            except DataError as problem:
                assert "\n" not in str(problem)  # noqa: PT017
            else:  # white space between two fields of JSON
                assert same(loaded, titled)
        path.write_bytes(content)
    assert same(Dataset.load(saved), titled)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "dataset.json: name is 3, expected a text"),
        ({"n_users": 2**40}, "n_users is 1099511627776, expected a number from 1 to"),
        ({"n_users": "60"}, "n_users is"),
        ({"n_items": 41}, "there are 40 item ids, dataset.json says 41"),
        ({"id_kinds": {"users": "text"}}, "id_kinds.items is missing"),
        ({"id_kinds": {"users": "integer", "items": "text"}}, "not the whole number"),
        ({"id_kinds": []}, "id_kinds is a list, expected an object"),
        ({"record": "x"}, "record is"),
        ({"repeats": {"train": -1}}, "repeats.train is -1"),
        ({"fingerprint": "0" * 64}, "does not match its fingerprint"),
        ({"fingerprint": ...}, "fingerprint is missing"),
        ({"format": ...}, "format is missing"),
        ({"format": "1"}, "format is"),
        ({"order": 5}, "order is 5"),
        ({"files": {}}, "does not list user_ids.npy"),
        ({"files": {"user_ids.npy": {"bytes": 2**70, "sha256": ""}}}, "does not fit 64 bits"),
    ],
    ids=str,
)
def test_crafted_description_is_refused(saved: Path, changes: dict[str, Any], message: str) -> None:
    reseal_dataset(saved, **changes)
    with pytest.raises(DataError, match="damaged dataset") as caught:
        Dataset.load(saved)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff", b"[]", b"1", b'{"format": 1e400}', b'{"format": 1}'], ids=len
)
def test_invalid_description_is_refused(saved: Path, content: bytes) -> None:
    (saved / "dataset.json").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged dataset \(dataset.json: "):
        Dataset.load(saved)


def array_file(values: list[int], dtype: str) -> bytes:
    content = io.BytesIO()
    np.save(content, np.array(values, dtype=dtype))
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train_indices.npy", array_file([], "<i4"), "train_indptr does not give each row a place"),
        ("train_indices.npy", array_file([40] * 840, "<i4"), "train_indices are not item indices below 40"),
        ("train_indices.npy", array_file([3] * 840, "<i4"), "train_indices are not ascending"),
        ("train_indices.npy", array_file([1], "<i8"), "holds <i8"),
        ("train_indptr.npy", array_file([0] * 61, "<i8"), "train_indptr does not give"),
        (
            "train_indptr.npy",
            array_file([0, 2**63 - 1, -(2**63), *[-1] * 57, 840], "<i8"),
            "train_indptr does not give",
        ),
        ("user_offsets.npy", array_file([0, 2**63 - 1, -(2**63), *[-1] * 57, 360], "<i8"), "user_offsets does not"),
        ("user_ids.npy", array_file([255] * 360, "uint8"), "user_ids holds an id that is not UTF-8"),
        ("user_ids.npy", array_file([65] * 360, "uint8"), "user_ids holds an id twice"),
        ("user_offsets.npy", array_file([0] * 61, "<i8"), "user_offsets does not give each id its place"),
        ("item_titles.json", b'["\\ud800"]', "half of a surrogate pair"),
        ("item_titles.json", b'["a"]', "there are 1 item titles for 40 ids"),
        ("item_titles.json", b"[" * 100_000, "nested more than 64 deep"),
        ("item_titles.json", b"\xff", "byte 0 is not UTF-8"),
        ("item_titles.json", b'"' + b"a" * 2_000_000 + b'"', "item_titles.json is larger than"),
    ],
    ids=str,
)
def test_crafted_content_is_refused(saved: Path, name: str, content: bytes, message: str) -> None:
    (saved / name).write_bytes(content)
    reseal_dataset(saved)
    with pytest.raises(DataError, match="damaged dataset") as caught:
        Dataset.load(saved)
    assert message in str(caught.value)


def test_dataset_without_training_pairs_is_refused(saved: Path) -> None:
    np.save(saved / "train_indices.npy", np.zeros(0, dtype="<i4"))
    np.save(saved / "train_indptr.npy", np.zeros(61, dtype="<i8"))
    reseal_dataset(saved)
    with pytest.raises(DataError, match="it has no training pair"):
        Dataset.load(saved)


def test_links_and_fifos_are_refused(saved: Path, tmp_path: Path) -> None:
    for name in ("dataset.json", "train_indices.npy"):
        moved = (saved / name).rename(tmp_path / "moved")
        (saved / name).symlink_to(moved)
        with pytest.raises(DataError, match=f"damaged dataset \\({name} is a link"):
            Dataset.load(saved)
        (saved / name).unlink()
        os.mkfifo(saved / name)
        with pytest.raises(DataError, match=f"damaged dataset \\({name} is not a regular file"):
            Dataset.load(saved)
        (saved / name).unlink()
        moved.rename(saved / name)
    assert Dataset.load(saved).name == "checkerboard"


def test_version_0_1_dataset_loads_with_a_warning() -> None:
    with pytest.warns(UncheckedWarning, match="has no checksums, as it was written by dgcf 0.1") as heard:
        dataset = Dataset.load(VERSION_0_1 / "dataset")
    assert len(heard) == 1
    assert "\n" not in str(heard[0].message)
    assert same(dataset, replace(load("checkerboard"), record=dataset.record))


def test_newer_format_is_refused(saved: Path) -> None:
    head = json.loads((saved / "dataset.json").read_text())
    (saved / "dataset.json").write_text(json.dumps(head | {"format": 99}))
    with pytest.raises(DataError, match="newer dgcf"):
        Dataset.load(saved)


def test_arrays_with_pickles_are_refused(saved: Path) -> None:
    np.save(saved / "train_indices.npy", np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="damaged dataset"):
        Dataset.load(saved)


def test_dataset_loads_with_numpy_only(saved: Path) -> None:
    """A machine that only trains has no table engine and no command line."""
    code = (
        "import sys\n"
        "for name in ('duckdb', 'pydantic', 'typer', 'rich', 'scipy', 'torch', 'pandas'): sys.modules[name] = None\n"
        "from dgcf.data import load\n"
        f"print(len(load({str(saved)!r}).train))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{len(load('checkerboard').train)}\n", done.stderr


def test_full_disk_leaves_no_files(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write itself fails, in a real process."""
    code = (
        "import resource, dgcf.data\n"
        "from dgcf.errors import DataError\n"
        "data = dgcf.data.load('planted')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: data.save('set')\n"
        "except DataError as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "cannot write set" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_failing_disk_keeps_the_old_dataset(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device; free some space"):
        load("planted").save(saved, overwrite=True)
    monkeypatch.undo()
    assert Dataset.load(saved).name == "checkerboard"
    assert [path.name for path in saved.parent.iterdir()] == ["set"]


def test_read_only_folder_is_refused(tmp_path: Path) -> None:
    # Root may write anywhere but into the kernel's own file systems.
    locked = Path("/sys") if os.geteuid() == 0 else tmp_path
    if os.geteuid() != 0:
        tmp_path.chmod(0o555)
    with pytest.raises(DataError, match=r"cannot write .*; (choose|free)"):
        load("checkerboard").save(locked / "set")
    tmp_path.chmod(0o755)


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("mine")
    with pytest.raises(DataError, match="is a file"):
        load("checkerboard").save(tmp_path / "set", overwrite=True)
    assert (tmp_path / "set").read_text() == "mine"


def test_concurrent_saves_of_the_same_dataset(tmp_path: Path) -> None:
    """Concurrent saves: the folder is complete at all times; one process succeeds, the others are refused."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from dgcf.data import load\n"
        "from dgcf.errors import DataError\n"
        "data = load('planted')\n"
        "Path(f'ready-{sys.argv[1]}').touch()\n"
        "while not Path('go').exists(): time.sleep(0.001)\n"
        "try: data.save('set', overwrite=sys.argv[2] == 'overwrite'); print('written')\n"
        "except DataError as problem: print('refused' if 'exists already' in str(problem) else problem)\n"
    )
    for mode in ("keep", "overwrite"):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(n), mode], cwd=tmp_path, stdout=subprocess.PIPE, text=True
            )
            for n in range(3)
        ]
        while len(list(tmp_path.glob("ready-*"))) < 3:
            assert all(process.poll() is None for process in processes)
        (tmp_path / "go").touch()
        answers = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
        assert answers == (["refused", "refused", "written"] if mode == "keep" else ["written"] * 3)
        assert same(Dataset.load(tmp_path / "set"), load("planted"))
        for path in [*tmp_path.glob("ready-*"), tmp_path / "go"]:
            path.unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["set"]

"""Settings, recipes and results with crafted content: one sentence that names the file, never a traceback."""

from __future__ import annotations

import json
import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgcf.config import SETTINGS_BYTES, parse_settings, read_toml
from dgcf.data.synthetic import planted
from dgcf.errors import ArtifactError, ConfigError, DataError, DgcfError
from dgcf.experiments.compare import Request, plan_models
from dgcf.experiments.reproduce.report.pages import Page, views
from dgcf.experiments.reproduce.results import Store
from dgcf.train import resolve
from tests.experiments.reproduce.workspace import Workspace, make_workspace

CRAFTED = [
    b"\xff\xfe\x00",
    b"x = " + b"[" * 100_000,
    b"x = " + b"{a = " * 100_000,
    b"x." + b"a." * 50_000 + b"a = 1",
    b"x = 1\0",
    b"x = " + b"9" * 5000,
    b"x = 99999999999999999999",
    b"x = 1e400",
    b"x = nan",
    b"just words",
    b"[x\n",
    b"#" * (SETTINGS_BYTES + 1),
]


def one_sentence(refusal: pytest.ExceptionInfo[DgcfError], *words: str) -> None:
    text = str(refusal.value)
    assert all(word in text for word in words), text
    assert len(text) < 1000
    assert "\n" not in text


@pytest.mark.parametrize("content", CRAFTED, ids=lambda content: str(content[:12]))
def test_crafted_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "best.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        read_toml(path)
    one_sentence(refusal, "best.toml")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs and devices")
def test_settings_come_from_a_regular_file_or_a_link_to_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("layers = 3")
    for path in (tmp_path / "fifo", tmp_path / "loop", tmp_path, "/dev/zero", "a\0b"):
        with pytest.raises(ConfigError) as refusal:
            read_toml(path)
        one_sentence(refusal, str(path).rpartition("/")[2])
    assert read_toml(tmp_path / "link") == {"layers": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 3", "model in"),
        ("preset = ['paper']", "preset in"),
        ("self = 1", "has no setting 'self'"),
        ("seed = 1", "has no setting 'seed'"),
        ("settings = {layers = 3}", "has no setting 'settings'"),
        ("layers = {a = {b = 1}}", "layers of model dgcf is {'a': {'b': 1}}, expected integer"),
        ("layers = 2020-01-01", "layers of model dgcf is datetime.date(2020, 1, 1), expected integer"),
        (f"readout = '{'x' * 10_000}'", "readout of model dgcf is 'xxx"),
        (f"{'x' * 10_000} = 1", "has no setting 'xxx"),
    ],
)
def test_settings_that_no_model_has_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "best.toml").write_text(text)
    with pytest.raises(ConfigError) as refusal:
        resolve("dgcf", settings=read_toml(tmp_path / "best.toml"))
    one_sentence(refusal, message)
    with pytest.raises(ConfigError) as refusal:
        plan_models(Request(["dgcf"], configs=[f"dgcf={tmp_path / 'best.toml'}"]), planted(30, 20))
    one_sentence(refusal)


def test_deeply_nested_word_is_text() -> None:
    deep = "[" * 100_000
    assert parse_settings([f"x={deep}"]) == {"x": deep}


# -- recipes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


@pytest.mark.parametrize("name", ["data", "first"])
@pytest.mark.parametrize(
    "content",
    [
        *CRAFTED[:5],
        b"title = 3",
        b"title = 'x'\ngrid = 3",
        b"title = 'x'\n[[grid]]\ndata = [[['small']]]",
        b"title = 'x'\n[[grid]]\ndata = ['small']\nself = 1",
        b"[small]\nname = 'x'\nself = 1",
        b"[small]\nfingerprints = 7",
        b"self = 1",
        b"title = 'x'\n[[grid]]\ndata = ['small']\nmodels = ['dgcf']\nsettings = ['paper']\nset = {self = 1}",
        b"title = 'x'\n[[grid]]\ndata = ['small']\nmodels = ['dgcf']\nsettings = ['paper']\nset = {layers = [[1]]}",
        b"title = 'x'\n[[grid]]\ndata = ['small']\nmodels = ['dgcf']\nsettings = ['paper']\nsweep = {layers = [{}]}",
    ],
    ids=lambda content: str(content[-20:]),
)
def test_crafted_recipe_is_refused(small: Workspace, name: str, content: bytes) -> None:
    (small.root / "recipes" / "reproduce" / f"{name}.toml").write_bytes(content)
    with pytest.raises(DgcfError) as refusal:
        _ = small.recipes
    one_sentence(refusal, f"{name}.toml")


@pytest.mark.parametrize("text", ["model = 3", "model = 'x'", "preset = []", "preset = 'x'", "self = 1", "layers = {}"])
def test_crafted_decided_settings_are_refused(small: Workspace, text: str) -> None:
    (small.root / "recipes" / "small").mkdir()
    (small.root / "recipes" / "small" / "lightgcn.toml").write_text(text)
    with pytest.raises(ConfigError) as refusal:
        _ = small.recipes
    one_sentence(refusal, "lightgcn.toml")


# -- results ----------------------------------------------------------------------------------------------------------

LINE: dict[str, Any] = {
    "experiment": "first",
    "key": "small:dgcf:paper:layers=1:seed=0",
    "kind": "trained",
    "fingerprint": "0" * 16,
    "data": {"name": "small"},
    "seconds": 1.0,
    "hardware": {"cpu": "x", "cores": 2},
    "settings": {},
    "validation": {"recall@20": 0.5},
    "best_epoch": 2,
    "test": {"train": {"recall@20": 0.5, "ndcg@20": 0.5}},
    "epochs": 4,
    "seed": 0,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("experiment", 3),
        ("key", []),
        ("kind", None),
        ("kind", ["trained"]),
        ("fingerprint", {}),
        ("data", "small"),
        ("seconds", "1"),
        ("hardware", None),
        ("settings", []),
        ("validation", {"recall@20": "0.5"}),
        ("best_epoch", None),
        ("test", {}),
        ("test", {"train": {"recall@20": 0.5}}),
        ("epochs", 1.5),
        ("seed", True),
        ("measures", 7),
    ],
)
def test_result_with_a_wrong_field_is_named(tmp_path: Path, field: str, value: Any) -> None:
    store = Store(tmp_path)
    store.path("first").write_text(json.dumps(LINE) + "\n")
    assert store.lines("first") == [LINE]
    store.path("first").write_text(f"{json.dumps(LINE)}\n{json.dumps({**LINE, field: value})}\n")
    with pytest.raises(ArtifactError, match=r"line 2 of .*first\.jsonl is no finished cell") as refusal:
        store.lines("first")
    one_sentence(refusal, "computed" if field == "kind" else field)


@pytest.mark.parametrize("line", [b"\xff", b"[" * 100_000, b"7", b"{}", b"nul\0", b'{"seconds": 1e400}', b"", b"NaN"])
def test_crafted_line_of_results_is_named(tmp_path: Path, line: bytes) -> None:
    store = Store(tmp_path)
    store.path("first").write_bytes(line + b"\n" + json.dumps(LINE).encode() + b"\n")
    with pytest.raises(ArtifactError, match=r"line 1 of .*first\.jsonl is no finished cell") as refusal:
        store.lines("first")
    one_sentence(refusal)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_results_in_a_fifo_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "first.jsonl")
    for use in (lambda: Store(tmp_path).lines("first"), lambda: Store(tmp_path).append("first", LINE)):
        with pytest.raises(DataError, match=r"first\.jsonl"):
            use()


def npz(**arrays: Any) -> bytes:
    with BytesIO() as file:
        np.savez_compressed(file, **arrays)
        return file.getvalue()


def zipped(content: bytes) -> bytes:
    with BytesIO() as file:
        with zipfile.ZipFile(file, "w") as members:
            members.writestr("train recall@20.npy", content)
        return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        npz(a=np.zeros(3, np.float32))[:-30],
        npz(a=np.zeros(3, np.float64)),
        npz(a=np.zeros((3, 3), np.float32)),
        npz(a=np.full(3, np.nan, np.float32)),
        npz(a=np.zeros(3, np.float32), b=np.zeros(4, np.float32)),
        npz(a=np.array([None])),
        zipped(b"no array"),
        zipped(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,), }\n"),
    ],
)
def test_crafted_values_of_users_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "ab.npz").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"ab\.npz does not hold the values of users") as refusal:
        Store(tmp_path).users("ab")
    one_sentence(refusal)


def test_values_of_users_round_trip(tmp_path: Path) -> None:
    values = {"user_idx": np.arange(3, dtype=np.int32), "train recall@20": np.ones(3, np.float32)}
    Store(tmp_path).keep_users("ab", values)
    stored = Store(tmp_path).users("ab")
    assert stored is not None
    assert all(np.array_equal(stored[name], values[name]) for name in values)


def test_result_that_cannot_be_shown_is_refused(small: Workspace) -> None:
    small.write("table1", 'title = "Statistics"\n[[grid]]\nkind = "statistics"\ndata = ["small"]\n')
    (small.root / "recipes" / "reproduce" / "paper.toml").write_text("")
    small.runner.run("table1")
    (line,) = small.lines("table1")
    line["hardware"] = {"cores": {}}
    small.store.path("table1").write_text(json.dumps(line) + "\n")
    (view,) = views(small.recipes, small.store, "table1")
    with pytest.raises(ArtifactError, match="results of table1 do not have the expected fields") as refusal:
        Page(view).files()
    one_sentence(refusal)

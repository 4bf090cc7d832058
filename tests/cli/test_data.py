"""``dgcf data`` in real processes, with real files."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from tests.cli.in_process import invoke
from tests.conftest import hear_ctrl_c

FIELDS = {"name", "users", "items", "train", "validation", "test", "density"}
FIELDS |= {"duplicates", "leaks", "fingerprint", "known_as", "warnings"}


def test_statistics_have_all_fields(dgcf_json: Any) -> None:
    answer = dgcf_json("data", "stats", "checkerboard")
    assert set(answer) >= FIELDS
    assert (answer["users"], answer["items"], answer["train"] + answer["validation"] + answer["test"]) == (60, 40, 1200)
    assert answer["known_as"] == "checkerboard"


@pytest.mark.data("deoscirec/ml-1m")
def test_statistics_of_the_authors_ml_1m(dgcf_json: Any) -> None:
    answer = dgcf_json("data", "stats", "deoscirec/ml-1m")
    sizes = {name: answer[name] for name in ("users", "items", "train", "validation", "test")}
    assert sizes == {"users": 4627, "items": 1840, "train": 148299, "validation": 21362, "test": 42347}


def test_thousand_unusual_ids_stay_unchanged(dgcf_json: Any, tmp_path: Path) -> None:
    users = [f"Ünal, Ş. {n}" for n in range(500)] + [str(2**63 + n) for n in range(500)]
    pairs = {(user, f'item {place * 7 % 31}; "{n}"') for n in range(3) for place, user in enumerate(users)}
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("user", "item"))
        writer.writerows(sorted(pairs))
    prepared = dgcf_json("data", "prepare", "in.csv", "--out", "set", cwd=tmp_path)
    assert prepared["users"] == 1000
    for name in ("out.csv", "out.parquet", "out.inter"):
        dgcf_json("data", "convert", "set", "--out", name, cwd=tmp_path)
        assert dgcf_json("data", "stats", name, cwd=tmp_path)["users"] == 1000
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        assert {(row["user"], row["item"]) for row in csv.DictReader(file)} == pairs
    dgcf_json("data", "convert", "set", "--out", "lists", cwd=tmp_path)
    lists = dgcf_json("data", "stats", "lists", cwd=tmp_path)
    assert [lists[name] for name in ("train", "validation", "test")] == [
        prepared[name] for name in ("train", "validation", "test")
    ]


@pytest.mark.data("deoscirec/ml-100k")
def test_converted_split_keeps_its_fingerprint(dgcf_json: Any, tmp_path: Path) -> None:
    written = dgcf_json("data", "convert", "deoscirec/ml-100k", "--out", "lists", cwd=tmp_path)
    again = dgcf_json("data", "stats", "lists", cwd=tmp_path)
    assert again["fingerprint"] == written["fingerprint"]
    assert again["known_as"] == "deoscirec/ml-100k"


def test_filters_report_removed_rows(dgcf: Any, tmp_path: Path) -> None:
    rows = [(user, item, 1 + (user + item) % 5) for user in range(30) for item in range(user % 10 + 1)]
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in [*rows, rows[0]]))
    done = dgcf("data", "prepare", "r.csv", "--min-rating", "2", "--user-core", "3", "--out", "s", cwd=tmp_path)
    assert done.returncode == 0
    kept = {(u, i) for u, i, r in rows if r >= 2}
    # rows[0] has rating 1, so its repeat goes with the threshold.
    assert f"rating >= 2: removed {len(rows) + 1 - len(kept)} rows" in done.stderr
    assert "repeated pairs" not in done.stderr
    strong = {u for u, _ in kept if sum(v == u for v, _ in kept) >= 3}
    weak = {u for u, _ in kept} - strong
    assert f"{len(weak)} users" in done.stderr
    assert "written to s" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stats", "nowhere.csv"], "there is no file nowhere.csv"),
        (["stats", "ml_100k"], "did you mean 'ml-100k'"),
        (["stats", "ragged.csv"], "line 3 of ragged.csv has 1 columns"),
        (["stats", "empty.csv"], "empty.csv is empty"),
        (["prepare", "good.csv", "--out", "full"], "exists already"),
        (["prepare", "good.csv", "--out", "x", "--ratios", "1,2"], "three"),
        (["prepare", "good.csv", "--out", "x", "--user-core", "-3"], "expected 0 or more"),
        (["prepare", "good.csv", "--out", "x", "--core-once"], "without a core"),
        (["prepare", "good.csv", "--out", "x", "--leave", "2"], "--split leave-k-out"),
        (["prepare", "good.csv", "--out", "x", "--split", "none", "--ratios", "0.8,0.1,0.1"], "leave it out"),
        (["prepare", "good.csv", "--out", "x", "--test", "good.csv", "--split", "random"], "ready-made"),
        (["prepare", "good.csv", "--out", "x", "--min-rating", "inf"], "not a finite number"),
        (["prepare", "good.csv", "--out", "x", "--delimiter", ""], "cannot be used"),
        (["prepare", "good.csv", "--out", "x", "--seed", "one"], "--seed"),
        (["prepare", "good.csv", "--out", "full", "--overwrite"], "holds other things (mine)"),
        (["convert", "good.csv", "--out", "good.csv", "--overwrite"], "is the input itself"),
        (["stats", "*.parquet"], "no file matches"),
        (["stats", "*.csv"], "not Parquet"),
        (["stats", ""], "empty"),
        (["nonsense"], "No such command"),
        (["prepare", "good.csv", "--out"], "Option '--out' requires an argument; see `dgcf data prepare --help`"),
        (["prepare", "good.csv", "--out", "x", "--ratings", "four"], "numbers separated by commas"),
        (["prepare", "good.csv", "--out", "x", "--split", "tmporal"], "did you mean 'temporal'"),
        (["prepare", "good.csv", "--out", "x", "--min-rating", "3"], "no rating column"),
        (["prepare", "good.csv", "--out", "/sys/x"], "cannot write /sys/x"),
        (["prepare", "good.csv", "--out", "x", "--test", "gone.csv"], "there is no file gone.csv"),
        (["prepare", "good.csv", "--out", "x", "--titles", "gone.csv"], "no titles file gone.csv"),
        (["convert", "good.csv", "--out", "x.xlsx"], "unknown format"),
        (["fetch", "netflix"], "`dgcf data list` names the known ones"),
    ],
)
def test_bad_input_is_refused_and_leaves_no_files(
    refused: Any, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "good.csv").write_text("user,item\na,1\na,2\nb,1\n")
    (tmp_path / "ragged.csv").write_text("user,item\na,1\nb\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert sentence in refused("data", *words, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_user_only_in_test_is_reported(dgcf_json: Any, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("user,item\na,1\na,2\nb,1\n")
    (tmp_path / "test.csv").write_text("user,item\na,3\nz,1\n")
    answer = dgcf_json("data", "stats", ".", cwd=tmp_path)
    assert answer["cold"]["users"] == 1
    assert any("1 users have no training pair" in warning for warning in answer["warnings"])


def test_ctrl_c_leaves_no_partial_files(tmp_path: Path) -> None:
    with (tmp_path / "big.csv").open("w") as file:
        file.write("user,item\n")
        file.writelines(f"user-{n * 7919 % 99991},item-{n * 104729 % 49999}\n" for n in range(1_500_000))
    spill = tmp_path / "spill"
    spill.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dgcf", "data", "prepare", "big.csv", "--out", "set"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(spill)},
        preexec_fn=hear_ctrl_c,
    )
    while not any(spill.iterdir()):  # the table engine's own folder: reading has begun
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode == 130, (process.returncode, err)
    assert "stopped by the keyboard" in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["big.csv", "spill"]


@pytest.mark.parametrize("verb", ["", "data", "data list", "data fetch", "data stats", "data prepare", "data convert"])
def test_help_has_an_example(dgcf: Any, verb: str) -> None:
    done = dgcf(*verb.split(), "--help", env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.returncode == 0
    if " " in verb:
        assert f"Example: dgcf {verb}" in done.stdout


def test_list_has_every_known_dataset(dgcf_json: Any) -> None:
    names = {row["name"] for row in dgcf_json("data", "list")["datasets"]}
    assert {"ml-100k", "ml-1m", "paper/ml-100k", "lightgcn/gowalla", "checkerboard", "planted"} <= names
    assert len([name for name in names if name.startswith("deoscirec/")]) == 4


def test_unwritable_result_is_a_failure(dgcf: Any) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dgcf", "data", "stats", "checkerboard", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the result: No space left on device; free some space.\n"


def test_pipe_without_writer_is_refused(refused: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused("data", "stats", tmp_path / "pipe", timeout=20)


def test_detected_format_is_shown(dgcf: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who;item;rating\n1;2;3\n")
    done = dgcf("data", "stats", "a.csv", "--user-col", "who", cwd=tmp_path)
    assert "read as csv, cut at ';', with a header: item = 'item', rating = 'rating', user = 'who'" in done.stderr


def test_counts_of_one_and_tables_of_many_columns_are_worded_well(dgcf: Any, tmp_path: Path) -> None:
    header = "user,item,title,c3,c4,c5,c6,c7,c8"
    rows = ["a,x,X,,,,,,", "a,x,X!,,,,,,", "b,x,X,,,,,,", "b,y,Y,,,,,,", "c,z,Z,,,,,,"]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]) + "\n")
    done = dgcf("data", "stats", "a.csv", "--where", "user <> 'c'", cwd=tmp_path)
    assert "where user <> 'c': removed 1 row, 1 user, 1 item\n" in done.stderr
    assert "titles of 2 items from 'title'; 1 item has several" in done.stderr
    done = dgcf("data", "stats", "a.csv", "--user-col", "who", cwd=tmp_path)
    assert "it has user, item, title, c3, c4, c5, c6, c7, …; correct --user-col" in done.stderr


def test_conversion_notes_that_the_order_is_lost(tmp_path: Path) -> None:
    lists = tmp_path / "lists.txt"
    lists.write_text("1 5 3 4\n2 3 9 1\n3 4 1 5\n")
    for name, more in (("kept", ["--keep-order"]), ("plain", [])):
        invoke("data", "prepare", lists, "--format", "adjacency", *more, "--out", tmp_path / name)
    for source, target, lost in (("kept", "a.csv", True), ("kept", "lines", False), ("plain", "b.csv", False)):
        words = ["data", "convert", str(tmp_path / source), "--out", str(tmp_path / target)]
        done = CliRunner().invoke(application(), words)
        assert done.exit_code == 0
        assert ("the order of each user's pairs is not written" in done.stderr) == lost

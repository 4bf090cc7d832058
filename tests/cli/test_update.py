"""``dgcf update``: new rows into a run or a saved recommender, in this process and as a killed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dgcf import Recommender
from dgcf.cli import application
from dgcf.data import Dataset
from dgcf.recommend import load
from dgcf.train import Run
from dgcf.train.run.checkpoint import Checkpoint
from tests.cli.in_process import invoke, refusal
from tests.cli.processes import command

SETTINGS = ("--set", "dim=8", "--set", "batch_size=64", "--set", "learning_rate=0.01", "--set", "patience=2")
DAY, NIGHTS = 86_400, 3
HEADER = "user,item,timestamp\n"
ROW = f"{HEADER}u1,i1,5\nu1,new,5\n"


def night(number: int) -> list[str]:
    """The rows of a night: pairs of known users, and a new user with known items and a new one."""
    at = 1_700_000_000 + (200 + number) * DAY
    known = [f"u{(7 * number + n) % 60},i{(11 * number + 3 * n) % 40},{at + n}" for n in range(12)]
    new = [f"new{number},i{(number + n) % 40},{at + 100 + n}" for n in range(6)]
    return [*known, *new, f"new{number},fresh{number},{at + 200}"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a prepared dataset that has times, a run on it, and the rows of three nights."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    groups = {f"u{user}": user % 4 for user in range(60)}
    lines = []
    for number in range(1500):
        user = f"u{rng.integers(60)}"
        item = groups[user] * 10 + rng.integers(10) if rng.random() < 0.8 else rng.integers(40)
        lines.append(f"{user},i{item},{1_700_000_000 + number * 10_000}\n")
    (folder / "old.csv").write_text(HEADER + "".join(lines))
    for number in range(NIGHTS):
        (folder / f"night{number}.csv").write_text(HEADER + "\n".join(night(number)) + "\n")
    invoke("data", "prepare", folder / "old.csv", "--keep-times", "--out", folder / "old")
    words = ("--set", "epochs=4", "--set", "evaluate_every=1", "--no-baselines", "--device", "cpu")
    invoke("train", folder / "old", *SETTINGS, *words, "--out", folder / "run")
    return folder


@pytest.fixture(scope="module")
def once(shop: Path) -> tuple[Path, dict[str, Any]]:
    """The run after the first night, and what updating it printed."""
    answer = invoke("update", shop / "run", shop / "night0.csv", "--scratch", "--out", shop / "first")
    return shop / "first", answer


def pairs_of(dataset: Dataset) -> set[tuple[str, str]]:
    """All pairs of all splits, by raw ids."""
    return {
        (dataset.users.texts[user], dataset.items.texts[item])
        for split in ("train", "validation", "test")
        for user, item in zip(dataset.split(split).user_idx, dataset.split(split).indices, strict=True)
    }


def test_counts_and_metric_before_after_and_from_scratch(shop: Path, once: tuple[Path, dict[str, Any]]) -> None:
    folder, answer = once
    before, after = Dataset.load(shop / "old"), Dataset.load(folder / "dataset")
    rows = {tuple(line.split(",")[:2]) for line in night(0)}
    assert answer["updated"] is True
    assert answer["new_pairs"] == len(rows - pairs_of(before))
    assert answer["known_pairs"] == len(rows & pairs_of(before))
    assert (answer["new_users"], answer["new_items"], answer["expired_pairs"]) == (1, 1, 0)
    assert pairs_of(after) == pairs_of(before) | rows
    counts = ("new_pairs", "known_pairs", "new_users", "new_items", "expired_pairs", "held_out", "held_out_by")
    assert invoke("data", "stats", folder / "dataset")["updates"] == [{name: answer[name] for name in counts}]
    assert invoke("data", "stats", shop / "old")["updates"] == []
    assert answer["held_out"] == len(after.validation) > 0
    for part in (answer["update"]["before"], answer["update"]["after"], answer["scratch"]["validation"]):
        assert 0 <= part[answer["metric"]] <= 1
    assert answer["scratch"]["epochs"] > 0


def test_curves_are_drawn_of_a_training_and_not_of_the_two_epochs_of_an_update(
    shop: Path, once: tuple[Path, dict[str, Any]]
) -> None:
    assert (shop / "run" / "curves.png").is_file()
    assert not (once[0] / "curves.png").exists()


def test_known_ids_keep_their_indices(shop: Path, once: tuple[Path, dict[str, Any]]) -> None:
    before, after = Dataset.load(shop / "old"), Dataset.load(once[0] / "dataset")
    assert after.users.texts[: before.n_users] == before.users.texts
    assert after.items.texts[: before.n_items] == before.items.texts
    assert after.users.texts[before.n_users :] == ["new0"]


def test_three_updates_give_a_run_like_any_other(shop: Path, tmp_path: Path) -> None:
    run = shop / "run"
    for number in range(NIGHTS):
        answer = invoke(
            "update", run, shop / f"night{number}.csv", "--held-out", "0.3", "--out", tmp_path / f"{number}"
        )
        assert answer["held_out"] > 0, answer
        run = tmp_path / f"{number}"
    assert Run.open(run).finished
    assert {f"new{number}" for number in range(NIGHTS)} <= set(load(run).users)
    answer = invoke("recommend", run, "--user", "new2", "-k", "3", "--why")
    assert len(answer["recommendations"]) == 3
    assert invoke("evaluate", run, "--split", "validation")["users_evaluated"] > 0
    assert invoke("explain", run, "--user", "new0", "--item", "i5")["user"] == "new0"
    invoke("export", run, "--out", tmp_path / "shop.dgcf")
    assert "new1" in list(load(tmp_path / "shop.dgcf").users)


def test_recommender_file_is_updated_as_its_run(shop: Path, tmp_path: Path) -> None:
    load(shop / "run").save(tmp_path / "shop.dgcf")
    # The file does not know the order of its pairs, so that only the run could favour recent ones.
    words = (shop / "night0.csv", "--epochs", "1", "--held-out", "0", "--set", "recency=0")
    invoke("update", tmp_path / "shop.dgcf", *words, "--out", tmp_path / "file")
    invoke("update", shop / "run", *words, "--out", tmp_path / "run")
    a, b = load(tmp_path / "file").snapshot, load(tmp_path / "run").snapshot
    np.testing.assert_array_equal(a.user_rows, b.user_rows)
    np.testing.assert_array_equal(a.item_rows, b.item_rows)
    np.testing.assert_array_equal(a.train.keys(), b.train.keys())


def test_python_gives_the_same_model(shop: Path, once: tuple[Path, dict[str, Any]]) -> None:
    parent = load(shop / "run")
    updated = parent.update(shop / "night0.csv")
    assert isinstance(updated, Recommender)
    assert "new0" not in list(parent.users)
    np.testing.assert_array_equal(updated.snapshot.user_rows, load(once[0]).snapshot.user_rows)
    np.testing.assert_array_equal(updated.snapshot.item_rows, load(once[0]).snapshot.item_rows)
    assert updated.recommend("new0", k=3)["item"] == load(once[0]).recommend("new0", k=3)["item"]


def test_window_drops_the_pairs_before_it(shop: Path, tmp_path: Path) -> None:
    answer = invoke("update", shop / "run", shop / "night0.csv", "--window", "100d", "--out", tmp_path / "run")
    dataset = Dataset.load(tmp_path / "run" / "dataset")
    assert answer["expired_pairs"] > 0
    times = np.concatenate([split.time for split in (dataset.train, dataset.validation) if split.time is not None])
    assert times.max() - times.min() <= 100 * DAY
    assert len(times) + answer["expired_pairs"] == len(pairs_of(Dataset.load(shop / "old"))) + answer["new_pairs"]


def test_only_folding_in_keeps_the_trained_weights(shop: Path, tmp_path: Path) -> None:
    invoke("update", shop / "run", shop / "night0.csv", "--epochs", "0", "--out", tmp_path / "run")
    old, new = (Run.open(path) for path in (shop / "run", tmp_path / "run"))
    before, after = (run.best().part("model")["layer0"] for run in (old, new))
    users, more = (run.about["dataset"]["n_users"] for run in (old, new))
    np.testing.assert_array_equal(after[:users], before[:users])
    np.testing.assert_array_equal(after[more : more + len(before) - users], before[users:])


DEFAULTS = ("--set", "dim=4", "--set", "epochs=1", "--set", "blend=none", "--no-baselines")


def test_default_training_continues_with_the_settings_of_an_update(shop: Path, tmp_path: Path) -> None:
    invoke("train", shop / "old", *DEFAULTS, "--set", "l2=0.002", "--out", tmp_path / "run")
    for number in range(2):  # of the second update, they are those of the first
        source = tmp_path / ("first" if number else "run")
        target = tmp_path / ("second" if number else "first")
        settings = invoke("update", source, shop / f"night{number}.csv", "--out", target)["settings"]
        assert (settings["learning_rate"], settings["l2"], settings["recency"]) == (0.008, 0.002, 0.5)
    plain = ("--preset", "plain", "--set", "dim=4", "--set", "epochs=1", "--model", "bpr-mf")
    invoke("train", shop / "old", *plain, "--out", tmp_path / "plain")
    settings = invoke("update", tmp_path / "plain", shop / "night0.csv", "--out", tmp_path / "more")["settings"]
    assert (settings["learning_rate"], settings["l2"], settings["recency"]) == (0.001, 0.001, 0.0)


def test_update_without_an_order_draws_all_pairs_alike(shop: Path, tmp_path: Path) -> None:
    invoke("data", "prepare", shop / "old.csv", "--out", tmp_path / "untimed")
    invoke("train", tmp_path / "untimed", *DEFAULTS, "--out", tmp_path / "run")
    invoke("train", shop / "old", *DEFAULTS, "--out", tmp_path / "timed")
    invoke("update", tmp_path / "timed", shop / "night0.csv", "--out", tmp_path / "first")
    load(tmp_path / "first").save(tmp_path / "shop.dgcf")  # of an update that favoured recent pairs
    for source in ("run", "shop.dgcf"):
        answer = invoke("update", tmp_path / source, shop / "night1.csv", "--out", tmp_path / f"updated-{source}")
        assert answer["settings"]["recency"] == 0.0
        assert answer["new_pairs"] > 0


def test_recency_that_the_training_had_is_kept(shop: Path, tmp_path: Path) -> None:
    invoke("data", "prepare", shop / "old.csv", "--keep-order", "--keep-times", "--out", tmp_path / "old")
    invoke("train", tmp_path / "old", *DEFAULTS, "--set", "recency=0.8", "--out", tmp_path / "run")
    answer = invoke("update", tmp_path / "run", shop / "night0.csv", "--out", tmp_path / "first")
    assert answer["settings"]["recency"] == 0.8
    load(tmp_path / "run").save(tmp_path / "shop.dgcf")
    said = refusal("update", tmp_path / "shop.dgcf", shop / "night0.csv", "--out", tmp_path / "second")
    assert "recency needs the order of all pairs" in said


def test_solved_model_is_solved_again(shop: Path, tmp_path: Path) -> None:
    invoke("train", shop / "old", "--model", "ease", "--out", tmp_path / "ease")
    answer = invoke("update", tmp_path / "ease", shop / "night0.csv", "--out", tmp_path / "run")
    assert answer["update"]["after"]
    assert "fresh0" in list(load(tmp_path / "run").items)


def test_nothing_new_says_so_and_writes_nothing(shop: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        application(), ["update", str(shop / "run"), str(shop / "old.csv"), "--out", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.stderr
    assert "nothing to update" in done.stdout
    assert not (tmp_path / "run").exists()
    assert invoke("update", shop / "run", shop / "old.csv", "--out", tmp_path / "run")["updated"] is False


def test_export_without_events_says_so_and_writes_nothing(shop: Path, tmp_path: Path) -> None:
    columns = {"user": pa.string(), "item": pa.string(), "timestamp": pa.float64()}
    columns |= {"kind": pa.string(), "weight": pa.float64(), "seq": pa.int64()}
    pq.write_table(pa.schema(list(columns.items())).empty_table(), tmp_path / "events.parquet")
    done = CliRunner().invoke(
        application(), ["update", str(shop / "run"), str(tmp_path / "events.parquet"), "--out", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.stderr
    assert "nothing to update: there are no events" in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        pytest.param("who,what\nu1,i1\n", (), "--user-col", id="columns differ"),
        pytest.param("", (), "empty", id="empty file"),
        pytest.param("user,item,timestamp\n", (), "no ", id="header alone"),
        pytest.param(ROW, ("--window", "a year"), "such as 365d", id="unknown window"),
        pytest.param(ROW, ("--window", "0d"), "above 0", id="window of nothing"),
        pytest.param(ROW, ("--held-out", "1.5"), "below 1", id="held out too much"),
        pytest.param(ROW, ("--epochs", "-1"), "--epochs is -1", id="negative epochs"),
        pytest.param(ROW, ("--set", "epochs=3"), "use --epochs", id="epochs as setting"),
        pytest.param(ROW, ("--set", "dim=16"), "keeps the model", id="another size"),
        pytest.param(ROW, ("--out", "{shop}/run"), "choose another --out", id="taken"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    shop: Path, tmp_path: Path, text: str, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "rows.csv").write_text(text)
    out = () if "--out" in words else ("--out", tmp_path / "run")
    sentence = refusal("update", shop / "run", tmp_path / "rows.csv", *(w.format(shop=shop) for w in words), *out)
    assert told in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_ids_of_another_type_are_refused(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pairs = [(user, item) for user in range(20) for item in range(12) if (user + item) % 3]
    pd.DataFrame(pairs, columns=["user", "item"]).to_parquet(tmp_path / "old.parquet")
    invoke("train", tmp_path / "old.parquet", "--model", "popularity", "--out", tmp_path / "run")
    (tmp_path / "new.csv").write_text("user,item\nanna,3\n")
    sentence = refusal("update", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "new")
    assert "'anna'" in sentence
    assert "whole numbers" in sentence


def test_parent_that_cannot_continue_is_refused(shop: Path, tmp_path: Path) -> None:
    unfinished = tmp_path / "unfinished"
    shutil.copytree(shop / "run", unfinished)
    for name in ("last.safetensors", "best.safetensors", "blend.safetensors", "recommender.dgcf"):
        (unfinished / name).unlink(missing_ok=True)
    out = ("--out", tmp_path / "run")
    assert "--resume" in refusal("update", unfinished, shop / "night0.csv", *out)
    invoke("train", shop / "old", "--model", "ngcf", "--set", "dim=4", "--set", "epochs=1", "--out", tmp_path / "ngcf")
    load(tmp_path / "ngcf").save(tmp_path / "ngcf.dgcf")
    assert "give the run folder" in refusal("update", tmp_path / "ngcf.dgcf", shop / "night0.csv", *out)
    assert "leave it out" in refusal("update", tmp_path / "ngcf.dgcf", shop / "night0.csv", "--data", "x", *out)
    assert not (tmp_path / "run").exists()


def test_rows_of_something_else_are_warned_of(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item,timestamp\nx,i1,1750000000\nx,i2,1750000000\n")
    words = ["update", str(shop / "run"), str(tmp_path / "rows.csv"), "--epochs", "0", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.stderr
    assert "warning: none of the 1 users of the new rows is known" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")
def test_killed_update_is_resumed_to_the_same_bytes(shop: Path, tmp_path: Path) -> None:
    words = (shop / "night0.csv", "--epochs", "25", "--set", "learning_rate=1e-5", "--device", "cpu")
    invoke("update", shop / "run", *words, "--out", tmp_path / "whole")
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        command("update", shop / "run", *words, "--out", killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not killed.exists() and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert Run.open(killed).metrics(), "the folder appears with the start of the training in it"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    if not Run.open(killed).finished:
        assert "--resume" in refusal("update", killed, shop / "night1.csv", "--out", tmp_path / "x")
    invoke("train", "--resume", killed, "--device", "cpu")
    for name in ("best.safetensors", "metrics.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_interrupted_run_says_so_when_it_is_used(shop: Path, tmp_path: Path) -> None:
    run, words = tmp_path / "run", ("--set", "epochs=3", "--set", "blend=none", "--no-baselines", "--device", "cpu")
    invoke("train", shop / "old", *SETTINGS, *words, "--set", "evaluate_every=1", "--out", run)
    last = Checkpoint.load(run / "last.safetensors")
    Checkpoint(last.tensors, {**last.about, "epoch": 3, "done": 1}).save(run / "last.safetensors")
    (run / "recommender.dgcf").unlink()
    for verb in (("recommend", "--user", "u1"), ("evaluate",), ("export", "--out", str(tmp_path / "x.dgcf"))):
        for _ in range(2):  # also when the recommender has been written
            done = CliRunner().invoke(application(), [verb[0], str(run), *verb[1:], "--json"])
            assert done.stderr.count("was stopped before its training ended, after 2 of at most 3 epochs") == 1
            (tmp_path / "x.dgcf").unlink(missing_ok=True)
    invoke("train", "--resume", run)
    done = CliRunner().invoke(application(), ["recommend", str(run), "--user", "u1"])
    assert "was stopped" not in done.stderr

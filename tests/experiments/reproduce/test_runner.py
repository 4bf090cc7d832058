"""Run cells once, record them, resume after a kill, and need few libraries."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dgcf.experiments.reproduce.__main__ import main
from dgcf.experiments.reproduce.datasets import open_dataset
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.runner import Runner
from dgcf.train import train
from tests.conftest import PROJECT, data_home
from tests.experiments.reproduce.workspace import QUICK, Workspace, make_workspace

LONG = f"""
title = "Long enough to be killed in"
[[grid]]
data = ["small"]
models = ["dgcf"]
settings = ["paper"]
seeds = 3
set = {{ {QUICK.replace("epochs = 4", "epochs = 30")}, patience = 0 }}
sweep = {{ layers = [1, 2] }}
"""


def test_line_holds_settings_metrics_and_measures_of_training(small: Workspace) -> None:
    tally = small.runner.run("first", only="layers=2:seed=1")
    (key,) = tally.done
    assert key.endswith("layers=2:seed=1")
    (line,) = small.lines("first")
    (cell,) = small.recipes.experiment("first").matching("layers=2:seed=1")
    assert (line["key"], line["fingerprint"], line["seed"]) == (key, cell.fingerprint, 1)
    assert cell.recipe is not None
    assert line["settings"] == cell.recipe.settings()
    dataset = open_dataset(cell.source, 0, small.root / "data")
    trained = train(dataset, cell.recipe, seed=1, device="cpu", validate=lambda _: {"recall@20": 0.0, "ndcg@20": 0.0})
    assert line["data"]["fingerprint"] == dataset.fingerprint
    assert line["epochs"] == trained.epochs == 4
    assert {*line["test"]} == {"train", "train+validation"}
    assert line["test"]["train"]["recall@20"] < line["test"]["train+validation"]["recall@20"]
    assert set(line["hardware"]) == {"device", "cpu", "cores", "torch"}
    # layers=2 is wanted by the second experiment as well, with more measured
    measures = line["measures"]
    assert set(measures) == {"curve", "groups", "gates", "gate-histogram", "pattern", "smoothness"}
    assert measures["curve"]["epochs"] == [2, 4]
    assert max(measures["curve"]["validation"]) == pytest.approx(line["validation"]["recall@20"], abs=1e-6)
    assert line["n_users"] == sum(group["users"] for group in measures["groups"])
    assert len(measures["gates"]["layers"]) == 2
    counts = np.array(measures["gate-histogram"]["users"]["counts"])
    assert counts.sum() == np.count_nonzero(dataset.train.user_degrees)
    patch = np.array(measures["pattern"]["layers"])
    assert patch.shape == (2, 30, 30)
    assert patch.max() == 1


def test_no_cell_is_trained_twice_within_or_across_experiments(small: Workspace) -> None:
    first = small.runner.run("first")
    assert len(first.done) == 2 * 2 + 1
    stamp = small.store.path("first").read_bytes()
    again = small.runner.run("first")
    assert (again.done, sorted(again.known)) == ([], sorted(first.done))
    assert small.store.path("first").read_bytes() == stamp
    second = small.runner.run("second")
    assert (second.done, second.known, len(second.taken_over)) == ([], [], 2)
    for line in small.lines("second"):
        (twin,) = (one for one in small.lines("first") if one["key"] == line["key"].replace("second", "first"))
        assert line["experiment"] == "second"
        assert line["test"] == twin["test"]
        assert line["seconds"] == twin["seconds"]
        assert line["measures"] == twin["measures"]
    small.store.path("first").unlink()
    assert len(small.runner.run("first", only="layers=2").taken_over) == 2
    assert len(small.runner.run("first", only="layers=2").known) == 2  # taken over once
    assert [line["measures"] for line in small.lines("first")] == [{}, {}]  # it asks for none of them


def test_one_training_with_two_names_is_recorded_under_both(tmp_path: Path) -> None:
    grid = f'[[grid]]\ndata = ["small"]\nmodels = ["dgcf"]\nset = {{ {QUICK}, layers = 1 }}\n'
    workspace = make_workspace(tmp_path, two=f'title = "Two"\n{grid}settings = ["paper", "tuned"]\n')
    (tmp_path / "recipes" / "small").mkdir()
    (tmp_path / "recipes" / "small" / "dgcf.toml").write_text('model = "dgcf"\npreset = "paper"\n')
    tally = workspace.runner.run("two", seeds=1)
    lines = workspace.lines("two")
    assert [line["settings_from"] for line in lines] == ["paper", "tuned"]
    assert len(tally.done) == len({line["key"] for line in lines}) == 2
    assert len({line["fingerprint"] for line in lines}) == len({line["seconds"] for line in lines}) == 1


def test_changed_settings_change_the_fingerprint(small: Workspace) -> None:
    small.runner.run("first", only="layers=1:seed=0")
    before = {cell.key: cell.fingerprint for cell in small.recipes.experiment("first").cells}
    text = (small.root / "recipes" / "reproduce" / "first.toml").read_text()
    small.write(
        "first", text.replace('settings = ["paper"]\n', 'settings = ["paper"]\n', 1).replace("dim = 8", "dim = 4")
    )
    after = {cell.key.replace("dim=4", "dim=8"): cell.fingerprint for cell in small.recipes.experiment("first").cells}
    trained = [key for key in before if "dgcf" in key]
    assert all(before[key] != after[key] for key in trained)
    assert small.runner.run("first", only="layers=1:seed=0").known == []


def test_all_runs_every_experiment_and_reports_blocked_cells(small: Workspace) -> None:
    tally = small.runner.run("all", seeds=1)
    key = "small:dgcf:paper:epochs=4:evaluate_every=2:dim=8:batch_size=256:epsilon=0.02:layers=2:seed=0"
    assert {f"first {key}", f"second {key}"} < {*tally.done}  # of two experiments and one key
    assert len(tally.done) == 2 + 1 + 1
    why = "there is no small/lightgcn.toml among the recipes; run `dgcf reproduce tuning` first"
    assert tally.missing == {"third small:lightgcn:tuned:seed=0": why}


def test_no_cell_starts_if_the_limit_is_zero(small: Workspace) -> None:
    tally = small.runner.run("first", limit=0.0)
    assert tally.done == []
    assert set(tally.missing.values()) == {"there was no time left"}
    assert not small.store.path("first").exists()


def test_diverged_training_does_not_stop_the_others(tmp_path: Path) -> None:
    text = LONG.replace("seeds = 3", "seeds = 1").replace("epochs = 30", "epochs = 5").replace("dgcf", "dgcf-chp")
    workspace = make_workspace(
        tmp_path, long=text.replace("layers = [1, 2]", "layers = [60, 1], learning_rate = [10.0]")
    )
    tally = workspace.runner.run("long")
    (why,) = tally.missing.values()
    assert "is not finite in epoch" in why
    assert len(tally.done) == 1


def test_results_survive_a_kill_and_work_resumes(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, long=LONG)
    process = workspace.start("long")
    assert process.stderr is not None
    while "layers=1:seed=1" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = workspace.store.path("long").read_bytes()
    done = workspace.store.lines("long")
    assert 2 <= len(done) < 6
    workspace.store.path("long").write_bytes(kept + b'{"experiment": "long", "key": "torn')  # as a full disk leaves it
    assert workspace.store.lines("long") == done
    second = workspace.start("long", "--only", "layers=1")
    stdout, _ = second.communicate(timeout=120)
    tally = json.loads(stdout)
    assert second.returncode == 0
    assert sorted(tally["known"] + tally["done"]) == [
        cell.key for cell in workspace.recipes.experiment("long").cells[:3]
    ]
    assert tally["known"] == [line["key"] for line in done if "layers=1" in line["key"]]
    assert workspace.store.path("long").read_bytes().startswith(kept)
    assert len({line["key"] for line in workspace.lines("long")}) == len(workspace.lines("long"))


def test_training_needs_only_numpy_scipy_torch_and_safetensors(small: Workspace) -> None:
    script = f"""
        import sys
        for name in ("duckdb", "pydantic", "typer", "rich", "pandas", "matplotlib", "optuna", "implicit"):
            sys.modules[name] = None
        from dgcf.experiments.reproduce.__main__ import main
        sys.exit(main(["first", "--seeds", "1", *{small.words!r}]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["done"]) == 3
    with_all = make_workspace(small.root / "again")
    with_all.runner.run("first", seeds=1)
    for one, other in zip(small.lines("first"), with_all.lines("first"), strict=True):
        assert one["fingerprint"] == other["fingerprint"]
        assert one.get("test") == other.get("test")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("frist",), "there is no experiment 'frist'; did you mean 'first'?"),
        (("first", "--only", "layers=9"), "first has no cell 'layers=9'"),
        (("first", "--seeds", "0"), "seeds is 0, expected a whole number from 1 on"),
        (("first", "--only", "^"), "only is '^', which is every cell; give part of a name, or leave it out"),
        (("first", "--seeds", "9"), "seeds is 9, and first has 2 at most; request fewer, or write seeds = 9 into"),
        (("first", "--device", "tpu"), "device 'tpu' cannot be used here"),
        (
            ("all", "--only", "nothing"),
            "no experiment has a cell 'nothing'; give any part of a cell's name, such as sm",
        ),
    ],
    ids=str,
)
def test_main_refuses_wrong_arguments_in_one_sentence(
    small: Workspace, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert main([*small.words, *words]) == 1
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith(f"error: {sentence}")
    assert stderr.count("\n") == 1
    assert not small.store.folder.exists()


@pytest.mark.slow
@pytest.mark.data("deoscirec/ml-100k")
def test_recorded_cell_is_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ML-100K, trained anew on this machine: within three seed deviations of what is recorded."""
    monkeypatch.setenv("DGCF_DATA_HOME", str(data_home()))
    recipes, store = Recipes.read(PROJECT / "recipes"), Store(tmp_path)
    pattern = "ml-100k:dgcf:paper:seed="
    recorded = [line for line in Store(PROJECT / "results").lines("table1") if line["key"].startswith(pattern)]
    assert len(recorded) >= 3
    assert Runner(recipes, store, device="cpu").run("table1", only=f"{pattern}0").missing == {}
    (again,) = store.lines("table1")
    for mask, metric in product(("train", "train+validation"), ("recall@20", "ndcg@20")):
        values = [line["test"][mask][metric] for line in recorded]
        (first,) = (line["test"][mask][metric] for line in recorded if line["seed"] == 0)
        assert abs(again["test"][mask][metric] - first) <= 3 * np.std(values, ddof=1)

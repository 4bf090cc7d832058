"""Several processes over one folder of results: every cell once, whoever dies, and as one process alone has it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from dgcf.experiments.progress import Progress
from dgcf.experiments.reproduce.cells import Cell
from dgcf.experiments.reproduce.execute import estimate
from dgcf.experiments.reproduce.results import CLAIMS
from tests.experiments.reproduce.workspace import QUICK, Workspace, make_workspace, trial_grid

GRID = f"""
[[grid]]
data = ["small"]
settings = ["paper"]
set = {{ {QUICK.partition(", epsilon")[0].replace("epochs = 4", "epochs = 8")}, patience = 0 }}
"""
MANY = f"""
title = "Trained, computed and compared"
{GRID}
models = ["dgcf", "lightgcn", "bpr-mf", "dgcf-la"]
[[grid]]
kind = "statistics"
data = ["small"]
[[grid]]
kind = "comparison"
data = ["small"]
models = ["lightgcn"]
settings = ["paper"]
"""
SAME = f"""
title = "The same once more, with more measured"
{GRID}
models = ["lightgcn"]
measures = ["curve"]
"""
TRIED = 'title = "Tuning"' + trial_grid(
    '["bpr-mf", "lightgcn"]',
    "epochs = 20, evaluate_every = 2, dim = 8, batch_size = 256",
    "[{}, { learning_rate = 0.05 }, { learning_rate = 1e-6 }]",
)
TUNED = """
title = "With the decided settings"
[[grid]]
data = ["small"]
models = ["bpr-mf", "lightgcn"]
settings = ["tuned"]
"""
OF_THE_CLOCK = ("seconds", "seconds_per_epoch", "hardware")


def lines_by_name(workspace: Workspace) -> dict[tuple[str, str], dict[str, Any]]:
    """Return all lines by name without the fields that depend on time; no name occurs twice."""
    lines = [line for name in workspace.recipes.experiments for line in workspace.lines(name)]
    by_name = {(line["experiment"], line["key"]): line for line in lines}
    assert len(by_name) == len(lines)
    return {
        name: {key: value for key, value in line.items() if key not in OF_THE_CLOCK} for name, line in by_name.items()
    }


def finish(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Return what each process prints at its end."""
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [json.loads(out) for out, _ in said]


def cells(workspace: Workspace, only: str, name: str = "many") -> list[Cell]:
    return workspace.recipes.experiment(name).matching(only)


class Until(Progress):
    """Sets an event at the first note that has some words in it."""

    def __init__(self, words: str) -> None:
        self.words, self.event = words, threading.Event()

    def note(self, text: str) -> None:
        if self.words in text:
            self.event.set()


# -- who does what ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the lines that a single process records."""
    alone = make_workspace(tmp_path_factory.mktemp("alone"), many=MANY, same=SAME)
    assert alone.runner.run("all").missing == {}
    return lines_by_name(alone)


@pytest.mark.parametrize("processes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_processes_together_record_every_cell_once_with_equal_results(
    tmp_path: Path, lone: dict[tuple[str, str], dict[str, Any]], processes: int
) -> None:
    shared = make_workspace(tmp_path, many=MANY, same=SAME)
    tallies = finish([shared.start("all") for _ in range(processes)])
    assert lines_by_name(shared) == lone
    names = sorted(f"{experiment} {key}" for experiment, key in lines_by_name(shared))
    recorded = [name for tally in tallies for name in tally["done"] + tally["taken_over"]]
    assert sorted(recorded) == names
    assert all(sorted(tally["known"] + tally["taken_over"] + tally["done"]) == names for tally in tallies)
    assert not (shared.store.folder / CLAIMS).exists()


@pytest.mark.slow
def test_processes_share_trials_and_trainings_in_one_run(tmp_path: Path) -> None:
    alone, shared = (make_workspace(tmp_path / name, tuning=TRIED, table1=TUNED) for name in ("alone", "shared"))
    assert alone.runner.run("all").missing == {}
    finish([shared.start("all") for _ in range(2)])
    assert lines_by_name(shared) == lines_by_name(alone)
    for model in ("bpr-mf", "lightgcn"):
        one, other = (workspace.root / "recipes" / "small" / f"{model}.toml" for workspace in (alone, shared))
        assert one.read_bytes() == other.read_bytes()
    assert len(list((shared.root / "recipes" / "small").iterdir())) == 2


def claimed(workspace: Workspace, end: str) -> bool:
    """Return whether a process holds a cell; the folder of claims comes and goes."""
    with suppress(FileNotFoundError):
        return any(path.name.endswith(end) for path in (workspace.store.folder / CLAIMS).iterdir())
    return False


def test_cells_of_a_killed_process_are_taken_over(tmp_path: Path) -> None:
    long = GRID.replace("epochs = 8", "epochs = 100") + 'models = ["dgcf"]\nseeds = 3\nsweep = { layers = [1, 2] }\n'
    workspace = make_workspace(tmp_path, long=f'title = "Long"\n{long}')
    first = workspace.start("long")
    assert first.stderr is not None
    while "seed=0" not in first.stderr.readline():
        assert first.poll() is None
    while not claimed(workspace, "-1"):
        assert first.poll() is None
    first.send_signal(signal.SIGSTOP)  # in the midst of the next one, of which it does not let go
    second = workspace.start("long")
    assert second.stderr is not None
    while "waiting for them" not in second.stderr.readline():
        assert second.poll() is None
    assert ["layers=1" in line["key"] for line in workspace.lines("long")] == 2 * [True] + 3 * [False]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (tally,) = finish([second])
    keys = sorted(one.key for one in workspace.recipes.experiment("long").cells)
    assert sorted(key for _, key in lines_by_name(workspace)) == sorted(tally["known"] + tally["done"]) == keys
    assert len(tally["done"]) == 5
    assert not (workspace.store.folder / CLAIMS).exists()


def test_claimed_cells_are_skipped_and_waited_for(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, many=MANY)
    keys = [one.key for one in workspace.recipes.experiment("many").cells]
    watcher = Until("waiting for them")
    by_name: list[Any] = []
    worker = threading.Thread(target=lambda: by_name.append(workspace.runner.run("many", progress=watcher)))
    with workspace.store.claim(cells(workspace, "dgcf:*seed=0")) as got:
        assert got
        worker.start()
        assert watcher.event.wait(60)
        recorded = {line["key"] for line in workspace.lines("many")}
        missing = [key for key in keys if key not in recorded]
        assert len(missing) == 1 + 1  # one seed of dgcf, and so the comparison with it; on a CPU seeds are shared, too
        assert all(":dgcf:" in key or ":comparison:" in key for key in missing)
        time.sleep(1.5)
        assert worker.is_alive()
    worker.join(60)
    (tally,) = by_name
    assert tally.missing == {}
    assert tally.done == keys


def test_decided_settings_are_trained_while_other_trials_run(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, tuning=TRIED, table1=TUNED)
    watcher = Until("waiting for them")
    worker = threading.Thread(target=lambda: workspace.runner.run("all", progress=watcher))
    with workspace.store.claim(cells(workspace, "lightgcn", "tuning")):
        worker.start()
        assert watcher.event.wait(60)
        assert {line["label"] for line in workspace.lines("table1")} == {"bpr-mf"}
    worker.join(60)
    assert {line["label"] for line in workspace.lines("table1")} == {"bpr-mf", "lightgcn"}


# -- how long it takes ------------------------------------------------------------------------------------------------


def test_waiting_ends_at_the_limit(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, many=MANY)
    workspace.runner.run("many", only="statistics")
    with workspace.store.claim(cells(workspace, "dgcf-la")):
        tally = workspace.runner.run("many", only="dgcf-la", limit=1.2)
    assert set(tally.missing.values()) == {"other processes were at work, and there was no time left to wait"}
    assert (tally.done, len(tally.missing)) == ([], 2)


def test_cell_that_would_end_after_the_limit_is_skipped(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, many=MANY)
    workspace.runner.run("many", seeds=1)
    path = workspace.store.path("many")
    lines = workspace.lines("many")
    for line in lines:
        line["seconds"] = 1000 if line["model"] == "dgcf" else 0.1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tally = workspace.runner.run("many", only="seed=1", limit=100)
    assert tally.missing == {cells(workspace, "dgcf:paper:*seed=1")[0].key: "there was no time left"}
    assert len(tally.done) == 3


def test_estimate_uses_the_most_similar_lines(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, many=MANY)
    cells = workspace.recipes.experiment("many").matching("lightgcn:paper:*seed")
    machine = {"device": "cpu", "cpu": "this"}

    def line(seconds: float, **other: Any) -> dict[str, Any]:
        usual = {"kind": "trained", "model": "lightgcn", "settings": {}, "data": {"name": "small"}, "hardware": machine}
        return {**usual, **other, "seconds": seconds}

    other_model = [line(70, model="dgcf"), line(50, model="dgcf", kind="trial")]
    gpu = {"device": "cuda", "gpu": "H200", "cpu": "this"}
    unlike = [line(900, data={"name": "large"}), line(800, hardware=gpu), line(700, kind="epochs")]
    assert len(cells) == 2
    assert cells[0].recipe is not None
    same = [line(2, kind="trial", settings=cells[0].recipe.settings())]
    other_settings = [line(3), line(5, kind="trial")]
    assert estimate(cells, [*same, *other_settings, *other_model, *unlike], machine) == 2 * 2
    assert estimate(cells, [*other_settings, *other_model, *unlike], machine) == 2 * 5
    assert estimate(cells[:1], [*other_model, *unlike], machine) == 70
    assert estimate(cells, unlike, machine) is None
    assert estimate(cells, unlike, gpu) == 2 * 800


# -- memory -----------------------------------------------------------------------------------------------------------


def test_out_of_memory_beside_other_processes_records_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Iterator[Any]:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("dgcf.experiments.reproduce.cells.training.train_seeds", full)
    workspace = make_workspace(tmp_path, tuning=TRIED)
    with workspace.store.claim(cells(workspace, "lightgcn", "tuning")):
        tally = workspace.runner.run("tuning", only="bpr-mf")
    assert set(tally.missing.values()) == {"CUDA out of memory."}
    assert not workspace.store.path("tuning").exists()
    assert len(workspace.runner.run("tuning", only="bpr-mf").done) == 3
    assert {line["validation"] for line in workspace.lines("tuning")} == {None}

"""Fixtures of the tests of verbs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.synthetic import planted
from dgcf.recommend import load
from dgcf.train import Run, resolve, train
from tests.experiments.reproduce.workspace import make_workspace


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one thread, in child processes too: the tensors are too small for a second one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small dataset, a trained run, a recommender file and a project with one experiment."""
    folder = tmp_path_factory.mktemp("small")
    films = planted(n_users=200, n_items=120)
    films.save(folder / "data")
    pairs = films.train.union(films.validation, films.test)
    lines = [f"u{user},i{item}\n" for user in range(films.n_users) for item in pairs[user]]
    (folder / "data.csv").write_text("user,item\n" + "".join(lines))
    (folder / "new.csv").write_text("user,item\n" + "".join(f"u00001,new{n}\nnew,i{n:05d}\n" for n in range(9)))
    recipe = resolve("dgcf", preset="plain", settings={"layers": 1, "dim": 4, "epochs": 2})
    run = Run.create(folder / "run", films, recipe, seed=0, device="cpu", source=str(folder / "data"))
    train(films, recipe, device="cpu", run=run)
    load(folder / "run").save(folder / "films.dgcf")
    project = make_workspace(
        folder / "project", table3='title = "Table 3"\n[[grid]]\nkind = "statistics"\ndata = ["small"]\n'
    )
    sources = (project.root / "recipes" / "reproduce" / "data.toml").read_text()
    there = load_data(project.root / "data" / "small").fingerprint
    project.write("data", sources.replace(there, load_data("planted").fingerprint))
    return folder


@pytest.fixture(scope="session")
def films() -> Dataset:
    """A generated dataset with titles."""
    return planted(n_users=150, n_items=160)


@pytest.fixture(scope="session")
def film_run(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a model trained on ``films``; the folder is called ``run``."""
    folder = tmp_path_factory.mktemp("cli")
    films.save(folder / "films")
    settings = {"layers": 2, "dim": 16, "epochs": 60, "learning_rate": 1e-2, "l2": 1e-2}
    recipe = resolve("dgcf", preset="plain", settings=settings)
    run = Run.create(folder / "run", films, recipe, seed=0, device="cpu", source=str(folder / "films"))
    train(films, recipe, device="cpu", run=run)
    load(run.path)  # saves the recommender, as `dgcf train` does
    return run.path

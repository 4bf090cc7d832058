"""Forgetting users in run folders: weights, recommender, dataset, unfinished runs, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.forget import without_users
from dgcf.errors import ArtifactError, DataError
from dgcf.files import exclusive_lock
from dgcf.models.catalog import CATALOG
from dgcf.recommend import load
from dgcf.recommend.capture import from_run
from dgcf.recommend.forget import Forgetting, open_target, require_known
from dgcf.recommend.forget_run import RunFolder, user_dimensions
from dgcf.recommend.loading import BESIDE_WEIGHTS
from dgcf.recommend.update import Parent
from dgcf.train import Run, build, resolve, train
from dgcf.train.run.checkpoint import Checkpoint
from tests.forgetting import ODD, holders, write_rows
from tests.recommend.conftest import random_dataset

NOW = 1.8e9
SMALL: dict[str, Any] = {"epochs": 3, "dim": 4, "layers": 2}
GONE = Forgetting((ODD,), NOW)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared dataset with times, one of whose users is ``ODD``."""
    folder = tmp_path_factory.mktemp("forget")
    load_data(write_rows(folder / "shop.csv", ODD)).save(folder / "data")
    return folder / "data"


def trained(path: Path, source: Path, model: str = "dgcf", **settings: Any) -> Path:
    """A finished run with its recommender."""
    dataset = Dataset.load(source)
    recipe = resolve(model, preset="plain", settings={**SMALL, **settings} if model == "dgcf" else settings)
    run = Run.create(path, dataset, recipe, seed=0, device="cpu", source=str(source))
    train(dataset, recipe, device="cpu", run=run)
    load(path)
    return path


@pytest.fixture(scope="session")
def finished(data: Path) -> Path:
    return trained(data.parent / "run", data)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of DGCF, alone in its folder."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize(("model", "settings"), [("dgcf", {"blend": "filter+ease"}), ("ease", {}), ("popularity", {})])
def test_run_holds_no_byte_of_the_user_and_ranks_the_others_as_before(
    model: str, settings: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", data, model, **settings)
    old = load(run)
    lists = list(old.recommend(others := [user for user in old.users if user != ODD], 10))
    assert holders(run, ODD)
    place = RunFolder(run).remove(GONE)
    assert holders(tmp_path, ODD) == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    user = old.snapshot.users.index_of(ODD)
    assert place.pairs == len(old.snapshot.train[user])
    assert place.held_out == len(old.snapshot.seen[user]) - place.pairs
    new = load(run)
    assert list(new.recommend(others, 10)) == lists
    assert new.evaluate().users_evaluated == old.evaluate(Dataset.load(data)).users_evaluated - 1
    assert new.snapshot.about["weights"] == load(run).snapshot.about["weights"]
    Parent.of_run(Run.open(run))


def test_weights_of_a_run_are_those_of_the_other_nodes(data: Path, run: Path, tmp_path: Path) -> None:
    old, n_users = Run.open(run).best().part("model"), Dataset.load(data).n_users
    gone = Dataset.load(data).users.index_of(ODD)
    RunFolder(run).remove(GONE)
    kept = [node for node in range(len(old["layer0"])) if node != gone]
    new = Run.open(run)
    assert torch.equal(new.best().part("model")["layer0"], old["layer0"][kept])
    assert torch.equal(new.best().part("model")["gates.logits"], old["gates.logits"][:, kept])
    assert new.about["dataset"]["n_users"] == n_users - 1
    assert new.finished
    snapshot = from_run(new)  # from the weights, on the graph without the user
    assert snapshot.n_users == n_users - 1
    assert np.isfinite(snapshot.user_rows).all()


def test_unfinished_run_is_resumed_without_the_user(data: Path, tmp_path: Path) -> None:
    dataset = Dataset.load(data)
    recipe = resolve("dgcf", preset="plain", settings={**SMALL, "epochs": 6, "batch_size": 64})
    run = Run.create(tmp_path / "run", dataset, recipe, seed=0, device="cpu", source=str(data))
    run.autosave, stopping = 0.0, _StopAfter(2)
    with pytest.raises(RuntimeError, match="enough"):
        train(dataset, recipe, device="cpu", run=run, observer=stopping)
    run = Run.open(tmp_path / "run")
    assert not run.finished
    before = Checkpoint.load(run.path / "last.safetensors").part("adam")
    assert before
    RunFolder(run.path).remove(GONE)
    run = Run.open(tmp_path / "run")
    after = Checkpoint.load(run.path / "last.safetensors").part("adam")
    gone = dataset.users.index_of(ODD)
    kept = [node for node in range(len(before["layer0.exp_avg"])) if node != gone]
    assert torch.equal(after["layer0.exp_avg"], before["layer0.exp_avg"][kept])
    assert torch.equal(after["layer0.step"], before["layer0.step"])
    fewer = load_data(run.source)
    done = train(fewer, run.recipe, device="cpu", run=run)
    assert done.epochs == 6
    assert holders(tmp_path, ODD) == []


class _StopAfter:
    """An observer that raises after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def __getattr__(self, name: str) -> Any:
        return lambda *values: None

    def epoch_ended(self, report: Any) -> None:
        if report.epoch == self.epochs:
            raise RuntimeError("enough")


def test_dataset_may_have_lost_the_user_before_the_run(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    run = trained(tmp_path / "run", tmp_path / "data")
    lists = list(load(run).recommend("u3", 5))
    place = open_target(tmp_path / "data").remove(GONE)
    assert place.pairs + place.held_out == 20
    RunFolder(run).remove(GONE)
    assert holders(tmp_path, ODD) == []
    assert list(load(run).recommend("u3", 5)) == lists


def test_run_on_another_dataset_is_refused_and_left_alone(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    run = trained(tmp_path / "run", tmp_path / "data")
    without_users(Dataset.load(data), ["u5"], NOW).save(tmp_path / "data", overwrite=True)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(Exception, match="trained on another dataset"):
        RunFolder(run).remove(GONE)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


def test_result_elsewhere_leaves_the_run_as_it_was(run: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    place = RunFolder(run, out=tmp_path / "new").remove(GONE)
    assert any(f"{run} itself" in sentence for sentence in place.elsewhere)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert holders(tmp_path / "new", ODD) == []
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "new").rglob("*") if path.is_file())
    assert ODD not in load(tmp_path / "new").users


def test_run_in_use_is_refused(run: Path) -> None:
    with exclusive_lock(run), pytest.raises(DataError, match="in use by another process"):
        RunFolder(run).remove(GONE)
    assert holders(run, ODD)


def test_link_permissions_and_other_files_of_a_run_stay(data: Path, finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "real" / "run")
    run.chmod(0o700)
    (run / "all.csv").write_text("mine")
    (tmp_path / "link").symlink_to(run)
    written = (run / "best.safetensors").stat().st_mtime
    place = RunFolder(tmp_path / "link").remove(GONE)
    assert (tmp_path / "link").is_symlink()
    assert run.stat().st_mode & 0o777 == 0o700
    assert (run / "all.csv").read_text() == "mine"
    assert (run / "best.safetensors").stat().st_mtime == written
    assert any(sentence.startswith("all.csv in") for sentence in place.elsewhere)
    assert any(str(data) in sentence for sentence in place.elsewhere)
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_forgetting_again_removes_what_a_killed_process_left(data: Path, run: Path, tmp_path: Path) -> None:
    old = shutil.copytree(run, tmp_path / ".run.a1b2c3d4.part")  # as after a kill between exchange and deletion
    RunFolder(run).remove(GONE)
    shutil.copytree(data, old)
    assert holders(tmp_path, ODD)
    again = RunFolder(run)
    require_known([again], [ODD])
    assert again.remove(GONE).users == ()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(DataError, match="no user 'nobody' is in"):
        require_known([again], ["nobody"])


def test_damaged_recommender_is_built_again_before_the_user_leaves(run: Path) -> None:
    lists = list(load(run).recommend("u3", 5))
    (run / BESIDE_WEIGHTS).write_bytes(b"damaged")
    RunFolder(run).remove(GONE)
    assert list(load(run).recommend("u3", 5)) == lists


def test_run_of_version_0_1_and_damaged_weights_are_refused(data: Path, run: Path) -> None:
    golden = next((Path(__file__).parent.parent / "golden" / "version-0.1").rglob("run.json")).parent
    with pytest.warns(match="no checksums"), pytest.raises(ArtifactError, match=r"written by dgcf 0\.1"):
        RunFolder(golden)
    (run / "last.safetensors").write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match="damaged"):
        RunFolder(run).remove(GONE)
    assert json.loads((run / "run.json").read_text())["dataset"]["n_users"] == Dataset.load(data).n_users


@pytest.mark.parametrize("name", CATALOG)
def test_dimensions_of_users_are_those_of_every_model(name: str) -> None:
    settings = {} if CATALOG[name].solved else {"dim": 3}
    recipe = resolve(name, preset="plain", settings=settings)
    dimensions = user_dimensions(recipe, 0)
    dataset = random_dataset(11, 13)
    model, _ = build(dataset, recipe)
    grown = {
        key: tensor.shape for key, tensor in model.state_dict().items() if 11 in tensor.shape or 24 in tensor.shape
    }
    assert dimensions.keys() == grown.keys()
    assert all(grown[key][dimension] in (11, 24) for key, dimension in dimensions.items())

"""Opening run folders and artefacts: one call for both, and a run is turned into a recommender once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dgcf
from dgcf.data import Dataset
from dgcf.errors import ArtifactError, ConfigError
from dgcf.recommend import loading as opening
from dgcf.train import Run, resolve, train


@pytest.fixture(scope="module")
def run(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    films.save(folder / "films")
    recipe = resolve("dgcf", preset="plain", settings={"layers": 2, "dim": 8, "epochs": 2})
    kept = Run.create(folder / "run", films, recipe, seed=0, device="cpu", source=str(folder / "films"))
    train(films, recipe, device="cpu", run=kept)
    return folder / "run"


def test_a_run_recommends_what_its_model_ranks(run: Path, films: Dataset) -> None:
    from dgcf.train import load as load_run

    rec = dgcf.load(run)
    _, _, found = load_run(Run.open(run), films)
    np.testing.assert_array_equal(rec.snapshot.user_rows, found.users.numpy())
    np.testing.assert_array_equal(rec.snapshot.item_rows, found.items.numpy())
    assert rec.snapshot.about["dataset"]["fingerprint"] == films.fingerprint
    assert rec.snapshot.seen == films.train.union(films.validation, films.test)
    assert rec.get_params()["layers"] == 2


def test_the_second_opening_reads_what_the_first_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dgcf.load(run)
    assert (run / "recommender.dgcf").is_file()
    monkeypatch.setattr("dgcf.recommend.capture.from_run", lambda *_: pytest.fail("built again"))
    assert dgcf.load(run).recommend("u00000", 5) == first.recommend("u00000", 5)


def test_other_weights_or_a_damaged_file_make_it_anew(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    first = dgcf.load(mine)
    built: list[str] = []
    (mine / "recommender.dgcf").write_bytes(b"junk")
    assert dgcf.load(mine, notify=built.append).recommend("u00000", 5) == first.recommend("u00000", 5)
    assert len(built) == 1
    from dgcf.train.run.checkpoint import Checkpoint

    saved = Checkpoint.load(mine / "best.safetensors")
    changed = {name: tensor * 0 + 1 for name, tensor in saved.tensors.items()}
    Checkpoint(changed, saved.about).save(mine / "best.safetensors")
    again = dgcf.load(mine, notify=built.append)
    assert len(built) == 2
    assert not np.array_equal(again.snapshot.user_rows, first.snapshot.user_rows)


@pytest.mark.parametrize("content", [b"\0" * 500, b"[]", b""], ids=["zeroes", "list", "empty"])
def test_a_damaged_description_is_refused_although_the_recommender_is_there(
    run: Path, content: bytes, tmp_path: Path
) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    dgcf.load(mine)
    (mine / "run.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"run\.json is damaged"):
        dgcf.load(mine)


def test_a_folder_that_cannot_be_written_to_still_recommends(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "recommender.dgcf").unlink(missing_ok=True)

    def full(*_: Any, **__: Any) -> None:
        raise ArtifactError("no space left")

    monkeypatch.setattr(opening.artifact, "save", full)
    assert len(dgcf.load(mine).recommend("u00000", 5)) == 5
    assert not (mine / "recommender.dgcf").exists()


def test_another_dataset_is_refused(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "recommender.dgcf").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="was trained otherwise: dataset planted"):
        dgcf.load(mine, data="checkerboard")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "holds neither a recommender nor a run"),
        (lambda path: path.write_bytes(b""), "damaged or not a recommender"),
        (lambda path: path.write_text("user,item\n1,2\n"), "damaged or not a recommender"),
    ],
)
def test_what_is_neither_says_so(tmp_path: Path, make: Any, told: str) -> None:
    make(tmp_path / "it")
    with pytest.raises(ArtifactError, match=told):
        dgcf.load(tmp_path / "it")


def test_a_run_that_has_no_best_state_yet(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "best.safetensors").unlink()
    with pytest.raises(ArtifactError, match="no best state yet"):
        dgcf.load(mine)

"""Loading run folders and artefacts, and the recommender that training leaves in a run folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dgcf
from dgcf.data import Dataset
from dgcf.errors import ArtifactError, ConfigError
from dgcf.evaluate.validation import validator
from dgcf.recommend import loading
from dgcf.recommend.loading import save_recommender
from dgcf.train import Run, resolve, train


@pytest.fixture(scope="module")
def run(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    films.save(folder / "films")
    recipe = resolve("dgcf", preset="plain", settings={"layers": 2, "dim": 8, "epochs": 2})
    kept = Run.create(folder / "run", films, recipe, seed=0, device="cpu", source=str(folder / "films"))
    train(films, recipe, device="cpu", run=kept)
    return folder / "run"


def test_run_recommends_with_the_embeddings_of_its_model(run: Path, films: Dataset) -> None:
    from dgcf.train import load as load_run

    rec = dgcf.load(run)
    _, _, embeddings = load_run(Run.open(run), films)
    np.testing.assert_array_equal(rec.snapshot.user_rows, embeddings.users.numpy())
    np.testing.assert_array_equal(rec.snapshot.item_rows, embeddings.items.numpy())
    assert rec.snapshot.about["dataset"]["fingerprint"] == films.fingerprint
    assert rec.snapshot.seen == films.train.union(films.validation, films.test)
    assert rec.get_params()["layers"] == 2


def test_second_load_reads_the_recommender_of_the_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dgcf.load(run)
    assert (run / "recommender.dgcf").is_file()
    monkeypatch.setattr("dgcf.recommend.capture.from_run", lambda *_: pytest.fail("built again"))
    assert dgcf.load(run).recommend("u00000", 5) == first.recommend("u00000", 5)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("dgcf", {"layers": 2, "dim": 8, "epochs": 3, "evaluate_every": 1}),
        ("dgcf", {"layers": 1, "dim": 8, "epochs": 2, "loss": "softmax"}),
        ("bpr-mf", {"dim": 8, "epochs": 2}),
        ("ngcf", {"dim": 8, "epochs": 2}),
        ("item-knn", {}),
        ("popularity", {}),
    ],
    ids=str,
)
def test_recommender_saved_after_training_equals_that_of_loading(
    model: str, settings: dict[str, Any], films: Dataset, tmp_path: Path
) -> None:
    recipe = resolve(model, preset="plain", settings=settings)
    films.save(tmp_path / "films")
    run = Run.create(tmp_path / "run", films, recipe, seed=1, device="cpu", source=str(tmp_path / "films"))
    validate = validator(films, recipe.train.metric)
    trained = train(films, recipe, seed=1, device="cpu", validate=validate, run=run)
    assert save_recommender(trained, films) is None
    saved = (run.path / "recommender.dgcf").read_bytes()
    (run.path / "recommender.dgcf").unlink()
    dgcf.load(run.path)
    assert (run.path / "recommender.dgcf").read_bytes() == saved


def test_failure_to_save_after_training_is_only_noted(
    films: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = resolve("popularity", preset="plain")
    run = Run.create(tmp_path / "run", films, recipe, seed=0, device="cpu", source="films")
    trained = train(films, recipe, device="cpu", run=run)
    for problem in (ArtifactError("no space left"), MemoryError("too large"), OSError(28, "No space left on device")):

        def fail(*_: Any, problem: BaseException = problem, **__: Any) -> None:
            raise problem

        monkeypatch.setattr(loading.artifact, "save", fail)
        note = save_recommender(trained, films)
        assert note is not None
        assert str(problem) in note
    assert not (run.path / "recommender.dgcf").exists()


def test_recommender_is_made_again_if_damaged_or_of_other_weights(run: Path, tmp_path: Path) -> None:
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
    again = dgcf.load(mine, say=built.append)  # the former name of the argument
    assert len(built) == 2
    assert not np.array_equal(again.snapshot.user_rows, first.snapshot.user_rows)


@pytest.mark.parametrize("content", [b"\0" * 500, b"[]", b""], ids=["zeroes", "list", "empty"])
def test_damaged_run_description_is_refused_even_with_an_intact_recommender(
    run: Path, content: bytes, tmp_path: Path
) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    dgcf.load(mine)
    (mine / "run.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"run\.json is damaged"):
        dgcf.load(mine)


def test_run_recommends_from_a_folder_that_cannot_be_written_to(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "recommender.dgcf").unlink(missing_ok=True)

    def full(*_: Any, **__: Any) -> None:
        raise ArtifactError("no space left")

    monkeypatch.setattr(loading.artifact, "save", full)
    assert len(dgcf.load(mine).recommend("u00000", 5)) == 5
    assert not (mine / "recommender.dgcf").exists()


def test_dataset_that_the_run_was_not_trained_on_is_refused(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "recommender.dgcf").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="with other settings: dataset planted"):
        dgcf.load(mine, data="checkerboard")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "holds neither a recommender nor a run"),
        (lambda path: path.write_bytes(b""), "damaged or not a recommender"),
        (lambda path: path.write_text("user,item\n1,2\n"), "is not a recommender; give a run folder"),
    ],
)
def test_path_that_is_neither_run_nor_artefact_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "path")
    with pytest.raises(ArtifactError, match=message):
        dgcf.load(tmp_path / "path")


def test_run_without_best_weights_is_refused(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "best.safetensors").unlink()
    with pytest.raises(ArtifactError, match="has not been validated yet"):
        dgcf.load(mine)

"""Run folders: no change of a file changes a result in silence, and weights of another run are refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from dgcf.data import load as load_data
from dgcf.data.dataset import Dataset
from dgcf.errors import ArtifactError
from dgcf.evaluate.validation import validator
from dgcf.stored import UncheckedWarning
from dgcf.train import Run, load, resolve, train
from dgcf.train.run.checkpoint import Checkpoint
from tests.resealing import reseal
from tests.train.test_run_folder import SETTINGS, PullThePlug, fit, hashes


def result(path: Path, dataset: Dataset) -> tuple[Any, ...]:
    """Everything that is read from a run folder: the ranking, the records and whether it is finished."""
    opened = Run.open(path)
    ranking = load(opened, dataset)[2]
    fields = (opened.metrics(), opened.seconds, opened.peak_mb, opened.seconds_per_epoch, opened.finished, opened.seed)
    return (*fields, ranking.users.tolist(), ranking.items.tolist())


def test_flipped_bits_never_change_a_result_silently(finished: Path, dataset: Dataset, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    expected, generator = result(finished, dataset), random.Random(0)
    for name in ("run.json", "best.safetensors", "last.safetensors", "metrics.jsonl", "timings.jsonl"):
        content = (finished / name).read_bytes()
        for at in generator.sample(range(len(content)), 40):
            changed = bytearray(content)
            changed[at] ^= 1 << generator.randrange(8)
            (tmp_path / "run" / name).write_bytes(changed)
            try:
                assert result(tmp_path / "run", dataset) == expected, (name, at)
            except ArtifactError as problem:
                assert "\n" not in str(problem)  # noqa: PT017
        (tmp_path / "run" / name).write_bytes(content)
    assert result(tmp_path / "run", dataset) == expected


def test_flipped_bits_never_change_a_resumed_training_silently(
    run: Run, dataset: Dataset, finished: Path, tmp_path: Path
) -> None:
    run.autosave = 0.0
    with pytest.raises(SystemExit):
        fit(dataset, run, PullThePlug(14))
    generator = random.Random(1)
    for trial in range(12):
        copy = tmp_path / f"copy{trial}"
        shutil.copytree(run.path, copy)
        content = bytearray((copy / "last.safetensors").read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        (copy / "last.safetensors").write_bytes(content)
        try:
            fit(dataset, Run.open(copy))
        except ArtifactError:
            continue
        assert hashes(copy) == hashes(finished)


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
@pytest.mark.parametrize(
    ("other", "what"),
    [({"model": "bpr-mf"}, "model"), ({"l2": 0.5}, "settings"), ({"seed": 4}, "seed")],
    ids=["model", "setting", "seed"],
)
def test_weights_of_another_run_are_refused(
    name: str, other: dict[str, Any], what: str, finished: Path, dataset: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    settings = {key: value for key, value in SETTINGS.items() if other.get("model") is None or key != "layers"}
    more = {key: value for key, value in other.items() if key not in ("model", "seed")}
    recipe = resolve(other.get("model", "dgcf"), preset="paper", settings={**settings, **more})
    foreign = Run.create(tmp_path / "foreign", dataset, recipe, seed=other.get("seed", 3), device="cpu")
    fit(dataset, foreign)
    (tmp_path / "run" / name).write_bytes((foreign.path / name).read_bytes())
    with pytest.raises(ArtifactError, match=f"{name} is of another run: its {what} is not that of run.json"):
        load(Run.open(tmp_path / "run"), dataset)
    if name == "best.safetensors":  # the last state has the best weights, too
        mended = Run.open(tmp_path / "run")
        fit(dataset, mended)
        assert mended.repaired
        assert hashes(tmp_path / "run") == hashes(finished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.to(torch.int32), r"layer0 as \(108, 4\) of int32, expected \(108, 4\) of float32"),
        (lambda t: t.to(torch.float64), "of float64, expected"),
        (lambda t: torch.full_like(t, torch.inf), "a number in layer0 that is not finite"),
        (lambda t: torch.full_like(t, torch.nan), "a number in layer0 that is not finite"),
    ],
    ids=["int32", "float64", "inf", "nan"],
)
@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
def test_weights_of_another_type_or_not_finite_are_refused(
    name: str, change: Any, message: str, finished: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """With checksums that fit, as an attacker would write them."""
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / name
    saved = Checkpoint.load(path)
    for key in saved.tensors:
        if key in ("model.layer0", "best.layer0"):
            changed = {**saved.tensors, key: change(saved.tensors[key])}
            Checkpoint(changed, saved.about).save(path)
            with pytest.raises(ArtifactError, match=message):
                load(Run.open(path.parent), dataset) if name.startswith("best") else fit(dataset, Run.open(path.parent))


def test_best_weights_come_from_last_if_killed_between_the_two_files(
    finished: Path, dataset: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "best.safetensors"
    saved = Checkpoint.load(path)
    Checkpoint({key: tensor + 1 for key, tensor in saved.tensors.items()}, {**saved.about, "epoch": 1}).save(path)
    assert result(tmp_path / "run", dataset)[-2:] == result(finished, dataset)[-2:]
    fit(dataset, Run.open(tmp_path / "run"))
    assert hashes(tmp_path / "run") == hashes(finished)


@pytest.mark.parametrize("field", ["stopping", "best", "stale", "done", "loss"])
def test_a_state_that_lacks_a_field_is_refused(field: str, finished: Path, dataset: Dataset, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "last.safetensors"
    saved = Checkpoint.load(path)
    stopping = {key: value for key, value in saved.about["stopping"].items() if key != field}
    about = {key: value for key, value in {**saved.about, "stopping": stopping}.items() if key != field}
    Checkpoint(saved.tensors, about).save(path)
    with pytest.raises(ArtifactError, match=r"last\.safetensors (is no state of training|does not say how far)"):
        fit(dataset, Run.open(path.parent))


def test_resuming_refuses_missing_files(finished: Path, dataset: Dataset, tmp_path: Path) -> None:
    for name in ("last.safetensors", "metrics.jsonl", "timings.jsonl"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(ArtifactError, match=name):
            fit(dataset, Run.open(tmp_path / name))
        assert (tmp_path / name / "best.safetensors").read_bytes() == (finished / "best.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": []}, "settings is a list, expected an object"),
        ({"settings": {"self": 1}}, "model dgcf has no setting 'self'"),
        ({"settings": {"model": 1}}, "model dgcf has no setting 'model'"),
        ({"settings": {"seed": 1}}, "model dgcf has no setting 'seed'"),
        ({"settings": {"layers": "x"}}, "layers of model dgcf is 'x'"),
        ({"settings": {"layers": 10**9}}, "layers is 1000000000"),
        ({"model": "nothing"}, "nothing"),
        ({"model": 3}, "model is 3, expected a text"),
        ({"preset": "none"}, "none"),
        ({"seed": -1}, "seed is -1, expected a number from 0"),
        ({"seed": 1.5}, "seed is 1.5, expected a whole number"),
        ({"dataset": {}}, "dataset.name is missing"),
        ({"dataset": ...}, "dataset is missing"),
        ({"environment": 3}, "environment is 3, expected an object"),
    ],
    ids=str,
)
def test_crafted_description_is_refused_and_its_field_named(run: Run, changes: dict[str, Any], message: str) -> None:
    reseal(run.path / "run.json", changes=changes)
    with pytest.raises(ArtifactError, match=r"run\.json is damaged") as caught:
        Run.open(run.path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff", b"[]", b"1", b'{"format": 1}', b'{"format": 1e400}'], ids=len
)
def test_invalid_description_is_refused(run: Run, content: bytes) -> None:
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"run\.json is damaged"):
        Run.open(run.path)


VERSION_0_1 = Path(__file__).parent.parent / "golden" / "version-0.1"


def test_a_run_of_version_0_1_loads_and_resumes_with_one_warning(tmp_path: Path) -> None:
    data = load_data("checkerboard")
    for name in ("run", "interrupted"):
        shutil.copytree(VERSION_0_1 / name, tmp_path / name)
    with pytest.warns(UncheckedWarning, match=r"has no checksums, as it was written by dgcf 0\.1"):
        whole = Run.open(tmp_path / "run")
    ranking = load(whole, data)[2]  # a second warning would be an error
    assert whole.finished
    with pytest.warns(UncheckedWarning):
        killed = Run.open(tmp_path / "interrupted")
    outcome = train(data, killed.recipe, seed=3, device="cpu", validate=validator(data, "recall@20"), run=killed)
    assert killed.metrics() == whole.metrics()
    assert torch.equal(outcome.ranking.users, ranking.users)
    with pytest.warns(UncheckedWarning):
        assert Run.open(tmp_path / "interrupted").finished


def test_weights_without_a_checksum_are_refused_where_the_run_has_one(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    shutil.copy(VERSION_0_1 / "run" / "best.safetensors", tmp_path / "run" / "best.safetensors")
    with pytest.raises(ArtifactError, match="it has no checksum, unlike the run that it is in"):
        Run.open(tmp_path / "run").best()

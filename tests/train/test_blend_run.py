"""Runs of composed rankings: what the folder holds, that resuming is exact, and what is refused."""

from __future__ import annotations

import hashlib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ArtifactError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.validation import validator
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings
from dgcf.train import Observer, Run, Trained, load, resolve, train
from dgcf.train.run.checkpoint import Checkpoint
from tests.train.recording_observer import RecordingObserver
from tests.train.test_blend import dense, products, sums
from tests.train.test_run_folder import SETTINGS, PullThePlug

METRIC = "ndcg@5"
COMPOSED: dict[str, Any] = {**SETTINGS, "metric": METRIC, "blend": "gf-cf(rank=3)+ease(l2=20)"}
HASHED = ("last.safetensors", "best.safetensors", "blend.safetensors", "metrics.jsonl")


def create(path: Path, dataset: Dataset, model: str = "dgcf", seed: int = 3, **settings: Any) -> Run:
    recipe = resolve(model, preset="plain", settings=settings or COMPOSED)
    return Run.create(path, dataset, recipe, seed=seed, device="cpu")


def fit(dataset: Dataset, run: Run, observer: Observer | None = None, validate: Any = None) -> Trained:
    run.pictured = False
    if validate is None and len(dataset.validation):
        validate = validator(dataset, METRIC)
    return train(dataset, run.recipe, seed=run.seed, device="cpu", validate=validate, run=run, observer=observer)


def hashes(path: Path) -> dict[str, str]:
    return {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in HASHED}


def scores(ranking: Any) -> Tensor:
    return torch.as_tensor(ranking.scores(torch.arange(60)))


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Path:
    """An uninterrupted run; no test changes it."""
    run = create(tmp_path_factory.mktemp("composed") / "whole", dataset)
    fit(dataset, run)
    return run.path


@pytest.fixture
def copy(composed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(composed, tmp_path / "copy"))


class Unplugged(Exception):  # noqa: N818 (not an error)
    """The process ends here, without a chance to tidy up."""


class StopWhileChoosing:
    """A validation that stops when a mixture has been measured so many times."""

    def __init__(self, dataset: Dataset, after: int, stop: Callable[[], None]) -> None:
        self.validate, self.left, self.stop = validator(dataset, METRIC), after, stop

    def __call__(self, ranking: Any) -> Mapping[str, float]:
        if not isinstance(ranking, Embeddings):
            self.left -= 1
            if self.left == 0:
                self.stop()
        return self.validate(ranking)


def unplug() -> None:
    raise Unplugged


def test_load_restores_the_composed_ranking(composed: Path, dataset: Dataset, tmp_path: Path) -> None:
    heard = RecordingObserver()
    out = fit(dataset, create(tmp_path / "again", dataset), heard)
    assert isinstance(out.ranking, Blend)
    assert out.blending is not None
    assert out.blending.parts
    assert hashes(tmp_path / "again") == hashes(composed)
    ranking = load(Run.open(composed), dataset)[2]
    assert isinstance(ranking, Blend)
    assert torch.equal(scores(ranking), scores(out.ranking))
    assert Run.open(composed).finished
    saved = Run.open(composed).blending(dataset.n_items)
    assert saved is not None
    assert saved.to_dict() == out.blending.to_dict()
    assert heard.notes[-1] == f"item weights added to the scores: {saved.text}."
    assert Checkpoint.load(composed / "blend.safetensors").about["epoch"] == out.best_epoch


def test_evaluation_of_a_run_equals_brute_force(composed: Path, dataset: Dataset) -> None:
    """All metrics by plain loops over a dense float64 matrix of scores."""
    run = Run.open(composed)
    ranking = load(run, dataset)[2]
    assert isinstance(ranking, Blend)
    exact = products(ranking.base) + sums(dataset.train, dense(ranking.weights))
    recorded = run.blending(dataset.n_items)
    assert recorded is not None
    for split in ("validation", "test"):
        means = Evaluator(dataset, split=split, ks=(5,)).evaluate(ranking).means
        recall, ndcg = [], []
        for user in range(dataset.n_users):
            wanted, known = set(dataset.split(split)[user].tolist()), set(dataset.train[user].tolist())
            if not wanted or not known:
                continue
            ranked = [item for item in np.argsort(-exact[user], kind="stable").tolist() if item not in known][:5]
            recall.append(len(wanted & set(ranked)) / len(wanted))
            gain = sum(1 / math.log2(place + 2) for place, item in enumerate(ranked) if item in wanted)
            ndcg.append(gain / sum(1 / math.log2(place + 2) for place in range(min(5, len(wanted)))))
        assert means["recall@5"] == pytest.approx(float(np.mean(recall)), abs=1e-12)
        assert means["ndcg@5"] == pytest.approx(float(np.mean(ndcg)), abs=1e-12)
        if split == "validation":
            assert recorded.validation == pytest.approx(dict(means))


@pytest.mark.parametrize("batches", [1, 9, 17])
def test_killed_while_training_ends_in_the_same_bytes(
    batches: int, composed: Path, dataset: Dataset, tmp_path: Path
) -> None:
    run = create(tmp_path / "run", dataset)
    run.autosave = 0.0
    with pytest.raises(SystemExit):
        fit(dataset, run, PullThePlug(batches))
    assert not (run.path / "blend.safetensors").exists()
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(composed)


@pytest.mark.parametrize("after", [1, 7, 20])
def test_stopped_while_choosing_ends_in_the_same_bytes(
    after: int, composed: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """Until then the run is not finished, and no ranking of it is given for the composed one."""
    run = create(tmp_path / "run", dataset)
    with pytest.raises(Unplugged):
        fit(dataset, run, validate=StopWhileChoosing(dataset, after, unplug))
    again = Run.open(run.path)
    assert not again.finished
    with pytest.raises(ArtifactError, match=r"was stopped before its item weights were chosen; continue it with `dgcf"):
        load(again, dataset)
    fit(dataset, again)
    assert again.finished
    assert hashes(run.path) == hashes(composed)


def test_ctrl_c_while_choosing_is_an_interruption(composed: Path, dataset: Dataset, tmp_path: Path) -> None:
    run = create(tmp_path / "run", dataset)
    stop = StopWhileChoosing(dataset, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    out = fit(dataset, run, validate=stop)
    assert out.interrupted
    assert out.blending is None
    assert not (run.path / "blend.safetensors").exists()
    assert not fit(dataset, Run.open(run.path)).interrupted
    assert hashes(run.path) == hashes(composed)


CHOOSING = """
import sys, time
from dgcf.data.dataset import Dataset
from dgcf.evaluate.validation import validator
from dgcf.train import Observer, Run, train

class Waiting(Observer):
    def note(self, text):
        if text.startswith("choosing"):
            print("choosing", flush=True)
            time.sleep(60)

dataset, run = Dataset.load(sys.argv[1]), Run.open(sys.argv[2])
train(dataset, run.recipe, seed=run.seed, device="cpu", validate=validator(dataset, "ndcg@5"), run=run,
      observer=Waiting())
"""


def test_process_killed_before_the_choice_ends_in_the_same_bytes(
    composed: Path, dataset: Dataset, tmp_path: Path
) -> None:
    dataset.save(tmp_path / "data")
    run = create(tmp_path / "run", dataset)
    command = [sys.executable, "-c", CHOOSING, str(tmp_path / "data"), str(run.path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "choosing\n"
        process.kill()
    assert not (run.path / "blend.safetensors").exists()
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(composed)


def test_resuming_a_finished_run_keeps_its_weights(copy: Path, dataset: Dataset) -> None:
    before, heard = hashes(copy), RecordingObserver()
    out = fit(dataset, Run.open(copy), heard)
    assert hashes(copy) == before
    assert not any(note.startswith("choosing") for note in heard.notes)
    assert out.blending is not None
    assert out.validation == out.blending.validation


# -- damage ---------------------------------------------------------------------------------------------------------


def test_flipped_bits_never_change_the_ranking_silently(copy: Path, dataset: Dataset) -> None:
    """And resuming writes the file again, as it was."""
    before, expected, generator = hashes(copy), scores(load(Run.open(copy), dataset)[2]), random.Random(0)
    path = copy / "blend.safetensors"
    content, refused = path.read_bytes(), 0
    for at in generator.sample(range(len(content)), 60):
        changed = bytearray(content)
        changed[at] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        try:
            assert torch.equal(scores(load(Run.open(copy), dataset)[2]), expected), at
        except ArtifactError as problem:
            refused += 1
            assert str(path) in str(problem)  # noqa: PT017
            assert "\n" not in str(problem)  # noqa: PT017
    assert refused > 50
    fit(dataset, Run.open(copy))
    assert hashes(copy) == before


@pytest.mark.parametrize("length", [0, 4, 100, 2000])
def test_a_truncated_file_is_refused_and_written_again_by_resuming(length: int, copy: Path, dataset: Dataset) -> None:
    before, path = hashes(copy), copy / "blend.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ArtifactError, match=r"blend\.safetensors is damaged or not a dgcf checkpoint") as caught:
        load(Run.open(copy), dataset)
    assert "\n" not in str(caught.value)
    assert not Run.open(copy).finished
    fit(dataset, Run.open(copy))
    assert hashes(copy) == before


def tampered(path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Change the tensors and the description of a file and write it with checksums that fit."""
    saved = Checkpoint.load(path)
    tensors, about = dict(saved.tensors), dict(saved.about)
    change(tensors, about)
    Checkpoint(tensors, about).save(path)


def set_tensor(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def apply(tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        tensors[f"blend.{name}"] = change(tensors[f"blend.{name}"])

    return apply


def set_field(name: str, value: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def apply(tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        about["blending"] = {**about["blending"], name: value}

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(set_tensor("indptr", lambda t: t[:-1]), "indptr does not give each row a place", id="indptr-cut"),
        pytest.param(
            set_tensor("indices", lambda t: t + 40), "indices are not item indices below 48", id="indices-large"
        ),
        pytest.param(
            set_tensor("values", lambda t: t[1:]), "another number of values than of columns", id="values-cut"
        ),
        pytest.param(set_tensor("values", lambda t: t / 0), "a number that is not finite", id="values-infinite"),
        pytest.param(set_tensor("values", lambda t: t.half()), "no array values of float32", id="values-half"),
        pytest.param(
            lambda tensors, about: tensors.pop("blend.indptr"), "no array indptr of int64", id="indptr-missing"
        ),
        pytest.param(lambda tensors, about: about.pop("blending"), "'blending'", id="no-record"),
        pytest.param(set_field("parts", None), "parts is null, expected a list", id="parts-null"),
        pytest.param(
            set_field("parts", [{"part": 3, "weight": 1.0, "factor": 1.0}]),
            r"parts\[0\]\.part is 3, expected a text",
            id="part-number",
        ),
        pytest.param(set_field("curve", [3]), r"curve\[0\] is 3, expected an object", id="curve-number"),
    ],
)
def test_weights_of_another_form_are_refused(change: Any, message: str, copy: Path, dataset: Dataset) -> None:
    """With checksums that fit, as an attacker would write them. Resuming replaces them."""
    before = hashes(copy)
    tampered(copy / "blend.safetensors", change)
    with pytest.raises(ArtifactError, match=rf"blend\.safetensors is damaged \(.*{message}.*\); delete it") as caught:
        load(Run.open(copy), dataset)
    assert "\n" not in str(caught.value)
    fit(dataset, Run.open(copy))
    assert hashes(copy) == before


def test_weights_for_another_number_of_items_are_refused(copy: Path, dataset: Dataset, tmp_path: Path) -> None:
    def smaller(tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        for name, tensor in {"indptr": [0] * 12, "indices": [], "values": []}.items():
            kind = {"indptr": torch.int64, "indices": torch.int32, "values": torch.float32}[name]
            tensors[f"blend.{name}"] = torch.tensor(tensor, dtype=kind)

    tampered(copy / "blend.safetensors", smaller)
    with pytest.raises(ArtifactError, match="indptr does not give each row a place"):
        load(Run.open(copy), dataset)


@pytest.mark.parametrize(("other", "what"), [({"l2": 0.5}, "settings"), ({"seed": 4}, "seed")], ids=["setting", "seed"])
def test_weights_of_another_run_are_refused(
    other: dict[str, Any], what: str, copy: Path, dataset: Dataset, tmp_path: Path
) -> None:
    before = hashes(copy)
    more = {key: value for key, value in other.items() if key != "seed"}
    foreign = create(tmp_path / "foreign", dataset, seed=other.get("seed", 3), **{**COMPOSED, **more})
    fit(dataset, foreign)
    shutil.copy(foreign.path / "blend.safetensors", copy / "blend.safetensors")
    with pytest.raises(ArtifactError, match=rf"blend\.safetensors is of another run: its {what} is not that of run"):
        load(Run.open(copy), dataset)
    assert not Run.open(copy).finished
    fit(dataset, Run.open(copy))
    assert hashes(copy) == before


def test_weights_for_another_epoch_are_chosen_again(copy: Path, dataset: Dataset) -> None:
    """As after a kill between the best weights of a later epoch and their item weights."""
    before = hashes(copy)
    tampered(copy / "blend.safetensors", lambda tensors, about: about.update(epoch=about["epoch"] - 1))
    assert not Run.open(copy).finished
    with pytest.raises(ArtifactError, match="was stopped before its item weights were chosen"):
        load(Run.open(copy), dataset)
    fit(dataset, Run.open(copy))
    assert hashes(copy) == before


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_read(kind: str, copy: Path, dataset: Dataset, tmp_path: Path) -> None:
    """Nothing is written through a link."""
    before, path = hashes(copy), copy / "blend.safetensors"
    outside = tmp_path / "outside"
    path.rename(outside)
    content = outside.read_bytes()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        path.mkdir()
    with pytest.raises(ArtifactError, match=r"blend\.safetensors") as caught:
        load(Run.open(copy), dataset)
    assert "\n" not in str(caught.value)
    if kind != "folder":
        fit(dataset, Run.open(copy))
        assert hashes(copy) == before
        assert not path.is_symlink()
    assert outside.read_bytes() == content


# -- other runs -----------------------------------------------------------------------------------------------------


def test_a_composition_that_adds_nothing_is_recorded(dataset: Dataset, tmp_path: Path) -> None:
    run = create(tmp_path / "run", dataset, **{**COMPOSED, "blend": "ease(l2=20)", "blend_weights": 0.0})
    out = fit(dataset, run)
    assert isinstance(out.ranking, Embeddings)
    assert out.blending is not None
    assert (out.blending.parts, out.blending.text) == ((), "none")
    assert Run.open(run.path).finished
    ranking = load(Run.open(run.path), dataset)[2]
    assert isinstance(ranking, Embeddings)
    assert torch.equal(ranking.users, out.ranking.users)


def test_without_validation_the_stated_weights_are_saved(dataset: Dataset, tmp_path: Path) -> None:
    unwatched = replace(dataset, validation=Pairs.empty(dataset.n_users, dataset.n_items))
    run = create(tmp_path / "run", unwatched, **{**COMPOSED, "blend": "auto"})
    out = fit(unwatched, run)
    assert out.blending is not None
    assert [part["weight"] for part in out.blending.parts] == [0.5, 0.35]
    ranking = load(Run.open(run.path), unwatched)[2]
    assert torch.equal(scores(ranking), scores(out.ranking))


def test_a_solved_model_with_embeddings_is_composed(dataset: Dataset, tmp_path: Path) -> None:
    settings = {"factors": 4, "regularization": 2.0, "blend": "ease(l2=20)", "blend_weights": 1.0}
    run = create(tmp_path / "run", dataset, "ials", **settings)
    out = fit(dataset, run)
    assert isinstance(out.ranking, Blend)
    assert Run.open(run.path).finished
    ranking = load(Run.open(run.path), dataset)[2]
    assert torch.equal(scores(ranking), scores(out.ranking))
    before = (run.path / "blend.safetensors").read_bytes()
    fit(dataset, Run.open(run.path))
    assert (run.path / "blend.safetensors").read_bytes() == before


def test_a_run_without_a_composition_has_no_weights_file(finished: Path) -> None:
    assert not (finished / "blend.safetensors").exists()
    assert Run.open(finished).finished


def test_an_older_run_without_these_settings_is_not_composed(finished: Path, dataset: Dataset) -> None:
    """The settings are newer than it; they have their defaults there, whatever a preset says now."""
    run = Run.open(finished)
    settings = {key: value for key, value in run.about["settings"].items() if not key.startswith("blend")}
    older = replace(run, about={**run.about, "settings": settings})
    assert not older.recipe.blend.parts
    assert older.changes(dataset, run.recipe, seed=3) == []

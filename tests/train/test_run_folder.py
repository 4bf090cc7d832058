"""Run folders: what they hold, that resuming is exact from any step, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dgcf.data.dataset import Dataset
from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.train import Observer, Recipe, Run, Trained, Trainer, build, load, resolve, train
from dgcf.train.run.checkpoint import Checkpoint
from dgcf.train.run.records import append_text
from tests.ordering import dataset_in_order
from tests.train.planted_tastes import planted_tastes, validation_of
from tests.train.recording_observer import RecordingObserver

SETTINGS: dict[str, Any] = {
    "dim": 4,
    "layers": 2,
    "batch_size": 128,
    "epochs": 6,
    "evaluate_every": 2,
    "edge_dropout": 0.2,
    "learning_rate": 0.02,
}
HASHED = ("last.safetensors", "best.safetensors", "metrics.jsonl")


def recipe_for(**more: Any) -> Recipe:
    return resolve("dgcf", preset="paper", settings={**SETTINGS, **more})


def fit(dataset: Dataset, run: Run, observer: Observer | None = None) -> Trained:
    return train(
        dataset, run.recipe, seed=run.seed, device="cpu", validate=validation_of(dataset), run=run, observer=observer
    )


def hashes(path: Path) -> dict[str, str]:
    return {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in HASHED}


class PullThePlug(Observer):
    """Dies after so many batches, without a chance to tidy up."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def batch_done(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise SystemExit("killed")


def test_files_of_a_finished_run(finished: Path, dataset: Dataset) -> None:
    about = json.loads((finished / "run.json").read_text())
    assert about["model"] == "dgcf"
    assert about["seed"] == 3
    assert about["settings"] == recipe_for().settings()
    assert about["dataset"]["fingerprint"] == dataset.fingerprint
    assert about["environment"]["torch"] == torch.__version__.partition("+")[0] or torch.__version__
    metrics = Run.open(finished).metrics()
    assert [line["epoch"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    assert ["recall@20" in line for line in metrics] == [False, True] * 3
    assert (finished / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (finished / "log.txt").read_text().count("epoch ") == 6
    assert Run.open(finished).seconds > 0


def test_load_restores_the_best_epoch(finished: Path, dataset: Dataset, tmp_path: Path) -> None:
    made = Run.create(tmp_path / "again", dataset, recipe_for(), seed=3, device="cpu")
    out = fit(dataset, made)
    model, propagation, found = load(Run.open(finished), dataset)
    assert torch.equal(found.users, out.ranking.users)
    assert torch.equal(found.items, out.ranking.items)
    assert torch.equal(model.embed(propagation).items, found.items)
    best = max(made.metrics(), key=lambda line: line.get("recall@20", -1))
    assert out.best_epoch == best["epoch"]
    assert validation_of(dataset)(found)["recall@20"] == best["recall@20"]


def test_loss_on_cosines_ranks_by_cosines(dataset: Dataset, tmp_path: Path) -> None:
    recipe = recipe_for(loss="softmax", negatives=8, epochs=2)
    out = fit(dataset, Run.create(tmp_path / "run", dataset, recipe, seed=0, device="cpu"))
    for found in (out.ranking, load(Run.open(tmp_path / "run"), dataset)[2]):
        torch.testing.assert_close(found.users.norm(dim=1), torch.ones(dataset.n_users))


def test_loss_on_inner_products_ranks_by_inner_products(dataset: Dataset, tmp_path: Path) -> None:
    recipe = recipe_for(loss="softmax-product", negatives=8, epochs=2)
    out = fit(dataset, Run.create(tmp_path / "run", dataset, recipe, seed=0, device="cpu"))
    for found in (out.ranking, load(Run.open(tmp_path / "run"), dataset)[2]):
        assert float(found.users.norm(dim=1).std()) > 1e-4


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5, 8, 12, 13, 17])
@pytest.mark.parametrize("autosave", [0.0, 1e9])
def test_resuming_after_any_step_ends_in_the_same_bytes(
    batches: int, autosave: float, finished: Path, run: Run, dataset: Dataset
) -> None:
    run.autosave = autosave
    with pytest.raises(SystemExit):
        fit(dataset, run, PullThePlug(batches))
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(finished)


@pytest.mark.parametrize("batches", [2, 9])
@pytest.mark.parametrize("drawn", [{"loss": "softmax", "negatives": 8, "popularity": 0.5}, {"recency": 0.8}], ids=str)
def test_resuming_with_other_draws_ends_in_the_same_bytes(
    batches: int, drawn: dict[str, Any], dataset: Dataset, tmp_path: Path
) -> None:
    dataset, recipe = dataset_in_order(dataset), recipe_for(**drawn)
    whole, killed = (Run.create(tmp_path / name, dataset, recipe, seed=3, device="cpu") for name in ("whole", "killed"))
    fit(dataset, whole)
    killed.autosave = 0.0
    with pytest.raises(SystemExit):
        fit(dataset, killed, PullThePlug(batches))
    fit(dataset, Run.open(killed.path))
    assert hashes(killed.path) == hashes(whole.path)


def test_interruption_saves_within_an_epoch(run: Run, dataset: Dataset, finished: Path) -> None:
    model, propagation = build(dataset, run.recipe, seed=run.seed)
    steps = iter([False] * 6 + [True])
    trainer = Trainer(
        model,
        propagation,
        dataset.train,
        run.recipe.train,
        seed=run.seed,
        validate=validation_of(dataset),
        run=run,
        interrupted=lambda: next(steps),
    )
    assert trainer.sampler.batches_per_epoch == 4
    assert trainer.fit() == "interrupted in epoch 2 after 3 of its batches"
    about = Checkpoint.load(run.path / "last.safetensors").about
    assert (about["epoch"], about["done"]) == (2, 3)
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(finished)


def test_resuming_a_finished_run_changes_nothing(finished: Path, dataset: Dataset) -> None:
    before = hashes(finished)
    out = fit(dataset, Run.open(finished))
    assert hashes(finished) == before
    assert not out.interrupted
    assert out.epochs == 6


def test_resuming_truncates_records_after_the_checkpoint(run: Run, dataset: Dataset, finished: Path) -> None:
    run.autosave = 0.0
    with pytest.raises(SystemExit):
        fit(dataset, run, PullThePlug(9))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "loss": 9}\n{"epoch": 4, "lo')
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(finished)


def test_a_changed_dataset_setting_or_seed_is_refused_by_name(run: Run, dataset: Dataset) -> None:
    run.refuse_changes(dataset, recipe_for(), seed=3)
    other = planted_tastes(seed=1)
    for given, message in (
        ((other, None, None), f"dataset planted \\({dataset.fingerprint[:12]}\\) is now planted"),
        ((dataset, recipe_for(layers=3), None), "layers 2 is now 3"),
        ((dataset, resolve("lightgcn", preset="paper", settings={"dim": 4}), None), "model dgcf is now lightgcn"),
        ((dataset, recipe_for(), 4), "seed 3 is now 4"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            run.refuse_changes(*given)
        assert "\n" not in str(caught.value)


def test_changed_order_is_refused_if_sampling_uses_it(dataset: Dataset, tmp_path: Path) -> None:
    one, other = (dataset_in_order(dataset, seed) for seed in (0, 1))
    recent = recipe_for(recency=0.5)
    run = Run.create(tmp_path / "run", one, recent, seed=3, device="cpu")
    run.refuse_changes(one, recent, seed=3)
    for changed in (other, dataset):
        run.refuse_changes(changed)  # what it recommends is the same
        with pytest.raises(ConfigError, match="the order of each user's pairs is another one now, or lost"):
            run.refuse_changes(changed, recent, seed=3)
    plain = Run.create(tmp_path / "plain", one, recipe_for(), seed=3, device="cpu")
    for changed in (one, other, dataset):
        plain.refuse_changes(changed, recipe_for(), seed=3)
    with pytest.raises(DataError, match="recency needs the order of each user's pairs"):
        Run.create(tmp_path / "none", dataset, recent, seed=3, device="cpu")
    assert not (tmp_path / "none").exists()


def test_newer_setting_at_its_default_is_no_change(run: Run, dataset: Dataset) -> None:
    settings = {key: value for key, value in run.about["settings"].items() if key != "popularity"}
    older = replace(run, about={**run.about, "settings": settings})
    older.refuse_changes(dataset, recipe_for(), seed=3)
    with pytest.raises(ConfigError, match=r"popularity 0\.0 is now 0\.5"):
        older.refuse_changes(dataset, recipe_for(loss="softmax", popularity=0.5))


def test_a_folder_with_a_run_is_not_overwritten(run: Run, dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="holds a run already; resume it with --resume"):
        Run.create(run.path, dataset, recipe_for(), seed=3, device="cpu")


def test_open_refuses_a_folder_without_a_run(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "it has no run.json"), (tmp_path / "absent", "it does not exist")):
        with pytest.raises(ArtifactError, match=f"is not a run folder: {reason}"):
            Run.open(path)
    (tmp_path / "run.json").write_text('{"format": 1')
    with pytest.raises(ArtifactError, match="is damaged"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(ArtifactError, match="another version of dgcf"):
        Run.open(tmp_path)


def test_damaged_foreign_and_misshapen_checkpoints(run: Run, dataset: Dataset, finished: Path) -> None:
    good = (finished / "last.safetensors").read_bytes()
    path = run.path / "last.safetensors"
    for content in (good[: len(good) // 2], b"", b"not a checkpoint at all", good[:4]):
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match="is damaged or not a dgcf checkpoint"):
            fit(dataset, Run.open(run.path))
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ArtifactError, match="is damaged or not a dgcf checkpoint"):
        Checkpoint.load(path)
    save_file({"x": torch.zeros(2)}, path, metadata={"dgcf": '{"format": 99}'})
    with pytest.raises(ArtifactError, match="another version of dgcf"):
        Checkpoint.load(path)
    whole = Checkpoint.load(finished / "last.safetensors")
    for key in ("model.layer0", "adam.layer0.exp_avg"):
        misshapen = {**whole.tensors, key: torch.zeros(3, 4)}
        replace(whole, tensors=misshapen).save(path)
        for name in ("metrics.jsonl", "timings.jsonl"):
            (run.path / name).write_bytes((finished / name).read_bytes())
        with pytest.raises(ArtifactError, match=r"layer0.* as \(3, 4\).*, expected \(108, 4\)"):
            fit(dataset, Run.open(run.path))


def test_best_refuses_a_run_without_validation_so_far(run: Run, dataset: Dataset) -> None:
    with pytest.raises(ArtifactError, match="has not been validated yet"):
        load(run, dataset)


def test_a_full_disk_leaves_the_last_good_checkpoint(
    run: Run, dataset: Dataset, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.autosave = 0.0
    with pytest.raises(SystemExit):
        fit(dataset, run, PullThePlug(9))
    before = (run.path / "last.safetensors").read_bytes()
    real = Path.write_bytes

    def full(path: Path, content: Any) -> int:
        real(path, content[:100])
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        again = Run.open(run.path)
        again.autosave = 0.0
        with pytest.raises(DataError, match="No space left on device; free some space"):
            fit(dataset, again)
    assert (run.path / "last.safetensors").read_bytes() == before
    assert not list(run.path.glob("*.part"))
    fit(dataset, Run.open(run.path))
    assert hashes(run.path) == hashes(finished)


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.txt"])
def test_full_disk_while_recording_gives_one_sentence(run: Run, name: str) -> None:
    """A limit on the size of files stands in for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(DataError, match=rf"cannot write .*{name}: File too large; free some space, then continue"):
            run.record({"epoch": 1}, 1.0, 0.0) if name == "metrics.jsonl" else append_text(run.path / name, "x" * 11)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl", "log.txt", "last.safetensors", "run.json"])
@pytest.mark.parametrize("kind", ["link", "fifo", "device"])
def test_links_fifos_and_devices_in_a_run_folder_are_refused(
    run: Run, dataset: Dataset, name: str, kind: str, tmp_path: Path
) -> None:
    """Nothing is written through a link, and nothing waits at a FIFO."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(run.path / name)
    else:
        (run.path / name).symlink_to(outside if kind == "link" else "/dev/full")
    with pytest.raises((ArtifactError, DataError), match=name) as caught:
        fit(dataset, Run.open(run.path))
    assert "\n" not in str(caught.value)
    assert outside.read_text() == "mine"


def test_diverged_state_is_never_saved(run: Run, dataset: Dataset) -> None:
    model, propagation = build(dataset, run.recipe, seed=run.seed)
    trainer = Trainer(model, propagation, dataset.train, run.recipe.train, run=run)
    run.save(trainer.checkpoint())
    before = (run.path / "last.safetensors").read_bytes()
    model.layer0.register_hook(lambda gradient: gradient * torch.nan)
    run.autosave = 0.0
    with pytest.raises(Exception, match="not finite"):
        trainer.fit()
    assert (run.path / "last.safetensors").read_bytes() == before


def test_changed_environment_is_noted(run: Run, dataset: Dataset) -> None:
    environment = {**run.about["environment"], "torch": "1.0"}
    changed = replace(run, about={**run.about, "environment": environment})
    observer = RecordingObserver()
    fit(dataset, changed, observer)
    assert any("torch 1.0 is now" in note for note in observer.notes)

"""Tuning: the same trials whatever is killed or shared, and no use of the test split."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgcf import memory
from dgcf.config import Between, OneOf, read_toml
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.validation import validator
from dgcf.experiments.progress import Progress
from dgcf.experiments.search import search_for
from dgcf.experiments.study.trials import TrialSummary
from dgcf.experiments.tune import Tuned, tune
from dgcf.random import permutation, uniform
from dgcf.train import EpochReport, resolve, train
from tests.experiments.killable_study import SETTINGS, small_search
from tests.ordering import dataset_in_order
from tests.resealing import rechain, reseal
from tests.train.planted_tastes import planted_tastes

TRIALS = 13
KILLS = 5


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return planted_tastes()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the processes that are killed: tensors this small are not worth a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A study that was not interrupted."""
    torch.set_num_threads(1)
    return tune(small_search(dataset, tmp_path_factory.mktemp("whole") / "study"), trials=TRIALS, device="cpu")


def outcome(rows: Any) -> list[tuple[Any, ...]]:
    """Return the trials without their times."""
    return [(r.trial, r.state, r.value, r.epoch, r.epochs, dict(r.settings), r.reason) for r in rows]


def intermediate(folder: Path) -> dict[int, dict[int, float]]:
    """Return the reported values of each trial, by epoch."""
    values: dict[int, dict[int, float]] = {}
    for line in (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]:
        event = json.loads(line)
        if event["event"] == "reported":
            values.setdefault(event["trial"], {})[event["epoch"]] = event["value"]
    return values


def test_trial_equals_training_with_its_settings(whole: Tuned, dataset: Dataset) -> None:
    """The first is the preset; a trial's value is what training with its settings and nothing else reaches."""
    assert [trial.trial for trial in whole.trials] == list(range(TRIALS))
    first = whole.trials[0]
    plain = resolve("bpr-mf", preset="plain").settings()
    assert dict(first.settings) == {key: plain[key] for key in ("dim", "learning_rate", "l2")}
    assert whole.best.value == max(row.value or 0 for row in whole.trials if row.complete)
    assert (whole.best.value or 0) >= (first.value or 0)
    for row in (first, whole.best):
        recipe = resolve("bpr-mf", preset="plain", settings={**SETTINGS, **row.settings})
        trained = train(dataset, recipe, seed=3, device="cpu", validate=validator(dataset, "recall@20"))
        assert (trained.epochs, trained.best_epoch) == (row.epochs, row.epoch)
        assert validator(dataset, "recall@20")(trained.ranking)["recall@20"] == row.value


def test_exactly_the_trials_below_the_median_are_pruned_after_the_warm_up(whole: Tuned) -> None:
    reported = intermediate(whole.search.path)
    complete: list[TrialSummary] = []
    pruned = 0
    for row in whole.trials:
        for step in sorted(reported[row.trial]):
            others = [reported[other.trial][step] for other in complete if step in reported[other.trial]]
            best = max(value for at, value in reported[row.trial].items() if at <= step)
            worse = len(complete) >= 5 and step >= SETTINGS["min_epochs"] and others and best < np.median(others)
            assert bool(worse) == (row.state == "pruned" and step == row.epochs), (row.trial, step)
        complete += [row] if row.complete else []
        pruned += row.state == "pruned"
    assert 0 < pruned < TRIALS - 5


def test_study_folder_holds_the_result(whole: Tuned) -> None:
    folder = whole.search.path
    assert sorted(path.name for path in folder.iterdir()) == [
        *("best.toml", "importance.png", "journal.jsonl", "study.json", "trials", "trials.jsonl")
    ]
    assert not any((folder / "trials").iterdir()), "a finished trial leaves no folder"
    table = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert outcome(TrialSummary(**line) for line in table) == outcome(whole.trials)
    assert set(whole.importance) == {"dim", "learning_rate", "l2"}
    assert sum(whole.importance.values()) == pytest.approx(1)
    assert (folder / "importance.png").read_bytes().startswith(b"\x89PNG")
    best = read_toml(folder / "best.toml")
    assert (best.pop("model"), best.pop("preset")) == ("bpr-mf", "plain")
    assert resolve("bpr-mf", preset="plain", settings=best).settings() == whole.recipe().settings()
    about = json.loads((folder / "study.json").read_text())
    assert about["space"] == {"dim": "32,64,128", "learning_rate": "0.0001:0.01:log", "l2": "1e-05:0.1:log"}


def test_finished_study_is_not_run_again_and_can_be_extended(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    search = small_search(dataset, tmp_path / "study")
    for trials in (2, 2, 4):
        tuned = tune(search, trials=trials, device="cpu")
        assert outcome(tuned.trials) == outcome(whole.trials)[:trials]


class Stop(Progress):
    """Ctrl-C in the middle of a trial."""

    def __init__(self, trial: int, epoch: int) -> None:
        self.at = f"trial {trial}", epoch

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        if (job, report.epoch) == self.at:
            raise KeyboardInterrupt


class Epochs(Progress):
    """Keeps which epochs were trained."""

    def __init__(self) -> None:
        self.epochs: list[tuple[str, int]] = []

    def epoch_ended(self, job: str, report: EpochReport) -> None:
        self.epochs.append((job, report.epoch))


def test_interrupted_trial_resumes_from_its_checkpoint(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    search = small_search(dataset, tmp_path / "study")
    with pytest.raises(KeyboardInterrupt):
        tune(search, trials=5, device="cpu", save_every=0, progress=Stop(2, 9))
    progress = Epochs()
    tuned = tune(search, trials=5, device="cpu", progress=progress)
    assert outcome(tuned.trials) == outcome(whole.trials)[:5]
    assert progress.epochs[0] == ("trial 2", 9), "epoch 9 was not yet saved, the eight before it were"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kills_at_random_moments_do_not_change_the_study(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = [str(dataset.save(tmp_path / "data")), str(TRIALS), str(folder)]
    command = [sys.executable, "-m", "tests.experiments.killable_study", *words]
    # Killed after some epochs, not after some seconds: how fast a child is depends on who else uses the machine.
    stride = sum(row.epochs for row in whole.trials) / (KILLS + 1)
    reached = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        lines = nursery.stdout

        def start() -> int:
            assert nursery.stdin is not None
            nursery.stdin.write("\n")
            nursery.stdin.flush()
            word, number = lines.readline().split()
            assert word == "ready"
            return int(number)

        def end() -> str:
            return next(line for line in lines if line != "epoch\n")

        for share in uniform(4, "test/kill", KILLS):
            pid = start()
            for _ in range(int(share * stride)):
                assert lines.readline() == "epoch\n"
            time.sleep(share * 0.01)  # anywhere between two epochs
            os.kill(pid, signal.SIGKILL)
            assert end() == f"ended {-signal.SIGKILL}\n"
            reached.append(sum(map(len, intermediate(folder).values())))
        assert 0 < reached[-1] < sum(map(len, intermediate(whole.search.path).values())), reached
        start()
        assert end() == "ended 0\n"
    table = [TrialSummary(**json.loads(line)) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert outcome(table) == outcome(whole.trials)
    assert intermediate(folder) == intermediate(whole.search.path)


@pytest.mark.slow
def test_two_processes_share_the_trials_and_lose_none(dgcf_popen: Any, dataset: Dataset, tmp_path: Path) -> None:
    data = dataset.save(tmp_path / "data")
    fixed = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    words = ["tune", data, "--model", "bpr-mf", "--preset", "plain", *fixed, "--trials", "9", "--json"]
    processes = [dgcf_popen(*words, "--device", "cpu", "--out", tmp_path / "a b?{c}#%d") for _ in range(2)]
    answers = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "locked" not in errors
        answers.append(json.loads(output))
    for answer in answers:
        answer.pop("seconds")
    assert answers[0] == answers[1]
    assert (answers[0]["trials"], answers[0]["failed"]) == (9, 0)
    table = [json.loads(line) for line in (tmp_path / "a b?{c}#%d" / "trials.jsonl").read_text().splitlines()]
    assert [row["trial"] for row in table] == list(range(9))
    assert len({json.dumps(row["settings"]) for row in table}) == 9
    journal = (tmp_path / "a b?{c}#%d" / "journal.jsonl").read_text().splitlines()
    ended = [event["trial"] for event in map(json.loads, journal) if event["event"] == "ended"]
    assert sorted(ended) == list(range(9)), "a trial is lost or done twice"


def test_jobs_are_processes_that_share_the_trials(dataset: Dataset, tmp_path: Path) -> None:
    tuned = tune(small_search(dataset, tmp_path / "study"), trials=5, jobs=2, device="cpu")
    assert [trial.trial for trial in tuned.trials] == list(range(5))
    assert all(row.state in ("complete", "pruned") for row in tuned.trials)
    assert torch.get_num_threads() == 1


def test_test_split_does_not_change_the_study(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    shuffled = permutation(0, "test/scramble", dataset.n_users)
    users = shuffled[dataset.test.user_idx]
    scrambled = replace(dataset, test=Pairs.from_indices(users, dataset.test.indices, dataset.n_users, dataset.n_items))
    assert scrambled.fingerprint != dataset.fingerprint
    tuned = tune(small_search(scrambled, tmp_path / "study"), trials=4, device="cpu")
    assert outcome(tuned.trials) == outcome(whole.trials)[:4]
    assert len(tuned.search.dataset.test) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "lightgcn"}, "model bpr-mf is now lightgcn"),
        ({"metric": "ndcg@20"}, "metric recall@20 is now ndcg@20"),
        ({"seed": 4}, "seed 3 is now 4"),
        ({"preset": "paper"}, "preset plain is now paper"),
        ({"settings": {**SETTINGS, "epochs": 21}}, "epochs 20 is now 21"),
        ({"settings": {**SETTINGS, "dim": 8}}, "space of dim 32,64,128 is now not given"),
        ({"search": {"l2": Between(1e-3, 1e-1)}}, "space of l2 1e-05:0.1:log is now 0.001:0.1"),
        ({"dataset": planted_tastes(seed=1)}, "dataset planted ("),
    ],
    ids=str,
)
def test_other_study_in_the_folder_is_refused(
    whole: Tuned, dataset: Dataset, changed: Mapping[str, Any], message: str
) -> None:
    words: dict[str, Any] = {"model": "bpr-mf", "preset": "plain", "settings": SETTINGS, "seed": 3, **changed}
    given = words.pop("dataset", dataset)
    with pytest.raises(ConfigError, match="is another study") as refusal:
        tune(search_for(given, out=whole.search.path, **words), trials=20, device="cpu")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "how", [{"search": {"recency": Between(0.0, 2.0)}}, {"settings": {**SETTINGS, "recency": 1.0}}]
)
def test_recency_needs_the_same_order_every_time(dataset: Dataset, tmp_path: Path, how: dict[str, Any]) -> None:
    one, other = (dataset_in_order(dataset, seed) for seed in (0, 1))
    words: dict[str, Any] = {"preset": "plain", "settings": SETTINGS, "seed": 3, "out": tmp_path / "study", **how}
    with pytest.raises(DataError, match="recency needs the order of each user's pairs"):
        search_for(dataset, "bpr-mf", **words)
    assert not (tmp_path / "study").exists()
    tune(search_for(one, "bpr-mf", **words), trials=1, device="cpu")
    with pytest.raises(ConfigError, match="the order of each user's pairs is another one now, or lost"):
        tune(search_for(other, "bpr-mf", **words), trials=1, device="cpu")


@pytest.mark.parametrize(
    "how",
    [{"search": {"weighted_sampling": OneOf((False, True))}}, {"settings": {**SETTINGS, "weighted_sampling": True}}],
    ids=["searched", "set"],
)
def test_weights_are_needed_and_the_same_every_time(dataset: Dataset, tmp_path: Path, how: dict[str, Any]) -> None:
    one, other = (
        replace(dataset, train=replace(dataset.train, weight=np.arange(len(dataset.train), dtype="<f4") + start))
        for start in (0, 1)
    )
    words: dict[str, Any] = {"preset": "plain", "settings": SETTINGS, "seed": 3, "out": tmp_path / "study", **how}
    with pytest.raises(DataError, match="weighted_sampling needs a weight of each pair"):
        search_for(dataset, "bpr-mf", **words)
    assert not (tmp_path / "study").exists()
    tune(search_for(one, "bpr-mf", **words), trials=1, device="cpu")
    with pytest.raises(ConfigError, match="the weights of the pairs are others now, or lost"):
        tune(search_for(other, "bpr-mf", **words), trials=1, device="cpu")


def test_setting_added_after_a_study_is_unchanged_at_its_default(
    whole: Tuned, dataset: Dataset, tmp_path: Path
) -> None:
    older = tmp_path / "study"
    shutil.copytree(whole.search.path, older)
    about = json.loads((older / "study.json").read_text())
    assert about["settings"].pop("popularity") == 0.0
    rewrite_study(older, about)
    words: dict[str, Any] = {"preset": "plain", "settings": SETTINGS, "seed": 3, "out": older}
    again = tune(search_for(dataset, "bpr-mf", **words), trials=len(whole.trials), device="cpu")
    assert again.best.settings == whole.best.settings
    about["settings"].pop("epochs")
    rewrite_study(older, about)
    with pytest.raises(ConfigError, match="epochs 1000 is now 20"):
        tune(search_for(dataset, "bpr-mf", **words), trials=len(whole.trials), device="cpu")


def rewrite_study(folder: Path, about: dict[str, Any]) -> None:
    """Put another description into a study folder, with checksums that fit it."""
    reseal(folder / "study.json", about)
    events = list(map(json.loads, (folder / "journal.jsonl").read_text().splitlines()))
    events[0]["study"] = json.loads((folder / "study.json").read_text())["sha256"]
    rechain(folder / "journal.jsonl", events)


def test_diverging_trials_fail_and_are_never_the_best(dataset: Dataset, tmp_path: Path) -> None:
    """Of 64 layers without gates the powers of the graph overflow at a step of 10."""
    spaces = {"layers": OneOf((1, 64)), "learning_rate": Between(5.0, 10.0)}
    fixed = {"dim": 4, "l2": 0.0, "edge_dropout": 0.0, "loss": "bpr", "epochs": 4, "evaluate_every": 2}
    search = search_for(dataset, "dgcf", preset="plain", settings=fixed, search=spaces, out=tmp_path / "study")
    tuned = tune(search, trials=8, device="cpu")
    failed = [row for row in tuned.trials if row.state == "failed"]
    assert failed
    assert len(failed) == tuned.to_dict()["failed"]
    assert all("is not finite" in (row.reason or "") for row in failed)
    assert {row.settings["layers"] for row in failed} == {64}
    assert tuned.best.settings["layers"] == 1
    assert len(tuned.trials) == 8


# -- the loss ---------------------------------------------------------------------------------------------------------

QUICK = {name: value for name, value in SETTINGS.items() if name != "loss"}


def spaces_of(dataset: Dataset, **words: Any) -> dict[str, str]:
    return dict(search_for(dataset, **{"model": "bpr-mf", "preset": "plain", **words}).about()["space"])


def test_loss_is_searched_with_the_settings_that_it_reads(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "study"
    search = search_for(dataset, "bpr-mf", preset="plain", settings={**QUICK, "negatives": 8}, seed=1, out=out)
    assert set(search.spaces) == {"dim", "learning_rate", "l2", "loss", "temperature"}
    assert search.spaces["loss"] == OneOf(("bpr", "bpr-hardest", "softmax", "softmax-product"))
    tuned = tune(search, trials=8, device="cpu")
    assert [row.reason for row in tuned.trials if row.state == "failed"] == []
    trained = {row.settings["loss"]: search.recipe_of(row.settings) for row in tuned.trials}
    assert len(trained) > 2
    assert {name: recipe.train.loss for name, recipe in trained.items()} == {name: name for name in trained}
    for loss, recipe in trained.items():  # a loss that has no temperature is trained and written without one
        assert (recipe.train.temperature != 0.2) == (loss == "softmax")
    best = read_toml(out / "best.toml")
    assert (best["loss"], best["negatives"]) == (tuned.best.settings["loss"], 8)
    assert ("temperature" in tuned.to_dict()["best"]["settings"]) == (best["loss"] == "softmax")


def test_only_losses_that_fit_the_fixed_settings_are_searched(dataset: Dataset) -> None:
    assert "loss" not in spaces_of(dataset, settings={"loss": "bpr"})
    shared = {"popularity": 0.5, "loss": "softmax"}
    assert set(spaces_of(dataset, settings=shared)) == {"dim", "learning_rate", "l2", "temperature"}
    own = {"search": {"loss": OneOf(("bpr", "directau"))}}
    assert spaces_of(dataset, **own)["loss"] == "bpr,directau"
    assert "uniformity" in spaces_of(dataset, **own)
    assert "temperature" not in spaces_of(dataset, **own)
    many = {"negatives": 2000}  # more than a pair may have of its own
    with pytest.raises(ConfigError, match="negatives"):
        spaces_of(dataset, settings=many)
    assert "loss" not in spaces_of(dataset, model="ease", settings={})


def test_study_is_resumed_with_its_own_space(dataset: Dataset, tmp_path: Path) -> None:
    """As one that was begun before the loss was searched, or with --search; other spaces are still refused."""
    words: dict[str, Any] = {"preset": "plain", "seed": 3, "out": tmp_path / "study"}
    spaces = {"l2": Between(1e-4, 1e-2), "dim": OneOf((4, 8))}
    begun = search_for(dataset, "bpr-mf", settings={**QUICK, "loss": "bpr"}, search=spaces, **words)
    tune(begun, trials=1, device="cpu")
    resumed = search_for(dataset, "bpr-mf", settings=QUICK, **words)
    assert resumed.spaces == begun.spaces
    assert len(tune(resumed, trials=2, device="cpu").trials) == 2
    other = search_for(dataset, "bpr-mf", settings=QUICK, search={"l2": Between(1e-4, 1e-1)}, **words)
    with pytest.raises(ConfigError, match=r"space of l2 0.0001:0.01 is now 0.0001:0.1"):
        tune(other, trials=2, device="cpu")
    with pytest.raises(ConfigError, match="space of loss not given is now bpr,softmax"):
        tune(search_for(dataset, "bpr-mf", settings=QUICK, search={"loss": OneOf(("bpr", "softmax"))}, **words))


def test_importances_of_few_trials_say_so(whole: Tuned) -> None:
    assert TRIALS < 20
    complete = sum(row.complete for row in whole.trials)
    assert whole.importance_note == (
        f"the importances are rough, from {complete} complete trials; run 20 or more to know which settings matter."
    )
    none = replace(whole, trials=whole.trials[:2], importance={})
    assert none.to_dict()["importance_note"] == (
        "2 complete trials are too few for an importance of settings; run 20 or more to know which settings matter."
    )
    first = replace(whole.trials[0], state="complete")
    assert replace(whole, trials=[first] * 20).importance_note is None


class Shrinking(Progress):
    """Takes the memory away after the first trial, and gives it back after the second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def job_ended(self, text: str = "", best: str = "") -> None:
        free = 1000 if text.startswith("trial 0:") else 10**12
        self.monkeypatch.setattr(memory, "available_memory", lambda: free)


def test_trial_that_exceeds_memory_fails_with_its_reason(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_for(dataset, "ease", out=tmp_path / "study")
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available_memory", lambda: 1000)
        with pytest.raises(ConfigError, match="model ease needs about"):  # the first already: nothing is searched
            tune(search, trials=3, device="cpu")
    tuned = tune(search, trials=3, device="cpu", progress=Shrinking(monkeypatch))
    assert [row.state for row in tuned.trials] == ["complete", "failed", "complete"]
    assert "model ease needs about" in (tuned.trials[1].reason or "")


def test_solved_model_is_tuned(dataset: Dataset, tmp_path: Path) -> None:
    tuned = tune(search_for(dataset, "ease", metric="ndcg@5", out=tmp_path / "study"), trials=4, device="cpu")
    assert [row.epochs for row in tuned.trials] == [1] * 4
    recipe = resolve("ease", settings=tuned.best.settings)
    trained = train(dataset, recipe, device="cpu")
    assert validator(dataset, "ndcg@5")(trained.ranking)["ndcg@5"] == tuned.best.value


def test_invalid_search_is_refused_before_anything_is_written(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    bare = planted_tastes(validation=False)
    for words, message in (
        ({"model": "popularity"}, "model popularity has nothing to search; train it as it is"),
        ({"settings": dict.fromkeys(("l2",), 1.0), "model": "ease"}, "with --search"),
        ({"settings": {"l2": 0.1}, "search": {"l2": Between(0.1, 1.0)}}, "l2 is both fixed"),
        ({"search": {"layer": Between(1, 2)}}, "did you mean 'layers'?"),
        ({"search": {"layers": Between(0, 2)}}, "--search layers: layers is 0, expected from 1 to 64"),
        ({"search": {"loss": OneOf(("bpr", "bqr"))}}, "--search loss: loss of training is 'bqr'"),
        ({"search": {"metric": OneOf(("recall@20", "ndcg@20"))}}, "name it with --metric"),
        ({"metric": "recal@20"}, "'recal@20' is not a metric"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"dataset": bare}, "planted has no validation split"),
    ):
        given = dict(words)
        on = given.pop("dataset", dataset)
        with pytest.raises(ConfigError) as refusal:
            search_for(on, out=tmp_path / "study", **given)  # type: ignore[arg-type]
        assert message in str(refusal.value)
    with pytest.raises(ConfigError, match="holds other files and no study"):
        tune(small_search(dataset, tmp_path / "taken"), trials=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def test_zero_minutes_run_no_trial(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there was no time for any"):
        tune(small_search(dataset, tmp_path / "study"), minutes=0, device="cpu")

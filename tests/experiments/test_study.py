"""A study folder and its journal: kills at any moment lose no trial, and damage is refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dgcf.data import load
from dgcf.data.dataset import Dataset
from dgcf.errors import ArtifactError, ConfigError, DgcfError
from dgcf.experiments.search import search_for
from dgcf.experiments.study.trials import TrialSummary
from dgcf.experiments.tune import Tuned, tune
from dgcf.random import uniform
from tests.experiments.killable_study import small_search
from tests.experiments.test_tune import intermediate, outcome
from tests.resealing import rechain, reseal
from tests.train.planted_tastes import planted_tastes

TRIALS = 9
KILLS = 5
VERSION_0_1 = Path(__file__).parent.parent / "golden" / "version-0.1" / "study"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return planted_tastes()


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A study that was not interrupted."""
    torch.set_num_threads(1)
    return tune(small_search(dataset, tmp_path_factory.mktemp("whole") / "study"), trials=TRIALS, device="cpu")


@pytest.fixture
def folder(whole: Tuned, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole.search.path, tmp_path / "study"))


def events(folder: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, (folder / "journal.jsonl").read_text().splitlines()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kill_while_settings_are_drawn_loses_no_trial(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = [str(dataset.save(tmp_path / "data")), str(TRIALS), str(folder), "slowly"]
    command = [sys.executable, "-m", "tests.experiments.killable_study", *words]
    killed_while_drawing = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for share in [*uniform(6, "test/kill-drawing", KILLS), None]:
            nursery.stdin.write("\n")
            nursery.stdin.flush()
            pid = int(nursery.stdout.readline().split()[1])
            drawn = 0
            for line in nursery.stdout:
                if line.startswith("ended"):
                    assert share is None or drawn < 1 + int(8 * share)
                    break
                drawn += line == "drawing\n"
                if share is not None and drawn == 1 + int(8 * share):
                    begun = sum(event["event"] == "begun" for event in events(folder))
                    os.kill(pid, signal.SIGKILL)
                    drawn = -(10**6)
                    killed_while_drawing += 1
        assert begun > 0
        assert line == "ended 0\n"
    assert killed_while_drawing >= KILLS // 2
    table = [TrialSummary(**json.loads(line)) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert outcome(table) == outcome(whole.trials)
    assert intermediate(folder) == intermediate(whole.search.path)


@pytest.mark.slow
def test_journal_cut_at_any_byte_resumes_to_the_same_study(whole: Tuned, dataset: Dataset, tmp_path: Path) -> None:
    """Each prefix of the journal is what a kill at that moment leaves."""
    content = (whole.search.path / "journal.jsonl").read_bytes()
    header = content.index(b"\n") + 1
    for place, share in enumerate(uniform(7, "test/cut", 8)):
        folder = tmp_path / str(place)
        folder.mkdir()
        shutil.copy(whole.search.path / "study.json", folder)
        (folder / "journal.jsonl").write_bytes(content[: header + int(share * (len(content) - header))])
        tuned = tune(small_search(dataset, folder), trials=4, device="cpu")
        assert outcome(tuned.trials)[:4] == outcome(whole.trials)[:4]


def test_trial_killed_between_its_last_report_and_its_pruning_is_pruned(
    whole: Tuned, dataset: Dataset, folder: Path
) -> None:
    pruned = next(row.trial for row in whole.trials if row.state == "pruned")
    recorded = events(folder)
    end = next(at for at, event in enumerate(recorded) if event["event"] == "ended" and event["trial"] == pruned)
    rechain(folder / "journal.jsonl", recorded[:end])
    (folder / "trials.jsonl").unlink()
    tuned = tune(small_search(dataset, folder), trials=pruned + 1, device="cpu")
    assert outcome(tuned.trials) == outcome(whole.trials)[: pruned + 1]
    assert intermediate(folder)[pruned] == intermediate(whole.search.path)[pruned]


def refused(dataset: Dataset, folder: Path, message: str) -> None:
    """One sentence, and nothing is changed."""
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(DgcfError) as refusal:
        tune(small_search(dataset, folder), trials=TRIALS + 1, device="cpu")
    assert isinstance(refusal.value, ArtifactError | ConfigError)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def change_line(content: bytes) -> bytes:
    return content.replace(b'"dim": 64', b'"dim": 32', 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "journal.jsonl is empty"),
        (lambda content: content[: content.index(b"\n") + 1], "its journal has 0 trials, 0 of them finished"),
        (lambda content: content[: content.rindex(b"\n", 0, -1) + 1], "but trials.jsonl has 9 finished"),
        (change_line, "line 2 does not match its check in journal.jsonl"),
        (lambda content: content.replace(b"\n", b"\n\n", 3), "line 2 not JSON"),
        (lambda content: content[content.index(b"\n") + 1 :], "line 1 does not match its check"),
        (lambda content: b"\xff" + content, "line 1 byte 0 is not UTF-8"),
        (lambda content: b"[" * 100_000 + b"\n" + content, "line 1 nested more than"),
        (lambda content: b"7\n" + content, "line 1 it is 7, expected an object"),
        (lambda content: content + content, "does not match its check"),
    ],
)
def test_damaged_journal_is_refused(
    dataset: Dataset, folder: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    journal = folder / "journal.jsonl"
    journal.write_bytes(damage(journal.read_bytes()))
    refused(dataset, folder, message)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"event": "begun", "trial": 3, "settings": {}}, "trial 3 begun, which is not in progress"),
        ({"event": "begun", "trial": 99, "settings": {"dim": 64}}, "outside of the search"),
        (
            {"event": "begun", "trial": 99, "settings": {"dim": 7, "learning_rate": 1.0, "l2": 1.0}},
            "outside of the search",
        ),
        ({"event": "begun", "trial": "x", "settings": {}}, 'trial is "x", expected a whole number'),
        ({"event": "begun", "trial": 99}, "has no settings"),
        ({"event": "reported", "trial": 99, "epoch": 1, "value": 0.5}, "trial 99 reported, which is not in progress"),
        ({"event": "reported", "trial": 0, "epoch": 1, "value": 0.5}, "trial 0 reported, which is not in progress"),
        ({"event": "reported", "trial": 0, "epoch": 1, "value": 1e400}, "is no JSON number"),
        ({"event": "study", "study": "x"}, "that of another study"),
        ({"event": "eaten"}, "event is"),
    ],
)
def test_crafted_event_is_refused(dataset: Dataset, folder: Path, event: dict[str, Any], message: str) -> None:
    rechain(folder / "journal.jsonl", [*events(folder), event])
    refused(dataset, folder, message)


def test_deleted_journal_is_refused(dataset: Dataset, folder: Path) -> None:
    (folder / "journal.jsonl").unlink()
    refused(dataset, folder, "its journal has 0 trials, 0 of them finished, but trials.jsonl has 9 finished")
    (folder / "trials.jsonl").unlink()
    (folder / "trials" / "3" / "held").mkdir(parents=True)
    refused(dataset, folder, "trials has 1 in progress")


def test_journal_of_another_study_is_refused(dataset: Dataset, folder: Path, tmp_path: Path) -> None:
    other = search_for(dataset, "bpr-mf", preset="plain", settings={"epochs": 2}, seed=9, out=tmp_path / "other")
    tune(other, trials=1, device="cpu")
    shutil.copy(tmp_path / "other" / "journal.jsonl", folder)
    refused(dataset, folder, "journal.jsonl is that of another study")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("name", ["journal.jsonl", "study.json", "trials.jsonl"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_member_that_is_no_regular_file_is_refused(dataset: Dataset, folder: Path, name: str, kind: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    if kind == "link":
        (folder / name).symlink_to(folder.parent / "elsewhere")
    else:
        os.mkfifo(folder / name)
    with pytest.raises(ArtifactError, match=rf"{name} is (a link or a FIFO|not a regular file)"):
        tune(small_search(dataset, folder), trials=TRIALS + 1, device="cpu")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "study.json: not JSON"),
        (b"\xff\xfe", "study.json: byte 0 is not UTF-8"),
        (b"[" * 100_000, "study.json: nested more than"),
        (b"[]", "study.json: it is a list, expected an object"),
        (b"{}", "study.json: format is missing"),
        (b'{"format": 1e400}', "study.json: format is inf, expected a finite number"),
        (b'{"format": "\\u0000"}', "study.json: model is missing"),
    ],
)
def test_crafted_description_is_refused(dataset: Dataset, folder: Path, content: bytes, message: str) -> None:
    (folder / "study.json").write_bytes(content)
    refused(dataset, folder, message)


@pytest.mark.parametrize(
    ("field", "value"),
    [("dataset", {}), ("dataset", None), ("space", []), ("settings", 7), ("seed", 1.5), ("model", ...), ("model", "?")],
)
def test_description_with_a_wrong_field_is_refused(dataset: Dataset, folder: Path, field: str, value: Any) -> None:
    reseal(folder / "study.json", changes={field: value})
    refused(dataset, folder, field)


def test_changed_description_does_not_match_its_checksum(dataset: Dataset, folder: Path) -> None:
    text = (folder / "study.json").read_text()
    (folder / "study.json").write_text(text.replace('"seed": 3', '"seed": 4'))
    refused(dataset, folder, "study.json does not match its checksum")


# -- studies of version 0.1 -------------------------------------------------------------------------------------------


def search_of_version_0_1(out: Path, preset: str | None = None, **settings: Any) -> Any:
    settings = {"epochs": 2, **settings}
    words: dict[str, Any] = {"seed": 5, "source": "checkerboard", "out": out, "preset": preset}
    return search_for(load("checkerboard"), "lightgcn", settings=settings, **words)


def test_study_of_version_0_1_is_resumed(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(VERSION_0_1, tmp_path / "study"))
    rows = [TrialSummary(**json.loads(line)) for line in (folder / "trials.jsonl").read_text().splitlines()]
    tuned = tune(search_of_version_0_1(folder), trials=5, device="cpu")
    assert list(tuned.trials[:3]) == rows
    # It keeps its preset and its search space, which had no loss then.
    fresh = tune(search_of_version_0_1(tmp_path / "fresh", "paper", loss="bpr"), trials=5, device="cpu")
    assert [dict(row.settings) for row in tuned.trials] == [dict(row.settings) for row in fresh.trials]
    assert outcome(tuned.trials[3:]) == outcome(fresh.trials[3:])
    (folder / "study.db").unlink()
    assert list(tune(search_of_version_0_1(folder), trials=5, device="cpu").trials) == list(tuned.trials)


@pytest.mark.parametrize("damage", ["deleted", "emptied", "overwritten"])
def test_study_of_version_0_1_without_its_trials_is_refused(tmp_path: Path, damage: str) -> None:
    folder = Path(shutil.copytree(VERSION_0_1, tmp_path / "study"))
    database = folder / "study.db"
    before = database.read_bytes()
    if damage == "deleted":
        database.unlink()
    else:
        database.write_bytes(b"" if damage == "emptied" else b"x" * 5000)
    message = "study.db is damaged" if damage == "overwritten" else "its journal has 0 trials"
    with pytest.raises(ArtifactError, match=message):
        tune(search_of_version_0_1(folder), trials=5, device="cpu")
    database.write_bytes(before)
    assert len(tune(search_of_version_0_1(folder), trials=3, device="cpu").trials) == 3

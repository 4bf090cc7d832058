"""Files that the version before wrote, with checksums, load, resume and give the same answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.cli.in_process import invoke

GOLDEN = Path(__file__).parent.parent / "golden" / "version-0.1-checksums"
ANSWERS = json.loads((GOLDEN / "answers.json").read_text())
VOLATILE = ("text", "run", "seconds")
"""Fields whose words or times may differ."""
LATER = {
    "answer.settings": {
        "blend": "none",
        "blend_weights": "auto",
        "blend_neighbours": 400,
        "edge_weights": False,
        "weighted_sampling": False,
    },
    "answer.by_kind": {"weights": 0.0},
    "answer": {  # of ``data stats``: the history
        "values": [],
        "source": "generated (checkerboard, seed 0)",
        "rows": 1200,
        "filters": [],
        "split": {"method": "random", "ratios": [0.7, 0.1, 0.2], "seed": 0},
        "held_out": {},
        "weights": {},
        "updates": [],
    },
}
"""Fields that came later, by their place, and what they hold for files written before."""
FOLD_IN = "recommend recommender.dgcf --items i00001 --items i00003 -k 5"
"""The answer for a new user, whose layer 0 is estimated from the items since; it was zero before."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


def assert_same(actual: Any, expected: Any, path: str = "answer") -> None:
    """Compare nested JSON: numbers to 1e-6, everything else exactly."""
    if isinstance(expected, dict):
        later = {key: actual[key] for key in actual.keys() - expected.keys()}
        known = LATER.get(path, {})
        assert later == {key: known.get(key) for key in later}, path
        assert actual.keys() >= expected.keys(), path
        for key in expected.keys() - set(VOLATILE):
            assert_same(actual[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), path
        for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{path}[{place}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-6, abs=1e-9), path
    else:
        assert actual == expected, path


@pytest.mark.parametrize("recorded", ANSWERS, ids=lambda recorded: recorded["command"])
@pytest.mark.usefixtures("files")
def test_answers_are_those_of_the_version_before(recorded: dict[str, Any]) -> None:
    actual, expected = invoke(*recorded["command"].split()), recorded["answer"]
    if recorded["command"] == FOLD_IN:
        assert len({row["item"] for row in actual["recommendations"]} - {"i00001", "i00003"}) == 5
        actual, expected = ({**answer, "recommendations": []} for answer in (actual, expected))
    assert_same(actual, expected)


def test_interrupted_run_of_the_version_before_resumes_to_the_same_weights(files: Path) -> None:
    invoke("train", "--resume", "interrupted")
    resumed, expected = (load_file(files / name / "best.safetensors") for name in ("interrupted", "run"))
    assert resumed.keys() == expected.keys()
    for name, weights in expected.items():
        assert resumed[name] == pytest.approx(weights, rel=1e-5, abs=1e-7)


def test_study_of_the_version_before_continues(files: Path) -> None:
    trials = len((files / "study" / "trials.jsonl").read_text().splitlines())
    settings = ("--set", "dim=4", "--set", "epochs=4", "--set", "evaluate_every=2", "--device", "cpu", "--seed", "3")
    words = ("tune", "checkerboard", "--model", "lightgcn", "--trials", str(trials + 1), *settings)
    assert invoke(*words, "--out", "study")["trials"] == trials + 1
    assert len((files / "study" / "trials.jsonl").read_text().splitlines()) == trials + 1

"""The model card: what it says is what the run folder, the data and the evaluation say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import dgcf
from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.evaluate.validation import validator
from dgcf.recommend import Recommender
from dgcf.recommend.card import card_markdown, model_card
from dgcf.train import Run, resolve, train

CLASSIC = {"layers": 1, "dim": 4, "epochs": 2}


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset that is split by time, from a file of hourly events."""
    path = tmp_path_factory.mktemp("timed") / "events.csv"
    rows = [(user, item) for user in range(40) for item in range(30) if (user + item) % 3 == 0]
    lines = [f"u{user},i{item},{1_700_000_000 + 3600 * number}" for number, (user, item) in enumerate(rows)]
    path.write_text("user,item,timestamp\n" + "\n".join(lines))
    return load_data(str(path), Preparation(split=Split("user-temporal")))


@pytest.fixture(scope="module")
def run(timed: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    timed.save(folder / "data")
    recipe = resolve("dgcf", preset="plain", settings=CLASSIC)
    run = Run.create(folder / "run", timed, recipe, seed=3, device="cpu", source=str(folder / "data"))
    train(timed, recipe, seed=3, device="cpu", run=run, validate=validator(timed, recipe.train.metric))
    return run


def test_card_of_a_run_says_what_the_run_folder_says(run: Run, timed: Dataset) -> None:
    card = model_card(dgcf.load(run.path))
    data = card["data"]
    assert (data["fingerprint"], data["pairs"]) == (timed.fingerprint, len(timed.train))
    assert (data["users"], data["items"]) == (timed.n_users, timed.n_items)
    times = np.asarray(timed.train.time, dtype="datetime64[s]")
    assert [data["window"]["first"], data["window"]["last"]] == [str(times.min()), str(times.max())]
    assert data["split"]["method"] == "user-temporal"
    assert card["settings"] == run.recipe.settings()
    line = run.metrics()[card["epochs"] - 1]
    assert card["metrics"] == [
        {
            "split": "validation",
            "mask": "train",
            "k": [20],
            "users": None,
            "values": {name: line[name] for name in line if "@" in name},
        }
    ]
    assert card["trained_at"].startswith("20")
    assert card["updated_from"] is None


def test_card_of_a_file_equals_that_of_its_run_without_torch(run: Run, tmp_path: Path) -> None:
    rec = dgcf.load(run.path)
    rec.save(tmp_path / "a.dgcf")
    code = (
        "import json, sys\nsys.modules['torch'] = None\nimport dgcf\n"
        "from dgcf.recommend.card import model_card\n"
        f"print(json.dumps(model_card(dgcf.load({str(tmp_path / 'a.dgcf')!r}))))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == model_card(rec)


def test_measured_test_split_is_added_with_its_protocol(fitted: Recommender, films: Dataset) -> None:
    rec = Recommender.of(fitted.snapshot, fitted._held_out)
    measured = rec.evaluate(k=[5, 10], mask="train+validation")
    added = model_card(rec)["metrics"][-1]
    assert added["split"] == "test"
    assert added["mask"] == "train+validation"
    assert added["k"] == [5, 10]
    assert added["users"] == measured.users_evaluated
    assert added["values"] == dict(measured)


def test_update_names_its_parent_without_folders(run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "user,item,timestamp\nu1,i0,1800000000\nnew,i4,1800000001\nnew,i7,1800000002\nu2,new-item,1800000003\n"
    )
    updated = dgcf.load(run.path).update(rows, epochs=0)
    parent = model_card(updated)["updated_from"]
    assert parent["fingerprint"] == model_card(dgcf.load(run.path))["data"]["fingerprint"]
    assert (parent["new_users"], parent["new_items"]) == (1, 1)
    assert "/" not in json.dumps(model_card(updated))


def test_markdown_is_yaml_and_cannot_be_broken_by_names(fitted: Recommender) -> None:
    """A hostile name of the data neither ends the front matter nor a table, nor becomes HTML."""
    about = fitted.snapshot.about
    name = '"---\n# x | <script>: {['
    rec = Recommender.of(replace(fitted.snapshot, about={**about, "dataset": {**about["dataset"], "name": name}}))
    text = card_markdown(model_card(rec), load="hf://a/b")
    _, head, body = text.split("---\n", 2)
    front = yaml.safe_load(head)
    assert front["library_name"] == "dgcf"
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == name
    values = {entry["type"]: entry["value"] for entry in front["model-index"][0]["results"][0]["metrics"]}
    assert values == rec.metrics["validation"]
    assert "<script>" not in body
    assert 'dgcf.load("hf://a/b")' in body

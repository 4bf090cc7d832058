"""Models that use weights, through every verb: prepared, trained, resumed, measured, exported, and asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.data import load as load_data
from dgcf.data.dataset import Dataset
from dgcf.random import uniform
from dgcf.recommend import load
from tests.cli.in_process import invoke, refusal

QUICK = ("--preset", "plain", "--set", "epochs=3", "--set", "dim=4", "--set", "layers=1", "--set", "batch_size=256")
WEIGHTED = {
    "item-knn": ("--model", "item-knn", "--set", "weighted=true"),
    "ials": ("--model", "ials", "--set", "weighted=true", "--set", "factors=8"),
    "dgcf": ("--model", "dgcf", *QUICK, "--set", "edge_weights=true"),
    "sampling": ("--model", "dgcf", *QUICK, "--set", "weighted_sampling=true"),
    "blend": ("--model", "dgcf", *QUICK, "--set", "edge_weights=true", "--set", "blend=item-knn"),
}
FOLDS = {"item-knn", "sampling"}
"""What has a rule for new users, whose items have no weights."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders of 40 users and 30 items, who buy again what they like, and a quantity of each."""
    folder = tmp_path_factory.mktemp("orders")
    drawn = uniform(1, "test/orders", 3 * 1500).reshape(3, -1)
    users, items = (drawn[0] * 40).astype(int), (drawn[1] ** 2 * 30).astype(int)
    quantity = np.ceil(drawn[2] * 9).astype(int)
    rows = "".join(
        f"u{user},i{item},{count},{1_600_000_000 + 60 * at}\n"
        for at, (user, item, count) in enumerate(zip(users.tolist(), items.tolist(), quantity.tolist(), strict=True))
    )
    (folder / "orders.csv").write_text("user,item,quantity,timestamp\n" + rows)
    return folder / "orders.csv"


@pytest.fixture(scope="module")
def data(table: Path) -> Path:
    invoke("data", "prepare", table, "--weight-col", "quantity", "--out", table.parent / "orders")
    return table.parent / "orders"


@pytest.fixture(scope="module", params=list(WEIGHTED))
def trained(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run = tmp_path_factory.mktemp(request.param) / "run"
    invoke("train", data, *WEIGHTED[request.param], "--device", "cpu", "--out", run)
    return request.param, run


def test_weighted_model_works_with_every_verb(trained: tuple[str, Path], data: Path, tmp_path: Path) -> None:
    name, run = trained
    dataset = load_data(data)
    assert json.loads((run / "run.json").read_text())["dataset"]["weights"] == dataset.weighting
    measured = invoke("evaluate", run)
    assert measured["users_evaluated"] > 0
    assert invoke("train", "--resume", run)["test"]["recall@20"] == measured["recall@20"]
    invoke("export", run, "--out", tmp_path / "rec.dgcf")
    answers = [invoke("recommend", source, "--user", "u3", "-k", "3") for source in (run, tmp_path / "rec.dgcf")]
    assert answers[0] == answers[1]
    assert len(answers[0]["recommendations"]) == 3
    liked = ("recommend", tmp_path / "rec.dgcf", "--items", "i1", "--items", "i2", "-k", "3")
    explained = ("explain", run, "--user", "u3", "--item", answers[0]["recommendations"][0]["item"])
    if name in FOLDS:
        assert len(invoke(*liked)["recommendations"]) == 3
        parts = invoke(*explained)["parts"]
        assert sum(part["value"] for part in parts) == pytest.approx(answers[0]["recommendations"][0]["score"])
        return
    setting = "weighted" if name == "ials" else "edge_weights"
    for words, hindered in (
        (liked, "cannot fold in a new user or item, whose pairs have"),
        (explained, "its scores cannot be split over items"),
    ):
        sentence = refusal(*words)
        assert f"was trained with {setting}, " in sentence
        assert hindered in sentence
        assert f"train it without {setting}" in sentence


@pytest.fixture(scope="module")
def others(table: Path, data: Path) -> Path:
    """A folder with datasets of the same pairs: with other weights, and without."""
    words = ("--weight-col", "quantity", "--weight-transform", "cap:3")
    invoke("data", "prepare", table, *words, "--out", table.parent / "others" / "capped")
    invoke("data", "prepare", table, "--out", table.parent / "others" / "without")
    fingerprints = {load_data(table.parent / "others" / name).fingerprint for name in ("capped", "without")}
    assert fingerprints == {load_data(data).fingerprint}
    return table.parent / "others"


def test_other_weights_of_the_same_pairs_are_noticed(trained: tuple[str, Path], others: Path) -> None:
    _, run = trained
    for name in ("capped", "without"):
        assert "the weights of the pairs are others now, or lost" in refusal("train", others / name, "--resume", run)
    assert "the weights of the pairs are others now" in refusal("evaluate", run, "--data", others / "without")


def test_weighted_training_on_everything_equals_python(data: Path, tmp_path: Path) -> None:
    from dgcf import Recommender

    run = tmp_path / "run"
    invoke("train", data, "--on", "everything", *WEIGHTED["dgcf"], "--device", "cpu", "--out", run)
    settings = {"epochs": 3, "dim": 4, "layers": 1, "batch_size": 256, "edge_weights": True}
    fitted = Recommender("dgcf", preset="plain", device="cpu", **settings).fit(Dataset.load(data), on="everything")
    saved = load(run).snapshot
    np.testing.assert_array_equal(saved.user_rows, fitted.snapshot.user_rows)
    np.testing.assert_array_equal(saved.item_rows, fitted.snapshot.item_rows)
    invoke("train", "--resume", run)


def test_weights_of_a_table_are_read_while_training(table: Path, data: Path, tmp_path: Path) -> None:
    """Without preparing: the same weights, the same model; and the run reads them again."""
    invoke("train", table, "--weight-col", "quantity", *WEIGHTED["item-knn"], "--out", tmp_path / "raw")
    invoke("train", data, *WEIGHTED["item-knn"], "--out", tmp_path / "prepared")
    answers = [invoke("recommend", tmp_path / name, "--user", "u3") for name in ("raw", "prepared")]
    assert answers[0]["recommendations"] == answers[1]["recommendations"]


@pytest.mark.parametrize("name", list(WEIGHTED))
def test_data_without_weights_is_refused_before_a_run_is_made(name: str, table: Path, tmp_path: Path) -> None:
    words = [str(word) for word in ("train", table, *WEIGHTED[name], "--out", tmp_path / "run")]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 1
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "needs a weight of each pair, which this data does not have; prepare it with" in sentence
    assert list(tmp_path.iterdir()) == []

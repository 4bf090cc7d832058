"""The verbs with a composed ranking: trained, resumed, evaluated, asked and exported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dgcf.data import Dataset
from tests.cli.in_process import invoke, refusal

TRAIN = ("--preset", "plain", "--set", "dim=8", "--set", "layers=2", "--set", "epochs=4", "--device", "cpu")
BLEND = ("--set", "blend=gf-cf(rank=8)+ease(l2=20)")


@pytest.fixture(scope="module")
def data(films: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return films.save(tmp_path_factory.mktemp("composed") / "films")


@pytest.fixture(scope="module")
def answer(data: Path) -> dict[str, Any]:
    """The answer of a training whose weights are chosen on validation."""
    return invoke("train", data, *TRAIN, *BLEND, "--out", data.parent / "run", "--no-baselines")


@pytest.fixture(scope="module")
def run(answer: dict[str, Any]) -> Path:
    return Path(answer["run"])


def test_train_reports_the_parts_and_every_weighting(answer: dict[str, Any], run: Path) -> None:
    blending = answer["blending"]
    assert set(blending) == {"parts", "curve", "validation", "left_out"}
    assert blending["validation"] == answer["validation"]
    values = [point["recall@20"] for point in blending["curve"]]
    assert blending["curve"][0]["weights"] == [0.0, 0.0]
    assert answer["validation"]["recall@20"] == pytest.approx(max(values), abs=1e-3)
    assert {part["part"] for part in blending["parts"]} <= {"gf-cf(rank=8)", "ease(l2=20)"}
    assert blending["parts"]
    assert answer["settings"]["blend"] == "gf-cf(rank=8)+ease(l2=20)"
    assert (run / "blend.safetensors").exists()
    assert (run / "recommender.dgcf").exists()


def test_a_model_that_is_not_composed_says_so(data: Path, tmp_path: Path) -> None:
    answer = invoke("train", data, *TRAIN, "--out", tmp_path / "run", "--no-baselines")
    assert answer["blending"] is None
    assert not (tmp_path / "run" / "blend.safetensors").exists()


def test_evaluate_measures_the_composed_ranking(answer: dict[str, Any], run: Path) -> None:
    measured = invoke("evaluate", run)
    assert {name: measured[name] for name in answer["test"]} == answer["test"]
    validated = invoke("evaluate", run, "--split", "validation")
    assert validated["recall@20"] == pytest.approx(answer["validation"]["recall@20"])


def test_resume_keeps_the_weights(answer: dict[str, Any], run: Path) -> None:
    before = (run / "blend.safetensors").read_bytes()
    again = invoke("train", "--resume", run, "--no-baselines")
    assert (again["blending"], again["test"]) == (answer["blending"], answer["test"])
    assert (run / "blend.safetensors").read_bytes() == before


def test_recorded_weights_give_the_same_ranking_without_a_choice(
    answer: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    parts = answer["blending"]["parts"]
    given = (
        f"blend={'+'.join(part['part'] for part in parts)}",
        f"blend_weights={'+'.join(str(part['weight']) for part in parts)}",
    )
    words = [word for setting in given for word in ("--set", setting)]
    again = invoke("train", data, *TRAIN, *words, "--out", tmp_path / "again", "--no-baselines")
    assert again["blending"]["parts"] == parts
    assert again["blending"]["curve"] == []
    assert again["test"] == answer["test"]


def test_requests_are_answered_alike_by_run_and_export(run: Path, films: Dataset, tmp_path: Path) -> None:
    exported = invoke("export", run, "--out", tmp_path / "films.dgcf")
    assert exported["format"] == "dgcf"
    requests = (
        ("recommend", "--user", "u00007", "-k", "6"),
        ("recommend", "--items", films.items.texts[3], "--items", films.items.texts[8], "-k", "6", "--why"),
        ("explain", "--user", "u00007", "--item", films.items.texts[5]),
        ("similar", "--item", films.items.texts[5]),
        ("similar", "--user", "u00007"),
    )
    for verb, *words in requests:
        assert invoke(verb, run, *words) == invoke(verb, tmp_path / "films.dgcf", *words)


def test_explanation_has_the_weights_and_adds_up(run: Path) -> None:
    top = invoke("recommend", run, "--user", "u00007", "-k", "1")["recommendations"][0]
    answer = invoke("explain", run, "--user", "u00007", "--item", top["item"])
    assert answer["score"] == pytest.approx(top["score"], rel=1e-9)
    assert sum(answer["by_kind"].values()) == pytest.approx(answer["score"], abs=1e-5)
    assert answer["by_kind"]["weights"] != 0
    assert any(part["kind"] == "weights" for part in answer["parts"])


def test_all_users_are_written_as_they_are_asked_for(run: Path, films: Dataset, tmp_path: Path) -> None:
    invoke("recommend", run, "--all", "--out", tmp_path / "all.parquet", "-k", "4")
    rows = duckdb.sql(f"SELECT * FROM '{tmp_path / 'all.parquet'}'").fetchall()
    assert len(rows) == 4 * films.n_users
    for user in films.users.texts[:5]:
        expected = invoke("recommend", run, "--user", user, "-k", "4")["recommendations"]
        found = [row for row in rows if row[0] == user]
        assert [(row[1], row[3]) for row in found] == [(row["item"], row["score"]) for row in expected]


def test_arrays_are_those_of_the_embeddings(run: Path, films: Dataset, tmp_path: Path) -> None:
    assert invoke("export", run, "--out", tmp_path / "arrays")["dim"] == 8
    assert np.load(tmp_path / "arrays" / "items.npy").shape == (films.n_items, 8)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("blend=eese",), "blend has the part 'eese'; did you mean 'ease'?"),
        (("blend=filter+ease", "blend_weights=0.5"), "blend_weights has 1 numbers, but blend has 2 parts"),
        (("blend=filter", "blend_weights=-1"), "blend_weights is -1"),
        (("blend=filter", "blend_neighbours=0"), "blend_neighbours is 0, expected from 1 to 100000"),
        (("blend=lightgcn",), "it has embeddings and no weights between items"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_before_a_folder_is_made(
    settings: tuple[str, ...], sentence: str, data: Path, tmp_path: Path
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert sentence in refusal("train", data, *TRAIN, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_without_embeddings_is_refused(data: Path, tmp_path: Path) -> None:
    words = ("train", data, "--model", "ease", "--set", "blend=filter", "--out", tmp_path / "run")
    assert "model ease ranks by weights between items, not by embeddings" in refusal(*words)
    assert not (tmp_path / "run").exists()


def test_a_damaged_weights_file_is_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    content = bytearray((copy / "blend.safetensors").read_bytes())
    content[-3] ^= 1
    (copy / "blend.safetensors").write_bytes(content)
    assert "blend.safetensors is damaged or not a dgcf checkpoint" in refusal("evaluate", copy)

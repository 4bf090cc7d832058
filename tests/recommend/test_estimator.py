"""The recommender as an estimator: parameters that are checked and listed, columns of a frame, measuring, display."""

from __future__ import annotations

import inspect
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dgcf
from dgcf.data import Dataset, load
from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError, DataError, DataWarning
from dgcf.models.catalog import CATALOG
from dgcf.recommend import Recommender
from dgcf.recommend.wording import as_arguments
from dgcf.train import Size, resolve
from dgcf.train.presets import DEFAULT, PRESETS
from dgcf.train.recipe import setting_keys
from tests.cli.in_process import invoke

QUICK: dict[str, Any] = {"layers": 1, "dim": 4, "epochs": 3, "device": "cpu"}
LIGHT: dict[str, Any] = {**QUICK, "preset": "plain"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared dataset, and a run trained on it with default settings."""
    folder = tmp_path_factory.mktemp("estimator")
    planted(120, 80).save(folder / "films")
    words = ("--out", folder / "run", "--device", "cpu", "--set", "epochs=4", "--set", "dim=8", "--no-baselines")
    (folder / "train.json").write_text(json.dumps(invoke("train", folder / "films", *words)))
    return folder


@pytest.fixture(scope="module")
def films(folder: Path) -> Dataset:
    return Dataset.load(folder / "films")


@pytest.fixture(scope="module")
def rec(films: Dataset) -> Recommender:
    return Recommender("lightgcn", **LIGHT).fit(films)


# -- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "parameters", "message"),
    [
        ("lightgnc", {}, "there is no model 'lightgnc'; did you mean 'lightgcn'?"),
        ("dgcf", {"layrs": 3}, "model dgcf has no setting 'layrs'; did you mean 'layers'?"),
        ("dgcf", {"preset": "papr"}, "there is no preset 'papr'; did you mean 'paper'?"),
        ("dgcf", {"layers": "3"}, "layers of model dgcf is '3', expected"),
        ("dgcf", {"dim": 0}, "dim is 0, expected from 1"),
        ("ease", {"epochs": 3}, "model ease is solved at once"),
    ],
    ids=["model", "setting", "preset", "type", "range", "solved"],
)
def test_constructor_refuses_what_the_command_line_refuses(
    model: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        Recommender(model, **parameters)
    assert message in str(refusal.value)
    words = {key: value for key, value in parameters.items() if key != "preset"}
    with pytest.raises(ConfigError) as same:
        resolve(model, preset=parameters.get("preset", DEFAULT), settings=words)
    assert as_arguments(str(same.value)) == str(refusal.value)


def test_refused_parameters_change_nothing() -> None:
    rec = Recommender("lightgcn", layers=2)
    before = rec.get_params()
    for parameters in ({"model": "lightgnc"}, {"layrs": 1}, {"dim": 8, "layers": 99}):
        with pytest.raises(ConfigError):
            rec.set_params(**parameters)
        assert rec.get_params() == before


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", CATALOG)
def test_all_settings_are_listed_and_make_the_same_recommender(model: str, preset: str) -> None:
    rec = Recommender(model, preset=preset, seed=3)
    listed = rec.get_params()
    assert set(listed) == {"model", "preset", "seed", "device", *setting_keys(CATALOG[model])}
    again = Recommender(**listed)
    assert again.get_params() == listed
    assert all(again.get_params()[name] is value for name, value in listed.items())  # as scikit-learn's clone tests
    for name, size in (("", Size(1000, 500, 40_000)), ("ml-1m", Size(6000, 4000, 800_000))):
        first, second = (
            resolve(one.model, dataset=name, preset=preset, settings=one.settings, size=size) for one in (rec, again)
        )
        assert first.settings() == second.settings()
        values = first.settings()
        assert {key: value for key, value in listed.items() if key in values and value is not None} == {
            key: values[key] for key, value in listed.items() if key in values and value is not None
        }


def test_settings_derived_from_the_data_are_none() -> None:
    assert {name for name, value in Recommender("dgcf").get_params().items() if value is None} == {
        "batch_size",
        "epochs",
    }
    assert Recommender("dgcf", batch_size=64, epochs=7).get_params()["batch_size"] == 64
    paper = Recommender("dgcf", preset="paper").get_params()
    assert {"layers", "dim", "learning_rate", "epsilon"} <= {name for name, value in paper.items() if value is None}
    assert None not in {Recommender("dgcf", preset="plain").get_params()[name] for name in ("batch_size", "epochs")}


def test_settings_of_the_preset_follow_it() -> None:
    """Of an unchanged clone, another preset, loss or model has its own values; what was changed stays."""
    clone = Recommender(**Recommender("dgcf", dim=16).get_params())
    assert clone.set_params(preset="plain").get_params() == Recommender("dgcf", preset="plain", dim=16).get_params()
    clone = Recommender(**Recommender("dgcf", dim=16).get_params())
    softmax = clone.set_params(loss="softmax")
    assert softmax.get_params() == Recommender("dgcf", dim=16, loss="softmax").get_params()
    assert resolve("dgcf", settings=softmax.settings).train.n_negatives == 1024
    other = Recommender(**Recommender("dgcf", dim=16).get_params()).set_params(model="lightgcn")
    assert other.get_params() == Recommender("lightgcn", dim=16).get_params()
    kept = Recommender("dgcf", loss="softmax", negatives=8).set_params(dim=4)
    assert kept.get_params()["negatives"] == 8


def test_default_preset_is_that_of_the_command_line(folder: Path, films: Dataset) -> None:
    assert inspect.signature(Recommender).parameters["preset"].default == DEFAULT
    trained = json.loads((folder / "train.json").read_text())
    rec = Recommender(epochs=4, dim=8, device="cpu").fit(films)
    assert rec.preset == trained["preset"]
    assert rec.snapshot.about["settings"] == trained["settings"]
    assert rec.metrics["validation"] == pytest.approx(trained["validation"], abs=1e-6)


# -- columns and progress ---------------------------------------------------------------------------------------------


@pytest.fixture
def export() -> pd.DataFrame:
    """An export with columns of uncommon names, and ratings that must not be taken for anything else."""
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((30, 20)) < 0.5)
    return pd.DataFrame(
        {
            "who": [f"w{user}" for user in users],
            "what": [f"a{item}" for item in items],
            "stars": rng.integers(1, 6, len(users)),
            "seconds": np.arange(len(users)),
            "label": [f"Thing {item}" for item in items],
            "pieces": rng.integers(1, 9, len(users)),
        }
    )


def test_columns_of_a_frame_are_named_in_fit(export: pd.DataFrame) -> None:
    rec = Recommender("lightgcn", **LIGHT).fit(
        export, user_col="who", item_col="what", rating_col="stars", timestamp_col="seconds", title_col="label"
    )
    assert set(rec.users) == set(export["who"])
    assert set(rec.items) == set(export["what"])
    assert rec.recommend("w1", 1)["title"][0].startswith("Thing ")
    kept = Recommender("lightgcn", **LIGHT).fit(export, user_col="who", item_col="what", where="stars >= 3")
    wanted = {(u, i) for u, i, s in zip(export["who"], export["what"], export["stars"], strict=True) if s >= 3}
    assert len(kept.snapshot.seen) == len(wanted)


def test_ids_that_may_stand_for_missing_ones_are_warned_of_in_fit(tmp_path: Path) -> None:
    rows = [(f"u{user}", f"i{item}") for user in range(200) for item in range(user % 7, user % 7 + 4)]
    frame = pd.DataFrame([*rows, *(("guest", f"i{item}") for item in range(300))], columns=["user", "item"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for source in (frame, tmp_path / "rows.csv"):
        with pytest.warns(DataWarning, match=r"'guest' has 300 of 1,100 pairs .* with where=\"user <> 'guest'\"\.$"):
            Recommender("popularity").fit(source)
        Recommender("popularity").fit(source, where="user <> 'guest'")
    prepared = load(frame)
    Recommender("popularity").fit(prepared)  # without a warning, as the notes were there to see
    prepared.save(tmp_path / "set")
    Recommender("popularity").fit(tmp_path / "set")


def test_weights_of_a_frame_are_read(export: pd.DataFrame) -> None:
    columns = {"user_col": "who", "item_col": "what"}
    weighted = Recommender("item-knn", weighted=True).fit(export, **columns, weight_col="pieces")
    assert len(weighted.users) == 30
    plain = Recommender("item-knn").fit(export, **columns, weight_col="pieces")
    assert plain.recommend("w1", 5)["score"] != weighted.recommend("w1", 5)["score"]
    assert plain.recommend("w1", 5) == Recommender("item-knn").fit(export, **columns).recommend("w1", 5)
    with pytest.raises(DataError, match="weight"):
        Recommender("item-knn", weighted=True).fit(export, **columns)


def test_unknown_option_of_reading_is_refused(export: pd.DataFrame) -> None:
    with pytest.raises(ConfigError, match="fit has no setting 'wher'; did you mean 'where'"):
        Recommender("ease").fit(export, wher="stars > 3")
    with pytest.raises(DataError, match=r"no column 'whom' for the user.*correct user_col"):
        Recommender("ease").fit(export, user_col="whom", item_col="what")


def test_errors_name_arguments_in_place_of_options(export: pd.DataFrame, tmp_path: Path) -> None:
    columns = {"user_col": "who", "item_col": "what"}
    with pytest.raises(ConfigError, match=r"change it with layers=…"):
        Recommender("lightgcn", layers=-1)
    with pytest.raises(DataError, match=r"name it with user_col\.$"):
        Recommender("ease").fit(export)
    export.loc[3, "who"] = None
    with pytest.raises(DataError, match=r"leave such rows out with missing='skip'\.$"):
        Recommender("ease").fit(export, **columns)
    rec = Recommender("ease").fit(export, **columns, missing="skip")
    with pytest.raises(DataError, match=r"`dgcf data prepare --keep-times`, .* or leave window out"):
        rec.update(export.dropna(), window="30d", timestamp_col="none")
    with pytest.raises(ConfigError, match="evaluate has no setting 'user_cols'; did you mean 'user_col'"):
        rec.evaluate(export, user_cols="who")


def test_other_rows_are_measured_as_those_of_fit_were_read(export: pd.DataFrame) -> None:
    columns = {"user_col": "who", "item_col": "what"}
    rec = Recommender("ease").fit(export, **columns, where="stars >= 2", title_col="label", weight_col="pieces")
    rows = export[["who", "what", "stars"]].sample(120, random_state=0)
    plain = rows[rows["stars"] >= 2].rename(columns={"who": "user", "what": "item"})
    wanted = dict(Recommender.of(rec.snapshot).evaluate(plain, k=5))
    assert dict(rec.evaluate(rows, k=5)) == wanted
    assert dict(rec.evaluate(plain, k=5, user_col="user", item_col="item")) == wanted
    with pytest.raises(DataError, match=r"no column 'who' for the user.*correct user_col"):
        rec.evaluate(plain)
    with pytest.raises(ConfigError, match="where is for reading other data"):
        rec.evaluate(where="stars >= 2")


def test_columns_of_a_prepared_dataset_are_refused(films: Dataset) -> None:
    with pytest.raises(ConfigError, match="prepared already"):
        Recommender("ease").fit(films, user_col="who")


def test_progress_is_shown_on_request(films: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for progress, shown in ((True, True), (None, False), (False, False)):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        Recommender("lightgcn", **LIGHT).fit(films, progress=progress)
        assert ("epoch 3/3" in stream.getvalue()) == shown


# -- measuring --------------------------------------------------------------------------------------------------------


def test_evaluation_equals_that_of_the_command_line(folder: Path) -> None:
    rec = dgcf.load(folder / "run")
    for split, mask, k in (("test", "train", 10), ("test", "train+validation", 20), ("validation", "train", 5)):
        wanted = invoke("evaluate", folder / "run", "--split", split, "--mask", mask, "--k", k, "--device", "cpu")
        measured = rec.evaluate(k=k, split=split, mask=mask)
        assert dict(measured) == pytest.approx({name: wanted[name] for name in measured}, abs=1e-12)
        assert (measured.split, measured.mask, measured.users_evaluated) == (split, mask, wanted["users_evaluated"])
        assert f"{split}, mask {mask}, {wanted['users_evaluated']} users" in repr(measured)
    assert measured[f"recall@{k}"] == measured.to_dict()[f"recall@{k}"]
    assert rec.evaluate(k=[5, 10]).keys() >= {"recall@5", "ndcg@10"}


def test_fitted_recommender_is_measured_on_its_test_split(rec: Recommender, films: Dataset, folder: Path) -> None:
    own = rec.evaluate(k=10)
    assert dict(rec.evaluate(films, k=10)) == dict(own)
    assert dict(rec.evaluate(folder / "films", k=10)) == dict(own)
    rows = pd.DataFrame(
        {
            "user": [films.users.texts[user] for user in films.test.user_idx],
            "item": [films.items.texts[item] for item in films.test.indices],
        }
    )
    assert dict(rec.evaluate(rows, k=10)) == pytest.approx(dict(own))
    rows["user"] = "stranger " + rows["user"]
    with pytest.raises(DataError, match="no user of dataframe is one of those"):
        rec.evaluate(rows)


def test_metrics_are_known_after_measuring(films: Dataset) -> None:
    rec = Recommender("lightgcn", **LIGHT).fit(films)
    assert set(rec.metrics) == {"validation"}
    assert rec.metrics["validation"]["recall@20"] > 0
    measured = rec.evaluate()
    assert rec.metrics["test"] == dict(measured)
    assert set(rec.fit(films).metrics) == {"validation"}


def test_metrics_of_a_run_are_those_that_training_printed(folder: Path) -> None:
    """Of a composed ranking, they are those of the composition."""
    trained = json.loads((folder / "train.json").read_text())
    assert trained["blending"]["validation"]
    assert dgcf.load(folder / "run").metrics == {"validation": pytest.approx(trained["validation"])}


def test_without_held_out_pairs_evaluation_says_what_to_do(films: Dataset, rec: Recommender, tmp_path: Path) -> None:
    whole = Recommender("lightgcn", **LIGHT).fit(films, on="everything")
    with pytest.raises(DataError, match=r"trained on the pairs of all splits.*evaluate\(data\)"):
        whole.evaluate()
    loaded = dgcf.load(rec.save(tmp_path / "films.dgcf"))
    with pytest.raises(DataError, match=r"loaded from a file.*evaluate\(data\)"):
        loaded.evaluate()
    assert dict(loaded.evaluate(films)) == dict(rec.evaluate(films))
    with pytest.raises(ConfigError, match="the split is 'tests', expected one of"):
        rec.evaluate(split="tests")


def test_moved_dataset_is_named_with_the_option(folder: Path, tmp_path: Path) -> None:
    from tests.cli.in_process import refusal

    moved = tmp_path / "films"
    (folder / "films").rename(moved)
    try:
        for words in (["evaluate", folder / "run"], ["compare", folder / "run", folder / "run"]):
            sentence = refusal(*words)
            assert "does not exist any more" in sentence
            assert "--data" in sentence
        assert "dgcf train DATA --resume" in refusal("train", "--resume", folder / "run")
        with pytest.raises(DataError, match="data="):
            dgcf.load(folder / "run").evaluate()
        assert dgcf.load(folder / "run", data=moved).evaluate()["recall@20"] > 0
    finally:
        moved.rename(folder / "films")


# -- ids and display --------------------------------------------------------------------------------------------------


def test_ids_are_sequences(rec: Recommender, films: Dataset) -> None:
    assert list(rec.users) == films.users.texts
    assert len(rec.items) == films.n_items
    assert rec.items[0] == films.items.texts[0]
    assert rec.items[-2:] == films.items.texts[-2:]
    assert films.users.texts[5] in rec.users
    assert "nobody" not in rec.users
    assert rec.users.index(films.users.texts[5]) == 5
    with pytest.raises(ValueError, match="'nobody' is not one of the 120 users"):
        rec.users.index("nobody")
    with pytest.raises(IndexError):
        rec.items[films.n_items]
    assert repr(rec.users).endswith("… 120 users]")
    assert rec.recommend(rec.users[:3], 1)["user"] == rec.users[:3]


def test_recommender_is_shown_in_one_line_with_its_metrics(rec: Recommender) -> None:
    shown = repr(rec)
    assert len(shown) <= 120
    assert "\n" not in shown
    assert shown.startswith("<Recommender lightgcn: 120 users, 80 items of ")
    assert f"validation ndcg@20 {rec.metrics['validation']['ndcg@20']:.4f}" in shown
    assert repr(Recommender("lightgcn", layers=2)) == "<Recommender('lightgcn', layers=2), not fitted>"


def test_notebook_shows_the_metrics_as_a_table(films: Dataset) -> None:
    rec = Recommender("lightgcn", **LIGHT)
    assert "not fitted" in rec._repr_html_()
    rec.fit(films.renamed("a <b>"))
    page = rec._repr_html_()
    assert "a &lt;b&gt;" in page
    assert f"<td>recall@20</td><td>{rec.metrics['validation']['recall@20']:.4f}</td>" in page
    test = rec.evaluate()
    assert f"<td>{test['recall@20']:.4f}</td>" in rec._repr_html_()
    assert "mask train" in test._repr_html_()

"""Recipes: presets for each dataset and model, and settings over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from dgcf.data import load
from dgcf.errors import ConfigError
from dgcf.experiments.search import search_for
from dgcf.models import CATALOG
from dgcf.train import TrainConfig, resolve
from dgcf.train.plan import On, Plan
from dgcf.train.presets import PRESETS, Size, settings_of_update


@pytest.mark.parametrize(
    ("dataset", "layers", "rate", "l2", "dim", "epsilon"),
    [
        ("deoscirec/ml-100k", 3, 1e-3, 1e-2, 128, 0.006),
        ("paper/ml-100k", 3, 1e-3, 1e-2, 128, 0.006),
        ("ml-100k", 3, 1e-3, 1e-2, 128, 0.006),
        ("deoscirec/ml-1m", 2, 1e-3, 1e-2, 64, 0.001),
        ("deoscirec/amazon-movies-tv", 4, 1e-4, 1e-2, 128, 0.003),
        ("deoscirec/gowalla", 3, 1e-4, 1e-3, 128, 0.004),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "official-code"])
def test_paper_preset_matches_the_papers_table(
    preset: str, dataset: str, layers: int, rate: float, l2: float, dim: int, epsilon: float
) -> None:
    found = resolve("dgcf", dataset=dataset, preset=preset).settings()
    assert [found[key] for key in ("layers", "learning_rate", "l2", "dim", "epsilon", "edge_dropout")] == [
        layers,
        rate,
        l2,
        dim,
        epsilon,
        0.1,
    ]


@pytest.mark.parametrize("name", ["gowalla", "amazon-movies-tv", "ml-1m", "ml-100k"])
def test_a_file_with_the_name_of_known_data_has_no_settings_of_that_data(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.csv"
    path.write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user in range(9) for item in range(7)))
    dataset = load(path)
    assert dataset.name == name
    for preset in ("paper", "official-code"):
        expected = resolve("dgcf", preset=preset).settings()
        assert expected != resolve("dgcf", preset=preset, dataset=name).settings()
        plans = [Plan("dgcf", preset, {"epochs": expected["epochs"]}, on) for on in get_args(On)]
        assert [plan.last_stage(dataset)[1].settings() for plan in plans] == [expected] * len(plans)
        assert search_for(dataset, preset=preset, out=tmp_path / "study").recipe.settings() == expected


@pytest.mark.data("deoscirec/ml-100k")
def test_known_data_under_another_name_has_its_settings() -> None:
    dataset = load("deoscirec/ml-100k").renamed("mine")
    expected = resolve("dgcf", preset="paper", dataset="deoscirec/ml-100k").settings()
    plans = [Plan("dgcf", "paper", {"epochs": expected["epochs"]}, on) for on in get_args(On)]
    assert [plan.last_stage(dataset)[1].settings() for plan in plans] == [expected] * len(plans)


def test_official_code_preset_differs_from_paper_preset() -> None:
    paper, code = (resolve("dgcf", dataset="ml-100k", preset=name).settings() for name in ("paper", "official-code"))
    assert {key: (paper[key], code[key]) for key in ("self_loop", "cross_below_one", "dropout_draws", "sampler")} == {
        "self_loop": (True, False),
        "cross_below_one": (False, True),
        "dropout_draws": ("layer", "step"),
        "sampler": ("interaction", "user"),
    }
    assert (code["evaluate_every"], code["min_epochs"], code["patience"]) == (1, 0, 5)
    assert paper["min_epochs"] > 0


@pytest.mark.parametrize("model", CATALOG)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dataset", ["ml-1m", "gowalla", "mine", "/a/path/to/mine"])
def test_every_preset_resolves_for_every_model_and_dataset(model: str, preset: str, dataset: str) -> None:
    found = resolve(model, preset=preset, dataset=dataset)
    again = resolve(model, preset="plain", settings=found.settings())
    assert again.settings() == found.settings()


def test_baseline_presets_have_no_dgcf_settings() -> None:
    found = resolve("lightgcn", dataset="ml-1m", preset="paper").settings()
    assert found["edge_dropout"] == 0
    assert "epsilon" not in found
    assert "layers" not in resolve("bpr-mf", dataset="ml-1m", preset="paper").settings()


def test_settings_override_the_preset() -> None:
    given = {"layers": 4, "epsilon": "auto", "l2": 0}
    found = resolve("dgcf", dataset="ml-1m", preset="paper", settings=given).settings()
    assert (found["layers"], found["epsilon"], found["l2"], found["dim"]) == (4, "auto", 0, 64)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_number_of_negatives_follows_the_loss(preset: str) -> None:
    def found(**settings: Any) -> dict[str, Any]:
        return resolve("dgcf", preset=preset, settings=settings).settings()

    assert TrainConfig().n_negatives == 1
    assert found(loss="bpr")["negatives"] == 1
    assert found(loss="softmax")["negatives"] == 1024
    assert found(loss="softmax", negatives=7)["negatives"] == 7
    assert found(loss="bpr-hardest")["negatives"] == 8
    without = found(loss="directau")
    assert without["negatives"] == 0
    assert found(**without) == without


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers is 0, expected from 1 to 64"),
        ({"layers": 500}, "layers is 500, expected from 1 to 64"),
        ({"dim": 0}, "dim is 0, expected from 1"),
        ({"l2": -1e-3}, "l2 is -0.001, expected from 0"),
        ({"layer": 3}, "model dgcf has no setting 'layer'; did you mean 'layers'?"),
        ({"learning_rat": 1}, "model dgcf has no setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"edge_dropout": 1.0}, "edge_dropout is 1.0"),
        ({"temperature": 0.0}, "temperature is 0.0, expected above 0"),
        ({"negatives": 0}, "negatives is 0"),
        ({"negatives": 2_000_000_000}, "negatives is 2000000000, expected from 1 to 1024"),
        ({"loss": "directau", "negatives": 2}, "negatives is 2, but the loss directau has none"),
        ({"loss": "softmax", "popularity": -0.5}, "popularity is -0.5, expected from 0 to 2"),
        ({"popularity": 0.5}, "popularity is 0.5, but the loss bpr shares no negatives in a batch; leave it out"),
        ({"loss": "directau", "popularity": 1.0}, "popularity is 1, but the loss directau shares no negatives"),
        ({"recency": -0.1}, "recency is -0.1, expected from 0 to 10"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"loss": "brp"}, "loss of training is 'brp', expected 'bpr', 'bpr-hardest', 'softmax', 'softmax-prod"),
        ({"readout": "sum"}, "readout of model dgcf is 'sum', expected 'mean' or 'last'"),
        ({"epsilon": 2.0}, "epsilon is 2.0"),
        ({"epsilon": "atuo"}, "epsilon of model dgcf is 'atuo'"),
        ({"self_loop": "no"}, "self_loop of model dgcf is 'no', expected boolean"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("dgcf", preset="paper", settings=settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no preset 'papper'; did you mean 'paper'\?"):
        resolve("dgcf", preset="papper")
    with pytest.raises(ConfigError, match=r"no model 'dgfc'; did you mean 'dgcf'\?"):
        resolve("dgfc")
    with pytest.raises(ConfigError, match="model bpr-mf has no setting 'layers'"):
        resolve("bpr-mf", settings={"layers": 2})


@pytest.mark.parametrize(("batch", "expected"), [(1024, 2048), (300, None)], ids=["default", "set"])
def test_update_has_the_default_batch_size_of_its_own_data(batch: int, expected: int | None) -> None:
    before, after = Size(10, 10, 100_000), Size(10, 10, 110_000)
    assert resolve("dgcf", size=before).train.batch_size == 1024
    own = {**resolve("dgcf", size=before).settings(), "batch_size": batch}
    assert settings_of_update("default", own, before, after, ordered=False).get("batch_size") == expected
    assert settings_of_update("plain", own, before, after, ordered=True) == {}


def test_update_favours_recent_pairs_unless_the_training_drew_by_weights_or_order() -> None:
    size, own = Size(10, 10, 1000), resolve("dgcf").settings()
    for changed, expected in (({}, 0.5), ({"weighted_sampling": True}, None), ({"recency": 0.7}, None)):
        replaced = settings_of_update("default", {**own, **changed}, size, size, ordered=True)
        assert replaced.get("recency") == expected

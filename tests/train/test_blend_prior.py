"""The prior of a composed ranking: recent popularity, on data whose last pairs are of few items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.ranking.blend import Blend
from dgcf.ranking.rankings import Embeddings
from dgcf.train.api import is_forecast
from dgcf.train.blend import BlendConfig, Blender, Blending, fit
from dgcf.train.blend.config import RECENT
from tests.train.test_blend import dense, sums

METRIC = "ndcg@5"
TRENDY = 8
"""Items from this number on are those of the last tenth of the pairs, and of validation."""


@pytest.fixture(scope="module")
def trend(dataset: Dataset) -> Dataset:
    """The planted data with times: pairs of the last items come last, and validation, later, has these alone."""
    train, rng = dataset.train, np.random.default_rng(3)
    last = train.n_items - TRENDY
    time = np.where(train.indices >= last, 1e9 + 1e6 * rng.random(len(train)), 1e9 * rng.random(len(train)))
    users = np.flatnonzero(train.user_degrees)
    fresh = Pairs.from_indices(users, rng.integers(last, train.n_items, len(users)), train.n_users, train.n_items)
    later = fresh.without(train)
    validation = replace(later, time=np.full(len(later), time.max()))
    return replace(dataset, train=replace(train, time=time), validation=validation)


@pytest.fixture(scope="module")
def embeddings(dataset: Dataset) -> Embeddings[Tensor]:
    rng = np.random.default_rng(5)
    users, items = rng.normal(size=(dataset.n_users, 4)), rng.normal(size=(dataset.n_items, 4))
    return Embeddings(torch.tensor(users, dtype=torch.float32), torch.tensor(items, dtype=torch.float32))


def blender(dataset: Dataset, validated: bool = True, **settings: str | float) -> Blender:
    validate = validator(dataset, METRIC) if validated else None
    config = BlendConfig(**settings)  # type: ignore[arg-type]
    return Blender(config, dataset.train, METRIC, validate, forecast=is_forecast(dataset))


@pytest.fixture(scope="module")
def chosen(trend: Dataset, embeddings: Embeddings[Tensor]) -> Blending:
    return blender(trend, blend="auto").fit(embeddings)


def test_auto_adds_what_is_popular_of_late(chosen: Blending, trend: Dataset, embeddings: Embeddings[Tensor]) -> None:
    """Validation decides for it, and the scores are the dense sum of the three terms."""
    (popular,) = [part for part in chosen.parts if part["part"].startswith("popularity")]
    assert popular["part"] in map(str, RECENT)
    untimed = replace(trend, train=replace(trend.train, time=None))
    assert chosen.validation[METRIC] > blender(untimed, blend="auto").fit(embeddings).validation[METRIC] + 0.1
    ranking = chosen.compose(embeddings, trend.train)
    assert isinstance(ranking, Blend)
    expected = embeddings.users.double().numpy() @ embeddings.items.double().numpy().T
    expected += sums(trend.train, dense(ranking.weights)) + popular["factor"] * recent(trend.train, popular["part"])
    users = torch.arange(trend.n_users)
    np.testing.assert_allclose(ranking.scores(users), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ranking.to_numpy().scores(users.numpy()), expected, rtol=1e-4, atol=1e-4)


def recent(train: Pairs, part: str) -> NDArray[np.float64]:
    """Recent popularity by plain loops."""
    assert train.time is not None
    halflife, counts = float(part.partition("=")[2].rstrip(")")), np.zeros(train.n_items)
    for item, time in zip(train.indices, train.time, strict=True):
        counts[item] += 0.5 ** (float((train.time > time).mean()) / halflife)
    return counts


def test_at_most_one_half_life_has_a_weight(chosen: Blending) -> None:
    """Every weight of the grid is tried for each of them."""
    tried = [point["weights"] for point in chosen.curve if "weights" in point]
    assert all(sum(weight > 0 for weight in weights[-len(RECENT) :]) <= 1 for weights in tried)
    for place in range(-len(RECENT), 0):
        assert {weights[place] for weights in tried} == set(fit.GRID)


@pytest.mark.parametrize("times", ["unknown", "of training alone", "mixed"])
def test_auto_has_no_prior_unless_validation_is_later(
    times: str, trend: Dataset, embeddings: Embeddings[Tensor]
) -> None:
    """The same weightings are tried as without times."""
    train, validation = trend.train, trend.validation
    assert train.time is not None
    known = {"unknown": np.full(len(validation), 9e9), "mixed": np.full(len(validation), train.time.max() - 1)}
    train = replace(train, time=None) if times == "unknown" else train
    split = replace(trend, train=train, validation=replace(validation, time=known.get(times)))
    blending = blender(split, blend="auto").fit(embeddings)
    assert blending.prior is None
    assert all(len(point["weights"]) == 2 for point in blending.curve if "weights" in point)


def test_a_prior_alone_is_added_without_item_weights(trend: Dataset, embeddings: Embeddings[Tensor]) -> None:
    blending = blender(trend, False, blend="popularity", blend_weights=2.0).fit(embeddings)
    assert blending.weights is not None
    assert len(blending.weights.values) == 0
    added = np.asarray(blending.compose(embeddings, trend.train).scores(torch.arange(5)) - embeddings.scores(range(5)))
    degrees = trend.train.item_degrees * blending.parts[0]["factor"]
    np.testing.assert_allclose(added, np.tile(degrees, (5, 1)), atol=1e-5)
    spread = float(embeddings.users.matmul(embeddings.items.T).std(dim=1, correction=0).mean())
    assert degrees.std() == pytest.approx(2 * spread, rel=1e-3)


def test_two_named_priors_are_summed(trend: Dataset, embeddings: Embeddings[Tensor]) -> None:
    one, other = "popularity", "popularity(halflife=0.1)"
    both = blender(trend, False, blend=f"{one}+{other}", blend_weights="1+0.5").fit(embeddings)
    each = [blender(trend, False, blend=name, blend_weights=1).fit(embeddings).prior for name in (one, other)]
    assert each[0] is not None
    np.testing.assert_allclose(both.prior, each[0] + 0.5 * np.asarray(each[1]), rtol=1e-5)


def test_without_validation_auto_has_no_prior(trend: Dataset, embeddings: Embeddings[Tensor]) -> None:
    assert blender(trend, False, blend="auto").fit(embeddings).prior is None


def test_the_settings_of_a_choice_give_it_again(
    chosen: Blending, trend: Dataset, embeddings: Embeddings[Tensor]
) -> None:
    again = blender(trend, False, **chosen.settings()).fit(embeddings)
    assert again.parts == chosen.parts
    np.testing.assert_array_equal(again.prior, chosen.prior)


def stored(blending: Blending) -> dict[str, Tensor]:
    return {name.removeprefix("blend."): tensor for name, tensor in blending.tensors().items()}


def test_a_choice_survives_its_record(chosen: Blending) -> None:
    again = Blending.of(json.loads(json.dumps(chosen.to_dict())), stored(chosen), 48)
    assert again.to_dict() == chosen.to_dict()
    np.testing.assert_array_equal(again.prior, chosen.prior)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": torch.ones(47)}, "the blended prior has another number of values than of items"),
        ({"prior": torch.full((48,), torch.inf)}, "a number that is not finite"),
        ({"prior": torch.ones(48).double()}, "no array prior of float32"),
    ],
    ids=["cut", "infinite", "double"],
)
def test_a_prior_of_another_form_is_refused(chosen: Blending, change: Mapping[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Blending.of(chosen.to_dict(), {**stored(chosen), **change}, 48)


def test_a_named_half_life_needs_times(dataset: Dataset, embeddings: Embeddings[Tensor]) -> None:
    with pytest.raises(ConfigError, match="needs the time of every pair"):
        blender(dataset, blend="popularity(halflife=0.1)").fit(embeddings)

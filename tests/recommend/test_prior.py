"""The prior of a composed ranking in a recommender: its reason in words, and updates with and without times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.ranking.blend import Blend
from dgcf.ranking.weights import SparseWeights
from dgcf.recommend import Recommender, load
from dgcf.recommend.explain import POPULAR
from tests.recommend.conftest import random_dataset, untrained

HALFLIFE = "popularity(halflife=0.05)"


def test_a_prior_that_decides_is_the_first_reason() -> None:
    snapshot = untrained(random_dataset())
    for scale, first in ((100.0, True), (-100.0, False)):
        prior = np.full(snapshot.n_items, scale, dtype=np.float32)
        ranking = Blend(snapshot.embeddings, snapshot.train, SparseWeights.empty(snapshot.n_items), prior)
        result = Recommender.of(replace(snapshot, ranking=ranking)).explain(0, 3)
        assert [part.value for part in result.parts if part.title == POPULAR] == [scale]
        assert abs(result.residual) < 1e-4
        assert result.text().startswith(f"{result.title}: it is popular (") is first


@pytest.fixture(scope="module")
def timed() -> Dataset:
    """Random pairs with times, the last ones on item 0."""
    dataset = random_dataset(40, 30, seed=2)
    time = np.where(dataset.train.indices == 0, 2e9, 1e9 + np.arange(len(dataset.train)))
    held = dataset.test
    return replace(dataset, train=replace(dataset.train, time=time), test=replace(held, time=np.full(len(held), 3e9)))


@pytest.fixture(scope="module")
def trained(timed: Dataset) -> Recommender:
    rec = Recommender("lightgcn", seed=1, device="cpu", dim=4, epochs=1, blend=HALFLIFE, blend_weights=50.0)
    return rec.fit(timed)


def rows(time: float | None) -> Dataset:
    """Ten known users take to item 1."""
    users, items = Vocabulary.from_ids("user", range(10), "integer"), Vocabulary.from_ids("item", [1], "integer")
    pairs = Pairs.from_indices(np.arange(10), np.zeros(10, dtype=np.int64), 10, 1)
    none = Pairs.empty(10, 1)
    return Dataset("new", users, items, replace(pairs, time=None if time is None else np.full(10, time)), none, none)


def test_an_update_counts_new_pairs_as_the_latest(trained: Recommender) -> None:
    ranking = trained.snapshot.ranking
    assert isinstance(ranking, Blend)
    assert ranking.prior is not None
    assert int(ranking.prior.argmax()) == 0
    after = trained.update(rows(4e9), held_out=0.0, progress=False).snapshot
    assert isinstance(after.ranking, Blend)
    assert after.ranking.prior is not None
    assert int(after.ranking.prior.argmax()) == 1
    assert after.about["blend"]["blend"] == HALFLIFE


def test_an_update_without_times_leaves_the_prior_out(trained: Recommender, tmp_path: Path) -> None:
    """A saved recommender holds no times."""
    for rec, new in ((trained, rows(None)), (load(trained.save(tmp_path / "kept.dgcf")), rows(4e9))):
        after = rec.update(new, held_out=0.0, progress=False)
        assert not isinstance(after.snapshot.ranking, Blend)
        assert len(after.recommend(0, 3)) == 3

"""Datasets of the experiments: built, split, ordered and checked as their entries say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dgcf.data import load
from dgcf.errors import ConfigError, DataError
from dgcf.experiments.reproduce.datasets import Source, carve_validation, open_dataset, resplit, restore_order
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.runner import Runner
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import Workspace
from tests.ordering import dataset_in_order


def test_dataset_with_another_fingerprint_is_refused(small: Workspace) -> None:
    text = (small.root / "recipes" / "reproduce" / "data.toml").read_text()
    small.write("data", text.replace('fingerprints = ["', 'fingerprints = ["0'))
    with pytest.raises(DataError, match="it is other data; prepare it again"):
        small.runner.run("first")


@pytest.mark.data("movielens/ml-100k")
def test_dataset_in_another_order_is_refused(tmp_path: Path) -> None:
    dataset = dataset_in_order(load("planted"))
    source = Source("small", "Small", "planted", "small", 1, (dataset.fingerprint,), order=dataset.order or "")
    dataset.save(tmp_path / "small")
    assert open_dataset(source, 0, tmp_path).order == dataset.order
    for other in (dataset_in_order(load("planted"), seed=1), load("planted")):
        other.save(tmp_path / "small", overwrite=True)
        with pytest.raises(DataError, match="it is in another order; prepare it again with"):
            open_dataset(source, 0, tmp_path)


def test_wrong_fingerprint_in_recipe_is_reported() -> None:
    source = Recipes.read(PROJECT / "recipes").sources["ml-100k-779"]
    with pytest.raises(DataError, match="it is other data; correct the recipe"):
        open_dataset(replace(source, fingerprints=source.fingerprints[::-1]), 0)


def test_missing_prepared_dataset_is_refused(small: Workspace) -> None:
    with pytest.raises(DataError, match="is not a prepared dataset"):
        Runner(small.recipes, small.store, small.root / "elsewhere", "cpu").run("first")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("seeds = 2", 'seeds = "5"'),
            r"seeds of dataset small of .*data\.toml is '5', expected a whole number from 1",
        ),
        (("seeds = 2", "seeds = 0"), r"seeds of dataset small of .*data\.toml is 0, expected a whole number from 1"),
        (
            ("seeds = 2", "seeds = 2\nvalidation_of = 3"),
            r"validation_of of dataset small of .*data\.toml is 3, expected",
        ),
        (("fingerprints = [", "fingerprints = 'a' #"), r"fingerprints of dataset small of .*expected a list of words"),
        (('family = "small"\n', ""), r"dataset small of .*data\.toml has no family; give it title, known, family"),
        (("[small]", "small = 3\n[smaller]"), r"data\.toml has small = 3 outside any dataset"),
    ],
    ids=str,
)
def test_error_in_dataset_entry_is_reported(small: Workspace, change: tuple[str, str], sentence: str) -> None:
    text = (small.root / "recipes" / "reproduce" / "data.toml").read_text()
    assert change[0] in text
    small.write("data", text.replace(*change))
    with pytest.raises(ConfigError, match=sentence):
        Recipes.read(small.root / "recipes")


@pytest.mark.data("lightgcn/gowalla")
@pytest.mark.data("deoscirec/gowalla")
def test_lightgcn_split_gets_a_validation_part() -> None:
    dataset = open_dataset(Recipes.read(PROJECT / "recipes").sources["lightgcn-gowalla"], 0)
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (718_459, 91_669, 217_242)


@pytest.mark.data("movielens/ml-100k")
def test_ml_100k_779_has_one_split_per_seed() -> None:
    source = Recipes.read(PROJECT / "recipes").sources["ml-100k-779"]
    datasets = [open_dataset(source, seed) for seed in range(5)]
    assert {(dataset.n_users, dataset.n_items) for dataset in datasets} == {(779, 1169)}
    assert len({dataset.fingerprint for dataset in datasets}) == 5
    assert len({dataset.pairs_fingerprint for dataset in datasets}) == 1
    with pytest.raises(ConfigError, match="has 5 random splits"):
        source.variant(5)


def test_carved_validation_part_comes_from_train_only() -> None:
    whole = load("planted")
    split, other = resplit(whole, 3), resplit(whole, 4)
    carved = carve_validation(split, other)
    assert carved.test == split.test
    assert carved.train.union(carved.validation) == split.train
    assert set(carved.validation.keys()) == set(split.train.keys()) & set(other.validation.keys())
    assert 0 < len(carved.validation) == len(split.train) - len(carved.train)
    with pytest.raises(DataError, match="differ in users or items"):
        carve_validation(split, load("checkerboard"))


def test_order_is_restored_from_a_dataset_with_the_same_pairs() -> None:
    whole = dataset_in_order(load("planted"))
    split = resplit(whole, 3)
    assert split.order is None
    ordered = restore_order(split, whole)
    assert ordered.fingerprint == split.fingerprint
    assert ordered.train.union(ordered.validation, ordered.test).place is not None
    pairs = whole.train.union(whole.validation, whole.test)
    for part in (ordered.train, ordered.validation, ordered.test):
        at = np.searchsorted(pairs.keys(), part.keys())
        assert part.place is not None
        assert pairs.place is not None
        assert np.array_equal(part.place, pairs.place[at])
    cut = carve_validation(ordered, resplit(whole, 4))
    assert cut.train.union(cut.validation).count_later().tolist() == ordered.train.count_later().tolist()
    with pytest.raises(DataError, match="has no order of its pairs; name another dataset as order_of"):
        restore_order(whole, split)
    with pytest.raises(DataError, match="name another dataset as order_of"):
        restore_order(split, load("checkerboard"))


@pytest.mark.data("lightgcn/gowalla")
@pytest.mark.data("deoscirec/gowalla")
def test_lightgcn_split_takes_the_order_of_the_authors_files() -> None:
    sources = Recipes.read(PROJECT / "recipes").sources
    with_order, without = open_dataset(sources["lightgcn-gowalla-ordered-whole"], 0), load("lightgcn/gowalla")
    assert with_order.fingerprint == without.fingerprint
    assert without.order is None
    train, test = with_order.train, with_order.test
    assert train.place is not None
    assert test.place is not None
    last, first = np.maximum.reduceat(train.place, train.indptr[:-1]), np.minimum.reduceat(test.place, test.indptr[:-1])
    assert (last < first).all()


def test_resplit_by_another_seed_keeps_the_pairs() -> None:
    whole = load("planted")
    again = resplit(whole, 3)
    assert again.pairs_fingerprint == whole.pairs_fingerprint
    assert again.fingerprint != resplit(whole, 4).fingerprint

"""The evaluator end to end: who is evaluated, what is hidden, and that nothing else moves the numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.metrics import METRICS
from dgcf.models import Embeddings

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())


@dataclass
class Three:
    train: Pairs
    validation: Pairs
    test: Pairs


def pairs(lists, n_items):
    users = np.repeat(np.arange(len(lists)), [len(items) for items in lists])
    items = np.array([item for items in lists for item in items], dtype=np.int64)
    return Pairs.from_indices(users, items, len(lists), n_items)


def three(train, validation, test, n_items):
    return Three(pairs(train, n_items), pairs(validation, n_items), pairs(test, n_items))


class Table:
    def __init__(self, scores):
        self.table = torch.as_tensor(scores, dtype=torch.float32)

    def scores(self, user_idx):
        return self.table[user_idx]


def planted(n_users=300, n_items=700, dim=64):
    """A random dataset of three splits and a float32 inner-product model of it."""
    rng = np.random.default_rng(0)
    which = rng.choice(4, p=[0.9, 0.05, 0.02, 0.03], size=(n_users, n_items))
    splits = [Pairs.from_indices(*np.nonzero(which == part), n_users, n_items) for part in (1, 2, 3)]
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, dim, generator=generator) for n in (n_users, n_items))
    return Three(*splits), Embeddings(users, items)


def test_golden_values_of_evaluator():
    n_items = len(GOLDEN["scores"][0])
    splits = three(GOLDEN["seen"], [[]] * len(GOLDEN["seen"]), GOLDEN["relevant"], n_items)
    ks = [int(k) for k in GOLDEN["metrics"]]
    result = Evaluator(splits, split="test", ks=ks).evaluate(Table(GOLDEN["scores"]))
    for k in ks:
        reference = GOLDEN["metrics"][str(k)]
        assert result.user_idx.tolist() == [row["user"] for row in reference["per_user"]]
        for name in METRICS:
            assert result.means[f"{name}@{k}"] == pytest.approx(reference["mean"][name], abs=1e-12)
            expected = [row[name] for row in reference["per_user"]]
            np.testing.assert_allclose(result.value(f"{name}@{k}"), expected, atol=1e-12)


def test_chunk_and_memory_do_not_change_results():
    splits, scorer = planted()
    whole = Evaluator(splits, split="test", chunk=300).evaluate(scorer)
    for cut in ({"chunk": 1}, {"chunk": 7}, {}, {"memory": 4 * 2**20}):
        result = Evaluator(splits, split="test", **cut).evaluate(scorer)
        for name, value in whole.values.items():
            np.testing.assert_array_equal(result.values[name], value)
        assert result.to_dict(per_user=True) == whole.to_dict(per_user=True)


def test_cut_offs_are_independent():
    splits, scorer = planted()
    one = Evaluator(splits, ks=(5,)).evaluate(scorer)
    many = Evaluator(splits, ks=(50, 5, 10, 5)).evaluate(scorer)
    assert many.ks == (5, 10, 50)
    np.testing.assert_array_equal(one.value("ndcg@5"), many.value("ndcg@5"))


def test_mask_hides_the_items_of_its_splits():
    """Item 0 is train, 1 validation, 2 test; scored in this order, the mask alone decides the rank of 2."""
    splits = three([[0]], [[1]], [[2]], 4)
    scorer = Table([[4.0, 3.0, 2.0, 1.0]])
    ranks = {
        mask: Evaluator(splits, split="test", mask=mask, ks=(2,)).evaluate(scorer).means["mrr@2"]
        for mask in ("train", "train+validation")
    }
    assert ranks == {"train": 0.5, "train+validation": 1.0}
    assert Evaluator(splits, ks=(1,)).evaluate(scorer).means["recall@1"] == 1.0


def test_users_left_out_are_counted():
    splits = three([[0], [0], [], [1]], [[], [], [], []], [[1], [], [2], [0]], 3)
    scorer = Table(np.zeros((4, 3)))
    result = Evaluator(splits, split="test", ks=(1,)).evaluate(scorer)
    assert result.user_idx.tolist() == [0, 3]
    assert result.left_out == {"without_relevant": 1, "without_train": 1}
    assert result.means["recall@1"] == 1.0
    kept = Evaluator(splits, split="test", ks=(1,), cold_users=True).evaluate(scorer)
    assert kept.user_idx.tolist() == [0, 2, 3]
    assert kept.left_out == {"without_relevant": 1, "without_train": 0}


def test_leaked_pairs_count_as_relevant_and_are_reported():
    """A test pair that is also in train is hidden: a perfect model finds one of the two."""
    splits = three([[0]], [[]], [[0, 1]], 3)
    result = Evaluator(splits, split="test", ks=(2,)).evaluate(Table([[3.0, 2.0, 1.0]]))
    assert result.leaked_pairs == 1
    assert result.means["recall@2"] == 0.5


def test_leaked_pairs_are_those_of_evaluated_users():
    """User 0 has no train item and is left out; of user 1 the only item there is was trained on."""
    assert Evaluator(three([[], [0]], [[], []], [[0], [0]], 1), split="test").leaked_pairs == 1


def test_evaluation_holds_settings_and_degrees():
    splits = three([[0], [1, 2], [3]], [[], [0], [0]], [[1, 2], [3], []], 5)
    settings = {"seed": 3, "resamples": 40, "confidence": 0.5}
    result = Evaluator(splits, split="test", mask="train+validation", ks=(1, 2), **settings).evaluate(
        Table(np.tile(np.arange(5.0), (3, 1)))
    )
    assert (result.split, result.mask) == ("test", "train+validation")
    assert {name: getattr(result, name) for name in settings} == settings
    assert result.train_degrees.tolist() == [1, 2]
    assert result.all_degrees.tolist() == [3, 4]
    assert result.values["popularity@1"].tolist() == [0.0, 0.0]  # item 4, which nobody has
    assert result.values["popularity@2"].tolist() == [0.5, 0.5]  # then item 3, which one has
    assert (result.means["coverage@1"], result.means["coverage@2"]) == (0.2, 0.4)
    assert Evaluator(splits, split="test").evaluate(Table(np.zeros((3, 5)))).seed == 0


@pytest.mark.parametrize(("cut", "sentence"), [({"chunk": 0}, "chunk is 0"), ({"memory": 1}, "but memory is 1")])
def test_memory_and_chunk_are_passed_to_the_ranking(cut, sentence):
    evaluator = Evaluator(three([[0]], [[1]], [[2]], 3), **cut)
    with pytest.raises(ConfigError, match=sentence):
        evaluator.evaluate(Table(np.zeros((1, 3))))


def test_cut_off_beyond_the_number_of_items():
    result = Evaluator(three([[0]], [[2]], [[1]], 3), ks=(20,)).evaluate(Table([[0.0, 2.0, 1.0]]))
    assert result.means["recall@20"] == 1.0
    assert result.means["precision@20"] == 0.05
    assert result.means["coverage@20"] == pytest.approx(2 / 3)
    assert result.means["popularity@20"] == 0.0  # neither candidate has a train interaction


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": "train+validation"}, "hides every item of the validation split"),
        ({"split": "tset"}, "the split is 'tset', expected one of validation, test; did you mean 'test'"),
        ({"split": "train"}, r"expected one of validation, test\.$"),
        ({"split": "test", "mask": "none"}, r"the mask is 'none', expected one of train, train\+validation"),
        ({"ks": ()}, "cut-offs"),
        ({"ks": (0, 20)}, "cut-offs"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        Evaluator(three([[0]], [[1]], [[2]], 3), **change)


def test_split_without_users_is_refused():
    with pytest.raises(DataError, match="no user has both a train item and a validation item"):
        Evaluator(three([[0]], [[]], [[2]], 3))
    with pytest.raises(DataError, match="no user has a validation item"):
        Evaluator(three([[0]], [[]], [[2]], 3), cold_users=True)

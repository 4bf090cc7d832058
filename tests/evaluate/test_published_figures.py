"""The evaluator on the authors' own files, against what has been published or counted of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dgcf.data.pairs import Pairs
from dgcf.evaluate.evaluator import Evaluator
from tests.conftest import data_home


def authors_split(name, n_users, n_items):
    """The three adjacency files, a line being ``user item item …``."""
    splits = {}
    for part in ("train", "validation", "test"):
        lines = (data_home() / name / f"{part}.txt").read_text().splitlines()
        numbers = [np.array(line.split(), dtype=np.int64) for line in lines if line.strip()]
        user_idx = np.repeat([row[0] for row in numbers], [len(row) - 1 for row in numbers])
        item_idx = np.concatenate([row[1:] for row in numbers])
        splits[part] = Pairs.from_indices(user_idx, item_idx, n_users, n_items)
    return SimpleNamespace(**splits)


class MostPopular:
    """The same ranking for all, full of ties."""

    def __init__(self, train):
        self.degrees = torch.from_numpy(train.item_degrees).float()

    def scores(self, user_idx):
        return self.degrees.expand(len(user_idx), -1)


@pytest.mark.data("deoscirec/ml-1m")
def test_most_popular_and_the_density_groups_of_ml1m():
    splits = authors_split("deoscirec/ml-1m", 4_627, 1_840)
    result = Evaluator(splits, split="test").evaluate(MostPopular(splits.train))
    assert result.users_evaluated == 4_627
    assert result.means["recall@20"] == pytest.approx(0.1696, abs=5e-5)
    assert result.means["ndcg@20"] == pytest.approx(0.1306, abs=5e-5)
    groups = result.groups(count="all")
    assert [group.at_most for group in groups] == [35, 65, 114, 524]  # the paper's density figure
    assert sum(group.interactions for group in groups) == 212_008


@pytest.mark.data("deoscirec/amazon-movies-tv")
def test_leaked_pairs_of_amazon_are_counted():
    splits = authors_split("deoscirec/amazon-movies-tv", 14_432, 28_242)
    assert Evaluator(splits, split="test").leaked_pairs == 6_210
    assert Evaluator(splits, split="validation").leaked_pairs == 3_166

"""How training is watched."""

from __future__ import annotations

import pytest
import torch

from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.validation import validator
from dgcf.models import Embeddings


def test_the_validation_split_is_measured_at_the_metrics_cut_off() -> None:
    dataset = planted(n_users=30, n_items=40)
    generator = torch.Generator().manual_seed(0)
    found = Embeddings(torch.randn(30, 4, generator=generator), torch.randn(40, 4, generator=generator))
    told = validator(dataset, "ndcg@7")(found)
    assert told == Evaluator(dataset, split="validation", ks=(7,)).evaluate(found).means
    assert {"ndcg@7", "recall@7"} <= told.keys()


def test_a_metric_that_does_not_exist_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        validator(planted(n_users=30, n_items=40), "recal@20")

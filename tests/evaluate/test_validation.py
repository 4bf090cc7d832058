"""How training is watched."""

from __future__ import annotations

import pytest
import torch

from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.validation import validator
from dgcf.models import Embeddings


def test_validator_uses_validation_split_and_cut_off_of_metric() -> None:
    dataset = planted(n_users=30, n_items=40)
    generator = torch.Generator().manual_seed(0)
    ranking = Embeddings(torch.randn(30, 4, generator=generator), torch.randn(40, 4, generator=generator))
    metrics = validator(dataset, "ndcg@7")(ranking)
    assert metrics == Evaluator(dataset, split="validation", ks=(7,)).evaluate(ranking).means
    assert {"ndcg@7", "recall@7"} <= metrics.keys()


def test_unknown_metric_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        validator(planted(n_users=30, n_items=40), "recal@20")

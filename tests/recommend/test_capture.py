"""From a trained model to a snapshot: what the model ranks, and no claim that its layers do not bear out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgcf.errors import DataError
from dgcf.models import Embeddings
from dgcf.recommend import Recommender, load
from dgcf.recommend.capture import capture
from dgcf.train import build, resolve
from tests.recommend.conftest import MODELS, random_dataset, untrained


@pytest.mark.parametrize("model", MODELS)
def test_readout_of_layers_equals_ranked_rows(model: tuple[str, dict[str, Any]]) -> None:
    snapshot = untrained(random_dataset(), model[0], **model[1])
    assert snapshot.layers is not None
    rows = np.einsum("l,lnd->nd", snapshot.layer_weights(snapshot.layers.depth), snapshot.layers.embeddings)
    if snapshot.cosine:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(rows[: snapshot.n_users], snapshot.user_rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows[snapshot.n_users :], snapshot.item_rows, rtol=1e-5, atol=1e-6)


def test_model_without_linear_layers_ranks_but_neither_explains_nor_folds_in() -> None:
    """Embeddings that are no sum of layers, as another architecture would give."""
    dataset = random_dataset()
    recipe = resolve("dgcf", preset="plain", settings={"dim": 4})
    model, propagation = build(dataset, recipe)
    users = torch.arange(1.0, dataset.n_users + 1).unsqueeze(1).expand(-1, 4)
    other = Embeddings(users, torch.arange(dataset.n_items * 4).reshape(-1, 4).float())
    rec = Recommender.of(capture(model, propagation, other, dataset, recipe, {}))
    assert rec.recommend(0, 3, exclude_seen=False)["item"] == [10, 9, 8]
    with pytest.raises(DataError, match="are not sums over linear layers"):
        rec.explain(0, 0)
    with pytest.raises(DataError, match="cannot fold in"):
        rec.recommend_for([0])


@pytest.mark.parametrize("model", ["gcn", "gcn-jk", "gc-mc", "ngcf", "sgc", "spectralcf", "sage"])
def test_model_with_layer_weights_ranks_after_loading_and_is_not_explained(model: str, tmp_path: Path) -> None:
    """Whatever the width of its rows: those of layers side by side are wider than the embeddings."""
    dataset = random_dataset()
    snapshot = untrained(dataset, model)
    assert snapshot.embeddings.dim == {"gcn-jk": 24, "ngcf": 24, "spectralcf": 24}.get(model, 6)
    assert snapshot.layers is None
    rec = Recommender.of(snapshot)
    rec.save(tmp_path / "model.dgcf")
    best = int((snapshot.user_rows[0] @ snapshot.item_rows.T).argmax())
    again = load(tmp_path / "model.dgcf")
    assert again.recommend(0, 1, exclude_seen=False)["item"] == [best]
    with pytest.raises(DataError, match="cannot fold in"):
        again.recommend_for([0])
    with pytest.raises(DataError, match="are not sums over linear layers"):
        again.explain(0, 0)


def test_seen_items_are_those_of_all_splits() -> None:
    dataset = random_dataset(seed=3)
    snapshot = untrained(dataset)
    assert len(dataset.test) > 0
    assert len(snapshot.seen) == len(dataset.train) + len(dataset.test)
    assert snapshot.train is dataset.train

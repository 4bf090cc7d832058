"""Every variant against the reference values: layers, scores, BPR, L2 and gradients, in float64 to 1e-10."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from dgcf.data.pairs import Pairs
from dgcf.graph import Propagation, build_propagation
from dgcf.models import GraphModel, entry
from dgcf.train.config import TrainConfig
from dgcf.train.losses import bpr, l2_term
from dgcf.train.sampler import Batch
from dgcf.train.trainer import Trainer
from tests.train.engine_of import eager_engine

VARIANTS = {
    "dgcf": ("dgcf", {}),
    "dgcf-chp": ("dgcf-chp", {}),
    "dgcf-la": ("dgcf-la", {}),
    "dgcf-sl": ("dgcf-sl", {}),
    "dgcf official-code": ("dgcf", {"self_loop": False, "cross_below_one": True}),
    "dgcf unfiltered": ("dgcf", {"cross": "matrix-free"}),
    "lightgcn": ("lightgcn", {}),
}
TIGHT = {"rtol": 0.0, "atol": 1e-10}


def build(golden: dict[str, Any], matrix: csr_array, variant: str, **more: Any) -> tuple[GraphModel, Propagation]:
    name, settings = VARIANTS[variant]
    found = entry(name)
    known = {"dim": golden["dim"], "layers": golden["layers"], "epsilon": golden["epsilon"], **settings, **more}
    config = replace(found.config, **{key: value for key, value in known.items() if key in found.keys})
    model = found.build(golden["n_users"], golden["n_items"], config, 0).double()
    with torch.no_grad():
        model.layer0.copy_(torch.tensor(golden["layer0"], dtype=torch.float64))
        for key, parameter in model.named_parameters():
            if key == "gates.logits":
                parameter.copy_(torch.tensor(golden["gate_logits"], dtype=torch.float64)[: len(parameter)])
    return model, build_propagation(matrix, config.spec()).to(dtype=torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_equal_the_reference(golden: dict[str, Any], golden_matrix: csr_array, variant: str) -> None:
    expected = golden["variants"][variant]
    for readout in ("mean", "last"):
        model, propagation = build(golden, golden_matrix, variant, readout=readout)
        torch.testing.assert_close(model(propagation), torch.tensor(expected[readout], dtype=torch.float64), **TIGHT)
    model, propagation = build(golden, golden_matrix, variant)
    found = model.embed(propagation)
    scores = torch.tensor(expected["scores"], dtype=torch.float64)
    torch.testing.assert_close(found.users @ found.items.T, scores, **TIGHT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_equal_the_reference(golden: dict[str, Any], golden_matrix: csr_array, variant: str) -> None:
    model, propagation = build(golden, golden_matrix, variant)
    u, i, j = (torch.tensor(golden["batch"][key]) for key in ("users", "positives", "negatives"))
    found, ego = model.embed(propagation), model.ego()
    assert bpr(found.users[u], found.items[i], found.items[j][:, None]).item() == pytest.approx(
        golden["variants"][variant]["bpr"], abs=1e-10
    )
    rows, times = torch.unique(torch.cat([u, i + model.n_users, j + model.n_users]), return_counts=True)
    assert golden["l2"] * l2_term(ego[rows], times, len(u)).item() == pytest.approx(
        golden["variants"][variant]["l2_term"], abs=1e-10
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_equal_the_reference(golden: dict[str, Any], golden_matrix: csr_array, variant: str) -> None:
    """The trainer's own loss, with its batch-restricted last layer, has the gradients of the dense model."""
    expected = golden["variants"][variant]
    model, propagation = build(golden, golden_matrix, variant)
    pairs = Pairs.from_indices(*np.array(golden["pairs"]).T, golden["n_users"], golden["n_items"])
    engine = eager_engine(Trainer(model, propagation, pairs, TrainConfig(l2=golden["l2"])))
    u, i, j = (torch.tensor(golden["batch"][key]) for key in ("users", "positives", "negatives"))
    value = engine.loss(Batch(u, i, j[:, None]), step=0)
    assert value.item() == pytest.approx(expected["bpr"] + expected["l2_term"], abs=1e-10)
    value.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.testing.assert_close(gradients["layer0"], torch.tensor(expected["grad_layer0"], dtype=torch.float64), **TIGHT)
    if expected["grad_gate_logits"] is None:
        assert "gates.logits" not in gradients
    else:
        reference = torch.tensor(expected["grad_gate_logits"], dtype=torch.float64)
        found = gradients["gates.logits"]
        torch.testing.assert_close(found, reference[: len(found)], **TIGHT)
        assert not reference[len(found) :].any()

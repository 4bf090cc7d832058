"""Recorded GPU steps train like the CPU: the same batches, the same edges left out, the same weights up to rounding."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from dgcf.data import load
from dgcf.graph import build_propagation
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.train.config import TrainConfig
from dgcf.train.sampler import Sampler
from dgcf.train.trainer import Trainer

gpu = pytest.mark.gpu


@pytest.mark.parametrize("sampling", ["interaction", "user"])
def test_an_epoch_on_a_device_is_the_samplers_epoch(sampling: Literal["interaction", "user"]) -> None:
    """On any device, the CPU included: whole epochs are the batches of the sampler, end to end."""
    from dgcf.train.captured import DeviceSampler

    sampler = Sampler(load("planted").train, 128, per_pair=2, seed=3, sampling=sampling)
    users, positives, negatives = DeviceSampler(sampler, torch.device("cpu")).epoch(4)
    batches = [sampler.batch(4, number) for number in range(sampler.batches_per_epoch)]
    assert torch.equal(users, torch.cat([batch.users for batch in batches]))
    assert torch.equal(positives, torch.cat([batch.positives for batch in batches]))
    assert torch.equal(negatives, torch.cat([batch.negatives for batch in batches]))
    assert [len(batch) for batch in batches] == sampler.batch_sizes


def trained(device: str, epochs: int = 2, **settings: object) -> Trainer:
    dataset = load("planted")
    config = DGCFConfig(dim=24, layers=3)
    propagation = build_propagation(dataset.train.to_scipy(), config.spec()).to(device=device)
    how = TrainConfig(batch_size=500, l2=1e-2, epochs=epochs, **settings)  # type: ignore[arg-type]
    trainer = Trainer(
        DGCF(dataset.n_users, dataset.n_items, config, 1), propagation, dataset.train, how, seed=1, device=device
    )
    trainer.fit()
    return trainer


@gpu
@pytest.mark.parametrize("edge_dropout", [0.0, 0.2])
def test_recorded_steps_agree_with_the_cpu_and_with_themselves(edge_dropout: float) -> None:
    cpu, one, two = (trained(device, edge_dropout=edge_dropout) for device in ("cpu", "cuda", "cuda"))
    assert one._captured is not None
    for name, weights in cpu.model.state_dict().items():
        found = one.model.state_dict()[name]
        assert float((found.cpu() - weights).norm() / weights.norm()) < 1e-5
        assert torch.equal(found, two.model.state_dict()[name])


@gpu
def test_a_recorded_training_goes_on_from_a_checkpoint_to_the_bit() -> None:
    whole = trained("cuda", epochs=3, edge_dropout=0.1)
    half = trained("cuda", epochs=2, edge_dropout=0.1)
    rest = trained("cuda", epochs=1, edge_dropout=0.1)
    rest.config, rest._captured = whole.config, None
    rest.restore(half.checkpoint())
    rest.fit()
    for name, weights in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], weights)


@gpu
def test_bfloat16_storage_trains_alike() -> None:
    full, half = trained("cuda"), trained("cuda", storage="bfloat16")
    weights, found = full.model.layer0.detach(), half.model.layer0.detach()
    assert 1e-6 < float((found - weights).norm() / weights.norm()) < 0.05

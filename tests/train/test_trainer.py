"""The training loop: learning, determinism, early stopping and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError
from dgcf.models import CATALOG, Embeddings
from dgcf.models.base import DropSchedule
from dgcf.train import DivergedError, Trained, Trainer, build, resolve, train
from dgcf.train.losses import LOSSES
from tests.ordering import dataset_in_order
from tests.train.engine_of import eager_engine
from tests.train.planted_tastes import planted_tastes, recall, validation_of
from tests.train.recording_observer import RecordingObserver

QUICK = {"dim": 8, "layers": 2, "batch_size": 64, "learning_rate": 0.02, "l2": 1e-4, "epochs": 30, "evaluate_every": 5}


def recipe_for(model: str, **more: Any) -> Any:
    found = CATALOG[model]
    settings = {k: v for k, v in {**QUICK, **more}.items() if k != "layers" or "layers" in found.keys}
    return resolve(model, preset="paper", settings=settings)


def fit(dataset: Dataset, model: str = "dgcf", *, seed: int = 0, **more: Any) -> Trained:
    recipe = recipe_for(model, **more)
    return train(dataset, recipe, seed=seed, device="cpu", validate=validation_of(dataset, 10))


@pytest.mark.parametrize("model", [name for name, model in CATALOG.items() if not model.solved])
def test_every_model_learns_planted_preferences(dataset: Dataset, model: str) -> None:
    """Chance is 10/48; untrained gates and graphs alone do not reach the mark either."""
    found = fit(dataset, model, metric="recall@10", epochs=40)
    assert recall(found.ranking, dataset, "test", 10) > 0.97


def test_untrained_mf_does_not_rank_well(dataset: Dataset) -> None:
    model, _ = build(dataset, recipe_for("bpr-mf"))
    assert recall(model.embed(None), dataset, "test", 10) < 0.5


@pytest.mark.parametrize(
    "more",
    [
        {"loss": "softmax", "negatives": 16},
        {"loss": "softmax", "negatives": 16, "popularity": 0.5},
        {"loss": "softmax", "negatives": 4096, "temperature": 0.5},
        {"loss": "softmax-product", "negatives": 16},
        {"loss": "bpr-hardest", "negatives": 4},
        {"loss": "directau", "uniformity": 0.5},
        {"sampler": "user", "batch_size": 32},
        {"recency": 0.5},
        {"recency": 0.5, "sampler": "user", "batch_size": 32},
        {"negatives": 4},
        {"edge_dropout": 0.3},
        {"edge_dropout": 0.3, "dropout_draws": "step"},
        {"readout": "last"},
    ],
    ids=str,
)
def test_every_loss_and_sampler_learns_planted_preferences(dataset: Dataset, more: dict[str, Any]) -> None:
    found = fit(dataset_in_order(dataset), "dgcf", metric="recall@10", **more)
    assert recall(found.ranking, dataset, "test", 10) > 0.9


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_batch_twice_at_rate_zero_gives_equal_gradients(dataset: Dataset, loss: str) -> None:
    """Gradients that pile up from step to step, or a step that changes what it should not, fail here."""
    recipe = recipe_for("dgcf", learning_rate=0.0, loss=loss, edge_dropout=0.1)
    model, propagation = build(dataset, recipe)
    trainer = Trainer(model, propagation, dataset.train, recipe.train)
    engine = eager_engine(trainer)
    batch = trainer.sampler.batch(1, 0)
    seen = []
    for _ in range(2):
        engine.step_on(batch, step=7)
        seen.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(seen[0]) == 2
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert all(gradient.abs().sum() > 0 for gradient in seen[0])


@pytest.mark.parametrize("name", ["dgcf", "gcn", "bpr-mf"])
def test_batch_loss_equals_the_full_computation(dataset: Dataset, name: str) -> None:
    """With a stack's own product by strips, and for models that are no stack; with what each step leaves out."""
    recipe = recipe_for(name, l2=0.01, **({} if name == "bpr-mf" else {"edge_dropout": 0.2}))
    model, propagation = build(dataset, recipe)
    trainer = Trainer(model, propagation, dataset.train, recipe.train)
    engine = eager_engine(trainer)
    batch = trainer.sampler.batch(1, 0)
    u, i, j = batch.users, dataset.n_users + batch.positives, dataset.n_users + batch.negatives.squeeze(1)
    ego = model.ego().detach()
    squares = torch.cat([ego[u], ego[i], ego[j]]).square().sum()
    for step in (5, 6):
        drop = DropSchedule(0.0 if name == "bpr-mf" else 0.2, trainer.drop_seed, step)
        final = model(propagation, drop=drop)
        margin = (final[u] * (final[i] - final[j])).sum(1)
        expected = -torch.nn.functional.logsigmoid(margin).mean() + 0.01 * 0.5 * squares / len(u)
        assert engine.loss(batch, step).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"edge_dropout": 0.2},
        {"loss": "softmax"},
        {"loss": "softmax-product"},
        {"loss": "bpr-hardest"},
        {"loss": "directau"},
        {"sampler": "user"},
    ],
    ids=str,
)
def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(dataset: Dataset, more: dict[str, Any]) -> None:
    first, again, other = (fit(dataset, epochs=3, metric="recall@10", seed=s, **more) for s in (1, 1, 2))
    assert torch.equal(first.ranking.users, again.ranking.users)
    assert torch.equal(first.ranking.items, again.ranking.items)
    assert not torch.equal(first.ranking.items, other.ranking.items)


def test_the_best_epoch_is_kept_not_the_last(dataset: Dataset) -> None:
    values = iter([0.1, 0.5, 0.3, 0.2])
    kept: list[torch.Tensor] = []

    def validate(found: Embeddings) -> Mapping[str, float]:
        kept.append(found.items)
        return {"recall@20": next(values)}

    out = train(dataset, recipe_for("dgcf", epochs=8, evaluate_every=2), device="cpu", validate=validate)
    assert (out.best_epoch, out.epochs) == (4, 8)
    assert torch.equal(out.ranking.items, kept[1])


def test_training_stops_when_patience_is_exhausted(dataset: Dataset) -> None:
    out = train(
        dataset,
        recipe_for("bpr-mf", epochs=50, evaluate_every=2, min_epochs=6, patience=2),
        device="cpu",
        validate=lambda found: {"recall@20": 0.25},
    )
    assert (out.epochs, out.best_epoch) == (10, 2)
    assert out.reason == "no better recall@20 in 2 evaluations"


def test_setting_without_effect_is_noted() -> None:
    observer, data = RecordingObserver(), planted_tastes()
    used: list[dict[str, Any]] = [{"loss": "softmax", "temperature": 0.1}, {"loss": "directau", "uniformity": 0.5}]
    for more in ({"temperature": 0.1}, *used):
        recipe = recipe_for("bpr-mf", epochs=1, **more)
        train(data, recipe, device="cpu", validate=lambda f: {"recall@20": 0.5}, observer=observer)
    assert observer.notes == ["temperature is 0.1, but the loss bpr does not use it."]


def test_without_validation_all_epochs_run() -> None:
    observer = RecordingObserver()
    data = planted_tastes(validation=False)
    out = train(data, recipe_for("bpr-mf", epochs=3), device="cpu", validate=lambda f: {}, observer=observer)
    assert (out.epochs, out.best_epoch) == (3, 3)
    assert observer.notes == ["there is no validation split, so training takes all 3 epochs and keeps the last."]


def test_epoch_reports(dataset: Dataset) -> None:
    observer = RecordingObserver()
    train(
        dataset,
        recipe_for("bpr-mf", epochs=4, evaluate_every=2),
        device="cpu",
        validate=lambda f: {"recall@20": 0.5},
        observer=observer,
    )
    assert [report.epoch for report in observer.reports] == [1, 2, 3, 4]
    assert [bool(report.validation) for report in observer.reports] == [False, True, False, True]
    assert observer.reports[0].pairs == len(dataset.train)
    assert observer.reports[0].loss == pytest.approx(0.69, abs=0.03)  # ln 2: nothing is known yet
    assert observer.reports[3].loss < observer.reports[0].loss
    assert observer.reports[3].line().startswith("epoch 4/4  loss 0.")
    assert "recall@20 0.5000  best 0.5000 at 2" in observer.reports[3].line()


def test_a_diverging_loss_stops_with_advice(dataset: Dataset) -> None:
    with pytest.raises(DivergedError, match=r"the loss is not finite in epoch \d+; lower learning_rate \(now 10\)"):
        fit(dataset, "dgcf-chp", learning_rate=10.0, layers=60, epochs=5)


def test_infinite_gradient_with_finite_loss_raises(dataset: Dataset) -> None:
    recipe = recipe_for("bpr-mf", epochs=1, batch_size=100_000)
    model, propagation = build(dataset, recipe)
    model.layer0.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(DivergedError, match="a weight is not finite in epoch 1"):
        Trainer(model, propagation, dataset.train, recipe.train).fit()


def test_unknown_metric_is_refused_with_a_suggestion(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'recall@10'"):
        fit(dataset, metric="recal@10", epochs=5)


def test_edges_are_drawn_anew_in_every_step(dataset: Dataset) -> None:
    recipe = recipe_for("dgcf", edge_dropout=0.5, learning_rate=0.0)
    model, propagation = build(dataset, recipe)
    trainer = Trainer(model, propagation, dataset.train, recipe.train)
    engine = eager_engine(trainer)
    batch = trainer.sampler.batch(1, 0)
    losses = [engine.loss(batch, step).item() for step in (1, 2, 1)]
    assert losses[0] == losses[2]
    assert losses[0] != losses[1]

"""The state of one training: weights, optimizer, progress, early stopping and the best epoch.

``TrainingLoop`` runs it and an engine computes its steps. Validation, observers and the run folder are passed in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.errors import ArtifactError, ConfigError, DgcfError, did_you_mean
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel
from dgcf.random import bits
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.torch_backend import unit_embeddings
from dgcf.train.adam import adam_for
from dgcf.train.config import TrainConfig
from dgcf.train.loop import TrainingLoop
from dgcf.train.run.checkpoint import Checkpoint, adam_tensors, check_weights, fill_adam, fill_model
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import EpochReport, Observer
from dgcf.train.sampler import Sampler
from dgcf.train.shards.base import Sharding, Undivided
from dgcf.train.stopping import EarlyStopping

Validate = Callable[[Any], Mapping[str, float]]
"""From anything with ``scores``, such as a ranking, to metrics."""


class DivergedError(DgcfError):
    """The loss or a gradient is no longer a finite number."""

    kind = "diverged"


class Trainer:
    """Trains ``model`` on ``pairs``; ``fit`` runs to the end or to an interruption, from the start or from ``restore``.

    ``validate`` maps the embeddings to metrics; without it training takes exactly ``config.epochs`` epochs and the last
    one counts as best. ``interrupted`` is called after every step. ``sharding`` divides the model among processes, of
    which only the first one has a run, validates and observes.
    """

    def __init__(
        self,
        model: GraphModel,
        propagation: Propagation | None,
        pairs: Pairs,
        config: TrainConfig,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        validate: Validate | None = None,
        observer: Observer | None = None,
        run: Run | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        sharding: Sharding | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.sharding = sharding or Undivided()
        self.world = world = self.sharding.world
        self.propagation = self.sharding.take(model, propagation)
        self.config, self.seed, self.validate = config, seed, validate
        self.observer, self.run = observer or Observer(), run
        self.interrupted: Callable[[], bool] = lambda: world.any(interrupted())
        self.sampler = sampler_for(pairs, config, seed)
        self.optimizer = adam_for(model.parameters(), config.learning_rate, self.device)
        self.stopping = EarlyStopping(config.patience, config.min_epochs)
        self.epoch, self.done = 1, 0  # the current epoch, and how many of its batches are done
        self.best: dict[str, Tensor] = {}
        self.running_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self.drop_seed = int(bits(seed, "edge-dropout", 1)[0] >> 1)

    def fit(self) -> str:
        """Train to the end or to an interruption; return why it stopped."""
        return TrainingLoop([self]).fit()[0]

    @property
    def finished(self) -> bool:
        return self.stopping.over(self.epoch, self.done, self.config.epochs)

    def note_unusual_settings(self) -> None:
        """Note missing validation, settings without effect and skipped users."""
        config, skipped, note = self.config, self.sampler.skipped_users, self.observer.note
        if self.validate is None:
            note(f"there is no validation split, so training takes all {config.epochs} epochs and keeps the last.")
        for name in config.without_effect:
            note(f"{name} is {getattr(config, name):g}, but the loss {config.loss} does not use it.")
        if skipped:
            note(f"{skipped:,} users have every item and so no negative; their pairs are left out.")

    def close(self) -> str:
        """Save, and return why training stopped: it is finished, or was interrupted."""
        if not self.finished:
            reason = f"interrupted in epoch {self.epoch} after {self.done} of its batches"
        elif self.stopping.exhausted:
            reason = f"no better {self.config.metric} in {self.stopping.stale} evaluations"
        else:
            reason = f"all {self.config.epochs} epochs done" if self.config.epochs > 1 else "all epochs done"
        self.save(force=True)
        self.observer.finished(reason)
        return reason

    def end_epoch(self, seconds: float, batches_run: int) -> None:
        """Validate, report and advance to the next epoch; ``seconds`` is the time of this one's steps."""
        started = time.perf_counter()
        pairs = self.sampler.pairs_per_epoch
        loss = self.running_loss.item() / pairs
        validation = self._evaluate()
        report = EpochReport(
            epoch=self.epoch,
            epochs=self.config.epochs,
            loss=loss,
            seconds=seconds,
            pairs=round(pairs * (batches_run / self.sampler.batches_per_epoch)),
            metric=self.config.metric,
            best=self.stopping.best if self.stopping.best_epoch else None,
            best_epoch=self.stopping.best_epoch,
            validation=validation,
        )
        if self.run is not None:
            metrics = {"epoch": self.epoch, "loss": loss, **validation}
            self.run.record(metrics, seconds, time.perf_counter() - started)
        self.observer.epoch_ended(report)
        self.epoch, self.done = self.epoch + 1, 0
        self.running_loss.zero_()

    def _evaluate(self) -> dict[str, float]:
        """Validate if the epoch is one for it, and keep the weights if they are the best so far."""
        if self.validate is None:
            if self.epoch == self.config.epochs:
                self.best = self._weights()
            return {}
        if self.epoch % self.config.evaluate_every and self.epoch != self.config.epochs:
            return {}
        validate, embeddings = self.validate, self.embeddings()
        metrics = self.world.from_first(lambda: dict(validate(embeddings)))
        if self.config.metric not in metrics:
            hint = did_you_mean(self.config.metric, metrics) or f"; it gives {', '.join(metrics)}."
            raise ConfigError(f"validation does not give the metric {self.config.metric!r}{hint}")
        if self.stopping.update(self.epoch, metrics[self.config.metric]):
            self.best = self._weights()
        return metrics

    def embeddings(self) -> Embeddings[Tensor]:
        """Return the ranked embeddings of the current weights."""
        return ranked_embeddings(self.model, self.propagation, self.config, self.sharding)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def raise_if_diverged(self) -> None:
        """Raise ``DivergedError`` if the loss or a weight is not finite.

        A gradient that is not finite makes weights that stay so; it is enough to check once an epoch and before saving.
        """
        finite = math.isfinite(self.running_loss.item())
        own = finite and all(bool(torch.isfinite(weights).all()) for weights in self.model.parameters())
        if not self.world.any(not own):
            return
        what = "a weight" if finite else "the loss"
        raise DivergedError(
            f"{what} is not finite in epoch {self.epoch}; lower learning_rate (now {self.config.learning_rate:g}), "
            f"or raise l2 (now {self.config.l2:g}) or temperature, and train again."
        )

    def save(self, *, force: bool = False) -> None:
        if not self.world.any(self.run is not None and (force or self.run.due())):
            return
        self.raise_if_diverged()  # a diverged state must not replace a good one
        checkpoint = self.checkpoint()
        if self.run is not None:
            self.run.save(checkpoint)

    def checkpoint(self) -> Checkpoint:
        """Return everything that the rest of the training depends on, the same for any number of processes."""
        parts = {"model": self._weights(), "adam": adam_tensors(self.model, self.optimizer), "best": self.best}
        tensors = {
            f"{part}.{name}": t for part, named in parts.items() for name, t in self.sharding.whole(named).items()
        }
        loss, stopping = self.running_loss.item(), self.stopping.state()
        return Checkpoint(tensors, {"epoch": self.epoch, "done": self.done, "loss": loss, "stopping": stopping})

    def restore(self, checkpoint: Checkpoint, source: str = "the checkpoint") -> None:
        """Resume from a state that ``checkpoint`` returned; training continues with the same bits."""
        weights, adam, best = (self.sharding.part(checkpoint.part(name)) for name in ("model", "adam", "best"))
        fill_model(self.model, weights, source)
        fill_adam(self.model, self.optimizer, adam, source)
        about = checkpoint.about
        if best:
            check_weights(self.model, best, f"the best epoch in {source}")
        if not {"done", "loss"} <= about.keys() or not 0 <= about["done"] <= self.sampler.batches_per_epoch:
            raise ArtifactError(f"{source} does not say how far training got; restore it from a copy, or train again.")
        self.best = {name: tensor.to(self.device) for name, tensor in best.items()}
        self.epoch, self.done = int(about["epoch"]), int(about["done"])
        self.running_loss.fill_(float(about["loss"]))
        self.stopping.restore(about["stopping"])


def sampler_for(pairs: Pairs, config: TrainConfig, seed: int) -> Sampler:
    """Return the sampler of the training settings."""
    shared = config.objective.shared
    return Sampler(
        pairs,
        config.batch_size,
        sampling=config.sampler,
        per_pair=1 if shared else config.n_negatives,
        shared=config.n_negatives if shared else None,
        popularity=config.popularity,
        recency=config.recency,
        weighted=config.weighted_sampling,
        seed=seed,
    )


def ranked_embeddings(
    model: GraphModel, propagation: Propagation | None, config: TrainConfig, sharding: Sharding | None = None
) -> Embeddings[Tensor]:
    """Return the embeddings that rank items by inner products: the model's, with unit rows if the loss uses cosines."""
    embeddings = (sharding or Undivided()).embed(model, propagation)
    return unit_embeddings(embeddings) if config.objective.cosine else embeddings

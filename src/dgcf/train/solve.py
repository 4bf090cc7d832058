"""Training without a loop: a model is solved, validated and saved as the only epoch of its run."""

from __future__ import annotations

import time

import torch

from dgcf.data.pairs import Pairs
from dgcf.models.base import SolvedModel
from dgcf.train.run.checkpoint import Checkpoint, fill_model
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import EpochReport, Observer
from dgcf.train.trainer import Validate


def solve(
    model: SolvedModel,
    pairs: Pairs,
    metric: str,
    seed: int,
    validate: Validate | None,
    observer: Observer,
    run: Run | None,
    device: torch.device | str = "cpu",
) -> str:
    """Solve the model for ``pairs``, or load it from a run that is solved already; return why it stopped."""
    if run is not None and (saved := run.resume()) is not None:
        fill_model(model, saved.part("best"), str(run.path / "last.safetensors"))
        observer.note(f"{run.path} is already solved; nothing is left to train.")
    else:
        observer.epoch_began(1, 1, 1, 0)
        began = time.perf_counter()
        for text in model.notes:
            observer.note(text)
        model.solve(pairs, seed, device)
        seconds = time.perf_counter() - began
        validation = dict(validate(model.ranking(pairs))) if validate else {}
        if run is not None:
            run.record({"epoch": 1, **validation}, seconds, time.perf_counter() - began - seconds)
            run.save(_checkpoint(model))
        observer.batch_done()
        best = validation.get(metric)
        observer.epoch_ended(EpochReport(1, 1, None, seconds, len(pairs), metric, best, 1, validation))
    reason = "solved at once"
    observer.finished(reason)
    return reason


def _checkpoint(model: SolvedModel) -> Checkpoint:
    """Return the checkpoint of the training loop after one epoch: the next is the second, and the first is the best."""
    weights = {f"best.{name}": tensor for name, tensor in model.state_dict().items()}
    return Checkpoint(weights, {"epoch": 2, "done": 0, "stopping": {"best_epoch": 1}})

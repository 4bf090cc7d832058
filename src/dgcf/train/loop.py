"""The training loop, for one training or for several that differ in their seeds alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dgcf.train.engines import Engine, pick_engine

if TYPE_CHECKING:
    from dgcf.train.trainer import Trainer


class TrainingLoop:
    """Runs trainings of the same model, data and settings with different seeds, all at the same batch and epoch.

    Each has the bits that it would have alone. One that is finished leaves the others.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        progress = {(trainer.epoch, trainer.done) for trainer in trainers}
        assert len(progress) == 1, "trainings side by side are at the same epoch and batch"
        self.trainers = trainers
        self._running: list[Trainer] = []
        self._engine: Engine

    def fit(self) -> list[str]:
        """Train each to its end, or all to an interruption; return why each stopped."""
        reasons: dict[Trainer, str] = {}
        for trainer in self.trainers:
            trainer.note_unusual_settings()
        running = True
        while running:
            for trainer in self.trainers:
                if trainer.finished and trainer not in reasons:
                    reasons[trainer] = trainer.close()
            running = len(reasons) < len(self.trainers) and self.train_epoch()
        return [reasons.get(trainer) or trainer.close() for trainer in self.trainers]

    def train_epoch(self) -> bool:
        """Complete the current epoch of all unfinished trainings; return False if interrupted between two steps."""
        running = [trainer for trainer in self.trainers if not trainer.finished]
        if running != self._running:
            self._running, self._engine = running, pick_engine(running)
        first = running[0]
        batches, before = first.sampler.batches_per_epoch, first.done
        for trainer in running:
            trainer.observer.epoch_began(trainer.epoch, trainer.config.epochs, batches, trainer.done)
        started = time.perf_counter()
        self._engine.begin_epoch(first.epoch, first.done)
        while first.done < batches:
            self._engine.step(first.done)
            for trainer in running:
                trainer.done += 1
                trainer.observer.batch_done()
            if first.interrupted():
                return False
            if first.done < batches:
                for trainer in running:
                    trainer.save()
        for trainer in running:
            trainer.raise_if_diverged()
        seconds = time.perf_counter() - started
        for trainer in running:
            trainer.end_epoch(seconds, batches - before)
            trainer.save()
        return True

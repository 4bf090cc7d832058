"""The only training loop: it drives one training, or several side by side that are alike but for their seeds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dgcf.train.engines import Engine, pick_engine

if TYPE_CHECKING:
    from dgcf.train.trainer import Trainer


class SideBySide:
    """Trainings of the same model, data and settings with different seeds, all at the same batch of the same epoch.

    On a CUDA device their steps are taken as one, each to the bit as if it were alone; one that is finished leaves
    the others.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        places = {(trainer.epoch, trainer.done) for trainer in trainers}
        assert len(places) == 1, "trainings side by side are at the same place"
        self.trainers = trainers
        self._running: list[Trainer] = []
        self._engine: Engine

    def fit(self) -> list[str]:
        """Train each to its end, the end of its patience, or all to an interruption; the reasons in words."""
        reasons: dict[int, str] = {}
        for trainer in self.trainers:
            trainer.say_what_is_unusual()
        going_on = True
        while going_on:
            for number, trainer in enumerate(self.trainers):
                if trainer.finished and number not in reasons:
                    reasons[number] = trainer.close()
            going_on = len(reasons) < len(self.trainers) and self.train_epoch()
        for number, trainer in enumerate(self.trainers):
            if number not in reasons:
                reasons[number] = trainer.close()
        return [reasons[number] for number in range(len(self.trainers))]

    def train_epoch(self) -> bool:
        """Finish the epoch in progress of all that are not finished; False if asked to stop between two steps."""
        running = [trainer for trainer in self.trainers if not trainer.finished]
        if running != self._running:
            self._running, self._engine = running, pick_engine(running)
        first = running[0]
        batches, before = first.sampler.batches_per_epoch, first.done
        for trainer in running:
            trainer.observer.epoch_began(trainer.epoch, trainer.config.epochs, batches, trainer.done)
        began = time.perf_counter()
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
            trainer.refuse_divergence()
        seconds = time.perf_counter() - began
        for trainer in running:
            trainer.end_epoch(seconds, batches - before)
            trainer.save()
        return True

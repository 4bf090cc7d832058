"""The engine of a training on the CPU, for tests that call its loss."""

from __future__ import annotations

from dgcf.train import Trainer
from dgcf.train.engines import pick_engine
from dgcf.train.engines.eager import EagerEngine


def eager_engine(trainer: Trainer) -> EagerEngine:
    """Return the engine that ``pick_engine`` chooses for one training on the CPU."""
    engine = pick_engine([trainer])
    assert isinstance(engine, EagerEngine)
    return engine

"""Small models that the tests of the service serve."""

from __future__ import annotations

from pathlib import Path

from dgcf.data import Dataset
from dgcf.data.synthetic import planted
from dgcf.recommend import Recommender

SETTINGS = {"layers": 2, "dim": 16, "epochs": 8, "learning_rate": 1e-2, "l2": 1e-2}


def films() -> Dataset:
    """Return 150 users with two favourite genres each, and 160 items with titles; ids are text, u00000 and i00000."""
    return planted(n_users=150, n_items=160)


def small_model(path: Path, *, seed: int = 0, **settings: object) -> Path:
    """Train a model of planted tastes, and save it as an artefact."""
    rec = Recommender("dgcf", preset="plain", device="cpu", seed=seed, **{**SETTINGS, **settings}).fit(films())
    rec.save(path)
    return path

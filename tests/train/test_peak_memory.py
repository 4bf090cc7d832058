"""The peak of memory is that of the work since the mark, not of what ran before; a run's record carries it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dgcf.data.dataset import Dataset
from dgcf.train import Run, resolve, train
from dgcf.train.peak_memory import mark_peak, peak_mb
from tests.resealing import rechain


def hold(megabytes: int) -> None:
    """Hold that much for a moment, every page touched."""
    np.ones(megabytes * 125_000).sum()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system keeps one peak per process")
def test_peak_counts_only_memory_since_the_mark() -> None:
    hold(400)
    mark_peak()
    before = peak_mb()["peak_mb"]
    hold(100)
    assert 90 < peak_mb()["peak_mb"] - before < 130
    hold(200)
    assert 190 < peak_mb()["peak_mb"] - before < 230


def test_run_records_the_peak(dataset: Dataset, tmp_path: Path) -> None:
    recipe = resolve("bpr-mf", preset="paper", settings={"epochs": 3, "dim": 4})
    run = Run.create(tmp_path / "run", dataset, recipe, seed=0, device="cpu")
    assert run.peak_mb is None
    train(dataset, recipe, device="cpu", run=run)
    timings = run.path / "timings.jsonl"
    lines = [json.loads(line) for line in timings.read_text().splitlines()]
    peaks = [line["peak_mb"] for line in lines]
    assert peaks == sorted(peaks)
    assert run.peak_mb == peaks[-1]
    assert 10 < peaks[-1] < 1e5
    for line in lines:
        del line["peak_mb"]
    rechain(timings, lines)  # as runs were written before
    assert run.peak_mb is None
    assert run.seconds > 0

"""The progress line of many jobs fits 80 columns, with the job, its epoch, the best result and the time left."""

from __future__ import annotations

import io

import pytest

from dgcf.cli import terminal
from dgcf.cli.views.progress import ProgressBar
from dgcf.console import Bar, PlainConsole
from dgcf.train import EpochReport

REPORT = EpochReport(1000, 1000, 0.69, 12.5, 1_000_000, "ndcg@20", 0.2, 1000, {})


def test_line_of_an_epoch_fits_80_columns() -> None:
    report = EpochReport(99, 99, 0.6931, 1.0, 999_999, "recall@20", 0.2, 97, {"recall@20": 0.1876})
    assert report.line() == "epoch 99/99  loss 0.6931  recall@20 0.1876  best 0.2000 at 97  999,999 pairs/s"
    assert len(report.line()) <= 80


@pytest.mark.parametrize("job", ["trial 299", "lightgcn on ml-1m with seed 3"], ids=["trial", "long"])
def test_line_of_many_jobs_fits_80_columns(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    console = PlainConsole(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "err", console)
    monkeypatch.setattr(Bar, "start", lambda bar: bar)
    display = ProgressBar("trials", lambda text: None)
    display.started(298, 300)
    assert display.bar is not None
    display.job_ended("done", "best 0.3456 in trial 299")
    display.epoch_ended(job, REPORT)
    with console.capture() as captured:
        console.print(display.bar.display.get_renderable())
    line = captured.get().rstrip("\n")
    assert "\n" not in line
    assert len(line) <= 80
    for words in (f"{job[-9:]}, epoch 1000", "299/300", "best 0.3456 in trial 299", "ETA "):
        assert words in line

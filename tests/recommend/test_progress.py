"""The progress bar of a training: it fits 80 columns, and says the epoch and the time left."""

from __future__ import annotations

import io

import pytest

from dgcf.console import PlainConsole
from dgcf.recommend.progress import TrainingBar, training_bar
from dgcf.train import EpochReport


def line_after(epoch: int, epochs: int, metric: str, *, evaluated: bool = True) -> str:
    """Return the bar on a terminal of 80 columns after an epoch."""
    console = PlainConsole(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    bar = TrainingBar(console)
    bar.epoch_began(epoch, epochs, 500, 0)
    for _ in range(500):
        bar.batch_done()
    values = {metric: 0.12345} if evaluated else {}
    bar.epoch_ended(EpochReport(epoch, epochs, 0.693147, 12.5, 1_000_000, metric, 0.23456, epoch, values))
    with console.capture() as captured:
        console.print(bar.display.get_renderable())
    return captured.get().rstrip("\n")


@pytest.mark.parametrize(
    ("epoch", "epochs", "metric"), [(3, 60, "ndcg@20"), (1000, 1000, "precision@100"), (1, 8, "recall@5")]
)
def test_line_fits_80_columns_with_epoch_and_time_left(epoch: int, epochs: int, metric: str) -> None:
    line = line_after(epoch, epochs, metric)
    assert "\n" not in line
    assert len(line) <= 80
    assert "…" not in line
    for words in (f"epoch {epoch}/{epochs}", f"{metric} 0.1235", f"best 0.2346 at {epoch}", "ETA "):
        assert words in line


def test_bar_is_shown_on_request_or_on_a_terminal() -> None:
    assert training_bar(None) is None  # stderr of a test is no terminal
    assert training_bar(False) is None
    assert training_bar(True) is not None

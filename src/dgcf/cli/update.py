"""``dgcf update``: add new rows to a trained model, and continue its training in a new run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dgcf.cli.inputs import Device, RunData, RunOrArtifact, out_option, set_option, with_read_options
from dgcf.cli.terminal import AsJson, emit, notify
from dgcf.cli.views import update as view
from dgcf.config import parse_settings
from dgcf.data.columns import ReadOptions
from dgcf.data.update import HELD_OUT, seconds_of_window


@with_read_options
def command(
    run: RunOrArtifact,
    rows: Annotated[
        str,
        Argument(
            metavar="NEW_ROWS",
            help="A file or a prepared folder of new rows. It is read as the data of the run was, unless options say "
            "otherwise.",
            show_default=False,
        ),
    ],
    folder: Annotated[Path | None, out_option("Run folder to write.", "runs/RUN-update")] = None,
    window: Annotated[
        str | None,
        Option(
            help="Drop pairs that are older than the newest one by more than this: 365d, 52w or 48h. Needs the times "
            "of all pairs.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        Option(help="At most so many epochs; the best on held-out pairs is kept. 0 only folds in.", show_default="2"),
    ] = None,
    held_out: Annotated[
        float,
        Option(help="Share of the new pairs, the newest ones, that is held out to measure and to choose the epoch."),
    ] = HELD_OUT,
    settings: Annotated[
        list[str] | None, set_option("Override a setting of the run, such as learning_rate=0.001; repeatable.")
    ] = None,
    scratch: Annotated[
        bool, Option("--scratch", help="Also train from scratch on the same pairs, to compare.")
    ] = False,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
    *,
    read: ReadOptions,
) -> None:
    """Add new rows to a trained model without training from scratch.

    Known users and items keep their ids and weights; new ones are folded in. Training then continues for a few epochs,
    of which the one that ranks the held-out new pairs best is kept. The result is a new run with its own dataset.

    Example: `dgcf update runs/shop yesterday.csv --window 365d --out runs/shop-monday`
    """
    seconds = None if window is None else seconds_of_window(window)
    from dgcf.cli.views.progress import training_progress  # here, because torch takes seconds to import
    from dgcf.experiments import update
    from dgcf.experiments.train import Options
    from dgcf.recommend.update import How

    options = Options(device, "train", 10.0, (), training_progress, notify)
    how = How(epochs, seconds, held_out, parse_settings(settings or []), scratch)
    answer = update.update(run, rows, folder, options, how, read=read, data=data)
    emit(answer, as_json, lambda: view.draw(answer))

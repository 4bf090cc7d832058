"""``dgcf tune``: search for better settings on the validation split, in a study folder that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgcf.cli.inputs import MODELS, PRESET_HELP, Data, Device
from dgcf.cli.terminal import AsJson, emit
from dgcf.config import parse_settings


def register(root: typer.Typer) -> None:
    root.command("tune")(tune_model)


def tune_model(
    data: Data,
    model: Annotated[str, typer.Option(help=MODELS)] = "dgcf",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Total number of finished trials of the study.", show_default="30")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no trial after this many minutes.", show_default=False)
    ] = None,
    preset: Annotated[str, typer.Option(help=PRESET_HELP)] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting; repeatable.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="SPACE", help="Search space: key=low:high, key=low:high:log or key=a,b,c; repeatable."),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Validation metric to maximise.", show_default="recall@20")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the search and of every training.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Number of processes.")] = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Study folder.", show_default="tune/DATASET-MODEL")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Search for better settings by the validation split; the test split is never read.

    The same command resumes the study; started several times at once, the processes share its trials. The first trial
    is the preset. The best settings are written to best.toml in the study folder, for `dgcf train --config`.

    Example: `dgcf tune deoscirec/ml-100k --model lightgcn --trials 30 --set dim=64 --search l2=1e-6:1e-2:log`
    """
    from dgcf.cli.views import (
        tune as view,  # here, because torch takes seconds to import and other verbs do not need it
    )

    found = view.search_of(data, model, preset, parse_settings(settings or []), search or [], metric, seed, folder)
    tuned = view.run(found, trials, minutes, jobs, device)
    emit(tuned.to_dict(), as_json, lambda: view.draw(tuned))

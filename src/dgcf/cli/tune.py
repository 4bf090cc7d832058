"""``dgcf tune``: search for better settings on the validation split, in a study folder from which it can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgcf.cli.terminal import AsJson, emit
from dgcf.cli.train import MODELS, PRESETS
from dgcf.config import parse_settings


def register(root: typer.Typer) -> None:
    root.command("tune")(tune_model)


def tune_model(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A known name, a folder or a file.", show_default=False)],
    model: Annotated[str, typer.Option(help=MODELS)] = "dgcf",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Finished trials in all, over all sittings.", show_default="30")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no trial after so many minutes.", show_default=False)
    ] = None,
    preset: Annotated[str, typer.Option(help=f"Where the search starts: {PRESETS}.")] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting; repeatable.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="SPACE", help="Another space: key=low:high, key=low:high:log or key=a,b,c; repeatable."),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="What trials are compared by.", show_default="recall@20")] = None,
    seed: Annotated[int, typer.Option(help="What the search and every training draw from.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Processes that share the trials.")] = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="The study folder.", show_default="tune/DATASET-MODEL")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Search for better settings; trials are compared on the validation split, and the test split is never read.

    The same command again goes on with the study; started twice at once, the two share its trials. The first trial is
    the preset itself. The study folder holds best.toml, which `dgcf train --config` takes.

    Example: `dgcf tune deoscirec/ml-100k --model lightgcn --trials 30 --set dim=64 --search l2=1e-6:1e-2:log`
    """
    from dgcf.cli.views import (
        tune as view,  # here, because torch takes seconds to import and other verbs do not need it
    )

    found = view.search_of(data, model, preset, parse_settings(settings or []), search or [], metric, seed, folder)
    tuned = view.run(found, trials, minutes, jobs, device)
    emit(tuned.to_dict(), as_json, lambda: view.draw(tuned))

"""``dgcf reproduce``: reproduce the tables and figures of the paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from dgcf.cli.inputs import Device
from dgcf.cli.terminal import AsJson, emit, notify
from dgcf.errors import ConfigError, StoppedError
from dgcf.experiments.reproduce import IDS

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.recipe import Recipes
    from dgcf.experiments.reproduce.results import Store


def command(
    experiment: Annotated[str, Argument(metavar="ID", help=f"{', '.join(IDS)}, or all.", show_default=False)],
    render: Annotated[
        bool, Option("--render", help="Train nothing; write tables and figures of the recorded results.")
    ] = False,
    seeds: Annotated[int | None, Option(min=1, help="Number of seeds to run.", show_default="all")] = None,
    only: Annotated[
        str | None,
        Option(metavar="CELL", help="Run cells whose key contains this (`*` matches anything, `^` its start)."),
    ] = None,
    device: Device = "auto",
    data_home: Annotated[
        Path | None, Option(help="Folder of the public datasets.", show_default="$DGCF_DATA_HOME")
    ] = None,
    prepare: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Only write the required datasets there, for a machine without them."),
    ] = None,
    project: Annotated[
        Path, Option(help="Folder of `recipes`, `results` and `docs`.", show_default="this folder")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of the paper: train the cells that are not recorded, or write the recorded results.

    A cell is one training (dataset, model, settings, seed) or one computation; `recipes/reproduce` defines them. A
    finished cell is appended to `results/ID.jsonl` and never trained again. Ctrl-C saves and stops, and the same
    command resumes, on this machine or another. Several processes share the work: each trains cells that no other
    holds, and takes those of a killed one. The exit code is 1 while cells are missing.

    Example: `dgcf reproduce table4`

    Example: `dgcf reproduce table1 --only 'ml-100k:dgcf:paper' --seeds 3`

    Example: `dgcf reproduce all --render`
    """
    from dgcf.experiments.reproduce.recipe import Recipes  # here, because torch takes seconds to import
    from dgcf.experiments.reproduce.results import Store
    from dgcf.experiments.reproduce.runner import CellFilter
    from dgcf.experiments.reproduce.runner import prepare as write_datasets

    options = {"--seeds": seeds, "--only": only, "--prepare": prepare}
    if render and (given := [name for name, value in options.items() if value is not None]):
        raise ConfigError(f"--render uses all recorded results; leave out {given[0]}.")
    if data_home is not None:
        if not data_home.is_dir():
            raise ConfigError(f"--data-home {data_home} is not a folder; name the one with deoscirec, movielens, ….")
        os.environ["DGCF_DATA_HOME"] = str(data_home)
    recipes, store = Recipes.read(project / "recipes", "name that with --project"), Store(project / "results")
    if prepare is not None:
        emit(write_datasets(recipes, CellFilter(experiment, only, seeds), prepare, notify), as_json, lambda: None)
    elif render:
        _render(recipes, store, experiment, project, as_json)
    else:
        _run(recipes, store, experiment, device, seeds, only, as_json)


def _run(
    recipes: Recipes, store: Store, experiment: str, device: str, seeds: int | None, only: str | None, as_json: bool
) -> None:
    from dgcf.cli.views.progress import progress_of
    from dgcf.cli.views.reproduce import draw_tally
    from dgcf.experiments.reproduce.runner import Runner

    try:
        runner = Runner(recipes, store, device=device)
        tally = runner.run(experiment, seeds=seeds, only=only, progress=progress_of("cells"))
    except KeyboardInterrupt:
        saved = f"stopped; finished cells are saved in {store.folder}."
        raise StoppedError(f"{saved} Repeat the command to resume.") from None
    emit(vars(tally), as_json, lambda: draw_tally(tally))
    if tally.missing:
        raise typer.Exit(1)


def _render(recipes: Recipes, store: Store, experiment: str, project: Path, as_json: bool) -> None:
    from dgcf.cli.views.reproduce import draw_rendered
    from dgcf.experiments.reproduce.report.pages import write

    rendered = write(recipes, store, experiment, project)
    emit(rendered.to_dict(), as_json, lambda: draw_rendered(rendered))
    if any(rendered.missing.values()):
        raise typer.Exit(1)

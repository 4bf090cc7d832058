"""``dgcf reproduce``: every table and figure of the paper, by one command each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgcf.cli.inputs import Device
from dgcf.cli.terminal import AsJson, emit, notify, out
from dgcf.errors import ConfigError, StoppedError
from dgcf.experiments.reproduce import IDS

if TYPE_CHECKING:
    from dgcf.experiments.reproduce.recipe import Recipes
    from dgcf.experiments.reproduce.results import Store
    from dgcf.experiments.reproduce.runner import CellFilter, Tally

LISTED = 20
"""How many missing cells are named on the screen before the rest is counted."""


def register(root: typer.Typer) -> None:
    root.command("reproduce")(reproduce)


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help=f"{', '.join(IDS)}, or all.",
            show_default=False,
        ),
    ],
    render: Annotated[
        bool, typer.Option("--render", help="Train nothing; draw tables and figures from what is recorded.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="The first so many seeds.", show_default="all")] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="CELL", help="Only cells whose name has this in it (`*` is anything, `^` its beginning)."),
    ] = None,
    device: Device = "auto",
    data_home: Annotated[
        Path | None, typer.Option(help="The folder of public datasets.", show_default="$DGCF_DATA_HOME")
    ] = None,
    prepare: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Only write the datasets it needs there, for a machine without them."),
    ] = None,
    project: Annotated[
        Path, typer.Option(help="Where `recipes`, `results` and `docs` are.", show_default="this folder")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of the paper: train what is not recorded yet, or draw what is.

    A cell is one training (dataset, model, settings, seed) or one computed thing; recipes in `recipes/reproduce` define
    them. What is finished is appended to `results/ID.jsonl` and never trained again, so the work can be
    stopped by Ctrl-C at any time and goes on with the same command, here or on another machine. Several processes can
    share the work: each trains cells that no other has taken, and takes over those of a killed one. The exit code is 1
    while cells are missing.

    Example: `dgcf reproduce table4`

    Example: `dgcf reproduce table1 --only 'ml-100k:dgcf:paper' --seeds 3`

    Example: `dgcf reproduce all --render`
    """
    from dgcf.experiments.reproduce.recipe import Recipes  # here: torch takes seconds to import
    from dgcf.experiments.reproduce.results import Store
    from dgcf.experiments.reproduce.runner import CellFilter

    _refuse_together(render, {"--seeds": seeds, "--only": only, "--prepare": prepare})
    if data_home is not None:
        _look_for_data_in(data_home)
    recipes, store = Recipes.read(project / "recipes", "name that with --project"), Store(project / "results")
    if prepare is not None:
        _prepare(recipes, CellFilter(experiment, only, seeds), prepare, as_json)
    elif render:
        _render(recipes, store, experiment, project, as_json)
    else:
        _run(recipes, store, experiment, device, seeds, only, as_json)


def _refuse_together(render: bool, others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if render and value is not None:
            raise ConfigError(f"--render draws all that is recorded; leave {name} out.")


def _look_for_data_in(folder: Path) -> None:
    import os

    if not folder.is_dir():
        raise ConfigError(f"--data-home {folder} is no folder; name the one that holds deoscirec, movielens, ….")
    os.environ["DGCF_DATA_HOME"] = str(folder)


def _prepare(recipes: Recipes, selection: CellFilter, folder: Path, as_json: bool) -> None:
    from dgcf.experiments.reproduce.runner import prepare

    emit(prepare(recipes, selection, folder, notify), as_json, lambda: None)


def _run(
    recipes: Recipes, store: Store, experiment: str, device: str, seeds: int | None, only: str | None, as_json: bool
) -> None:
    from dgcf.cli.views.progress import progress_of
    from dgcf.experiments.reproduce.runner import Runner

    try:
        runner = Runner(recipes, store, device=device)
        tally = runner.run(experiment, seeds=seeds, only=only, progress=progress_of("cells"))
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; what is finished is kept in {store.folder}. The same command goes on from there."
        ) from None
    emit(tally.to_dict(), as_json, lambda: _tell(tally))
    if tally.missing:
        raise typer.Exit(1)


def _tell(tally: Tally) -> None:
    taken = f"{len(tally.taken_over)} taken over from other cells, " if tally.taken_over else ""
    told = f"{len(tally.done)} computed, {taken}{len(tally.known)} recorded before, {len(tally.missing)} missing"
    out.print(f"cells: {told}")
    _tell_missing(tally.missing)


def _tell_missing(missing: Mapping[str, str]) -> None:
    for key, why in list(missing.items())[:LISTED]:
        notify(f"missing: {key} ({why})")
    if len(missing) > LISTED:
        notify(f"… and {len(missing) - LISTED:,} more; --json names all.")


def _render(recipes: Recipes, store: Store, experiment: str, project: Path, as_json: bool) -> None:
    from dgcf.experiments.reproduce.report.pages import write

    rendered = write(recipes, store, experiment, project)
    missing = {f"{name} {key}": why for name, keys in rendered.missing.items() for key, why in keys.items()}
    emit(rendered.to_dict(), as_json, lambda: _tell_written(rendered.written, missing))
    if missing:
        raise typer.Exit(1)


def _tell_written(written: Sequence[Path], missing: Mapping[str, str]) -> None:
    for path in written:
        out.print(str(path), soft_wrap=True)
    _tell_missing(missing)

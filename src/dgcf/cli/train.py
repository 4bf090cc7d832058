"""``dgcf train``: train a model on a dataset, in a run folder from which it can always go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgcf.cli.terminal import AsJson, emit
from dgcf.config import parse_settings, read_toml
from dgcf.errors import ConfigError

MODELS = "One that `dgcf models` lists."
PRESETS = "paper, official-code or plain"
MAX_SEEDS = 10_000


def register(root: typer.Typer) -> None:
    root.command("train")(train_model)


def train_model(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="A known name, a folder or a file; with --resume, the run's own."),
    ] = None,
    model: Annotated[str | None, typer.Option(help=MODELS, show_default="dgcf")] = None,
    preset: Annotated[str | None, typer.Option(help=PRESETS, show_default="paper")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting over the preset, of those that dgcf models MODEL lists; repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings, such as best.toml of `dgcf tune`; --set goes over it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="What all random draws come from.", show_default="0")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=MAX_SEEDS, help="Train that many runs, with seeds from --seed on.")
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    mask: Annotated[str, typer.Option(help="Items hidden in the test ranking: train, or train+validation.")] = "train",
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder; with --seeds, of its seed-N.", show_default="runs/…"),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder.", show_default=False)] = None,
    track: Annotated[
        list[str] | None, typer.Option(help="Also tell tensorboard or mlflow how it goes; repeatable.")
    ] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between two checkpoints.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Train a model; the epoch that is best on the validation split is kept and measured on the test split.

    Ctrl-C saves and stops; `--resume` goes on to the same result, to the bit, as if nothing had happened.

    Example: `dgcf train deoscirec/ml-100k --model dgcf --set layers=2`
    """
    from dgcf.cli.views import (
        train as view,  # here, because torch takes seconds to import and other verbs do not need it
    )

    filed = read_toml(config) if config else {}
    model, preset = (_once(config, filed, name, said) for name, said in (("model", model), ("preset", preset)))
    given = {**filed, **parse_settings(settings or [])}
    how = view.How(device, mask, save_every, tuple(track or []))
    if resume is not None:
        if seeds > 1 or folder is not None:
            raise ConfigError("--resume goes on with one run in its own folder; leave out --seeds and --out.")
        results = [view.resume(resume, data, model, preset, given, seed, how)]
    else:
        if data is None:
            raise ConfigError("there is nothing to train on; name a dataset, such as deoscirec/ml-100k.")
        results = view.start(data, model or "dgcf", preset or "paper", given, (seed or 0, seeds), folder, how)
    emit(view.together(results), as_json, lambda: view.draw(results))


def _once(config: Path | None, filed: dict[str, Any], name: str, said: str | None) -> str | None:
    """Take the model or the preset out of a file's settings; what the command line says must not contradict it."""
    found = filed.pop(name, said)
    if not isinstance(found, str | None):
        raise ConfigError(f"{name} in {config} is {found!r}, expected a name in quotes.")
    if said not in (None, found):
        raise ConfigError(
            f"{config} is of the {name} {found!r}, but --{name} says {said!r}; leave --{name} out, or the file."
        )
    return found

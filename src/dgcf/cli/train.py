"""``dgcf train``: train a model on a dataset, in a run folder that can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from dgcf.cli import completion
from dgcf.cli.inputs import (
    MAX_SEEDS,
    Device,
    Mask,
    Preset,
    given_options,
    model_option,
    out_option,
    read_and_show,
    read_dataset,
    set_option,
    with_read_options,
)
from dgcf.cli.terminal import AsJson, be_silent, emit, notify, progress
from dgcf.config import parse_settings, read_toml
from dgcf.data.columns import ReadOptions
from dgcf.data.paths import absolute_source
from dgcf.data.prepare import Preparation
from dgcf.errors import ConfigError

BASELINES_HELP = "Compare with popularity, item-knn, ease and ials on the validation split."

ON_HELP = "Pairs to train on: train, or everything (all splits, for as many epochs as validation chose before)."

SHARD_HELP = (
    "Under torchrun: how processes divide the model, by columns (each has the graph) or rows (each has a part)."
)


@with_read_options
def command(
    context: Context,
    data: Annotated[
        str | None,
        Argument(
            metavar="DATA",
            help="A known name, a folder or a file; optional with --resume.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    model: Annotated[str | None, model_option("dgcf")] = None,
    preset: Preset = None,
    settings: Annotated[
        list[str] | None, set_option("Override a setting of the preset (`dgcf models MODEL` lists them); repeatable.")
    ] = None,
    config: Annotated[
        Path | None, Option(help="TOML file of settings, such as best.toml of `dgcf tune`; --set overrides it.")
    ] = None,
    on: Annotated[str | None, Option(help=ON_HELP, show_default="train")] = None,
    seed: Annotated[int | None, Option(help="Random seed.", show_default="0")] = None,
    seeds: Annotated[int, Option(min=1, max=MAX_SEEDS, help="Number of runs, with consecutive seeds from --seed.")] = 1,
    device: Device = "auto",
    mask: Mask = "train",
    folder: Annotated[Path | None, out_option("Run folder; with --seeds, the parent of seed-N.", "runs/…")] = None,
    resume: Annotated[
        Path | None, Option(help="Resume this run folder.", show_default=False, autocompletion=completion.runs)
    ] = None,
    track: Annotated[list[str] | None, Option(help="Also log metrics to tensorboard or mlflow; repeatable.")] = None,
    save_every: Annotated[float, Option(min=0, help="Seconds between checkpoints.")] = 10.0,
    shard: Annotated[str, Option(help=SHARD_HELP)] = "columns",
    baselines: Annotated[
        bool | None,
        Option("--baselines/--no-baselines", help=BASELINES_HELP, show_default="only with default settings"),
    ] = None,
    as_json: AsJson = False,
    *,
    read: ReadOptions,
) -> None:
    """Train a model, keep the epoch that is best on the validation split, and measure it on the test split.

    Ctrl-C saves and stops; `--resume` continues to the same result, to the bit, as without the interruption.

    A training with default settings (none of --model, --preset, --config, --set and --resume) ends with one line that
    compares the model on validation with the baselines that take seconds on this data, and names a better one.

    Example: `dgcf train deoscirec/ml-100k --model dgcf --set layers=2`

    Example: `dgcf train deoscirec/ml-100k --on everything`

    Example: `dgcf train --resume runs/deoscirec-ml-100k-dgcf-seed0`

    Example: `torchrun --nproc-per-node 4 -m dgcf train deoscirec/gowalla --shard rows`
    """
    from dgcf.cli.views import train as view  # here, because torch takes seconds to import
    from dgcf.cli.views.progress import training_progress
    from dgcf.experiments import processes, stages, train
    from dgcf.experiments.baselines import stand
    from dgcf.train.plan import Plan
    from dgcf.train.presets import DEFAULT
    from dgcf.train.run.moved import explain_moved

    default = not (model or preset or settings or config or resume)
    in_file = read_toml(config) if config else {}
    model, preset = (_once(config, in_file, name, given) for name, given in (("model", model), ("preset", preset)))
    given = {**in_file, **parse_settings(settings or [])}
    world = context.with_resource(processes.processes(device))
    if not world.first:
        be_silent(world.rank)
    mode = world.from_first(lambda: processes.checked(world, shard, seeds, on))
    options = train.Options(device, mask, save_every, tuple(track or []), training_progress, notify, world, mode)
    if resume is not None:
        _refuse_beside_resume(seeds, folder, on, read)
    resume = resume or world.from_first(lambda: processes.begun_before(folder))
    run = None if resume is None else stages.first_run(resume)
    if run is not None:
        with explain_moved(run, data, f"name it as DATA, as in `dgcf train DATA --resume {resume}`"):
            dataset = read_dataset(run.source_as_read(data), _preparation(run.about["settings"]))
        data = data or run.source
    elif data is None:
        raise ConfigError("no dataset was given; name one, such as deoscirec/ml-100k.")
    else:
        dataset = read_and_show(data, _preparation(given), read)
    if not world.first:
        processes.follow(dataset, world, mode, device)
        return
    if run is not None and resume is not None:
        metric = run.recipe.train.metric
        again: dict[str, Any] = {"model": model, "preset": preset, "settings": given, "seed": seed}
        summaries = [stages.resume(resume, run, dataset, options, **again)]
    else:
        plan = Plan(model or "dgcf", preset or DEFAULT, given, on or "train")  # type: ignore[arg-type]
        metric = plan.last_stage(dataset)[1].train.metric
        seed_range = range(seed or 0, (seed or 0) + seeds)
        summaries = stages.start(dataset, plan, seed_range, folder, absolute_source(data), options)
    if not as_json:
        view.draw(summaries)  # before the baselines, which may be interrupted
    wanted = default if baselines is None else baselines
    watched = [summary.get("validated", summary) for summary in summaries]
    standing = stand(watched, dataset, metric, mask, bar=progress) if wanted else None
    answer = {**train.combine(summaries), "baselines": standing and standing.to_dict()}
    emit(answer, as_json, lambda: view.draw_standing(standing, data, dataset))


def _refuse_beside_resume(seeds: int, folder: Path | None, on: str | None, read: ReadOptions) -> None:
    """Refuse options that a run cannot be resumed with."""
    if seeds > 1 or folder is not None:
        raise ConfigError("--resume continues one run in its own folder; leave out --seeds and --out.")
    if on is not None:
        raise ConfigError("--resume continues a run on the pairs that it began with; leave out --on.")
    if read.given:
        raise ConfigError(f"--resume reads the data as the run did; leave out {next(iter(given_options(read)))}.")


def _preparation(settings: Mapping[str, Any]) -> Preparation:
    """Return the preparation of a file: it keeps the order of the pairs if the settings need it."""
    return Preparation(keep_order=bool(settings.get("recency")))


def _once(config: Path | None, in_file: dict[str, Any], name: str, given: str | None) -> str | None:
    """Take the model or preset out of a file's settings, and refuse an option that contradicts it."""
    value = in_file.pop(name, given)
    if not isinstance(value, str | None):
        raise ConfigError(f"{name} in {config} is {value!r}, expected a name in quotes.")
    if given not in (None, value):
        raise ConfigError(
            f"{config} is for the {name} {value!r}, but --{name} is {given!r}; leave out --{name} or the file."
        )
    return value

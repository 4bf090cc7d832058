"""``dgcf compare``: compare models on a dataset, or finished runs, with paired tests over the users."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dgcf.cli.inputs import (
    MAX_SEEDS,
    CutOffs,
    Device,
    Mask,
    Preset,
    RunData,
    cut_offs,
    given_options,
    out_option,
    read_and_show,
    set_option,
    with_read_options,
)
from dgcf.cli.terminal import AsJson, emit, notify, progress
from dgcf.data.columns import ReadOptions
from dgcf.errors import ConfigError


@with_read_options
def command(
    what: Annotated[
        list[str],
        Argument(
            metavar="DATA | RUN RUN…", help="A dataset, with --models; or two or more run folders.", show_default=False
        ),
    ],
    models: Annotated[
        str | None, Option(help="Model names (`dgcf models`), separated by commas.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, Option(min=1, max=MAX_SEEDS, help="Number of runs of each model.", show_default="1")
    ] = None,
    seed: Annotated[int | None, Option(help="First random seed.", show_default="0")] = None,
    reference: Annotated[
        str | None, Option(help="Model or run that the others are tested against.", show_default="the first")
    ] = None,
    preset: Preset = None,
    settings: Annotated[
        list[str] | None, set_option("Override a setting of all models, or MODEL.KEY=VALUE of one; repeatable.")
    ] = None,
    config: Annotated[
        list[str] | None,
        Option(metavar="MODEL=FILE", help="TOML file of settings for a model, as of `dgcf tune`; repeatable."),
    ] = None,
    folder: Annotated[Path | None, out_option("Folder of the runs, old and new.", "runs/compare-DATASET")] = None,
    mask: Mask = "train",
    k: CutOffs = "20",
    metrics: Annotated[str, Option("--metric", help="Metrics separated by commas, or `all`.")] = "recall,ndcg",
    plot: Annotated[Path | None, Option(help="Write a bar chart (.png or .svg).")] = None,
    latex: Annotated[Path | None, Option(help="Write a LaTeX table (.tex, booktabs).")] = None,
    markdown: Annotated[Path | None, Option(help="Write Markdown tables (.md).")] = None,
    html: Annotated[Path | None, Option(help="Write a self-contained page (.html).")] = None,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
    *,
    read: ReadOptions,
) -> None:
    """Compare models on a dataset, or finished runs: means over seeds, paired tests over users, time and memory.

    A run in the folder with the same data, model, settings and seed is reused, or resumed if it is unfinished; missing
    runs are trained; other runs are left unchanged. Ctrl-C saves and stops, and the same command resumes.

    Example: `dgcf compare deoscirec/ml-100k --models dgcf,lightgcn,ease --seeds 3 --html table.html`

    Example: `dgcf compare runs/lightgcn runs/dgcf`
    """
    from dgcf.cli.views.compare import draw  # imported late: torch takes seconds
    from dgcf.cli.views.progress import training_progress
    from dgcf.experiments import compare, report

    given = {"plot": plot, "latex": latex, "markdown": markdown, "html": html}
    targets = {name: target for name, target in given.items() if target is not None}
    report.refuse_targets(targets)
    ks = cut_offs(k)
    names = compare.metric_names(metrics, ks)
    options = compare.Options(names, ks, mask, reference, device, training_progress, notify, progress)
    training = {"--seeds": seeds, "--seed": seed, "--preset": preset, "--set": settings, "--config": config}
    if models is None:
        _refuse_given({**training, "--out": folder}, "is for training with --models; leave it out")
        _refuse_given(given_options(read), "is for a file with --models, and runs are read as before; leave it out")
        result = compare.compare_runs(what, data, options)
    else:
        _refuse_given({"--data": data}, "is for run folders; name the dataset itself")
        if len(what) > 1:
            raise ConfigError(f"--models compares on one dataset, and {len(what)} are given; give one.")
        chosen = [word.strip() for word in models.split(",") if word.strip()]
        seed_range = range(seed or 0, (seed or 0) + (seeds or 1))
        request = compare.Request(chosen, preset or "default", settings or [], config or [], seed_range)
        result = compare.compare_models(what[0], request, folder, options, partial(read_and_show, read=read))
    report.write(result, targets)
    emit(result.to_dict(), as_json, lambda: draw(result))


def _refuse_given(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} {why}.")

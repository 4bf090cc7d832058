"""``dgcf tune``: search for better settings on the validation split, in a study folder that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dgcf.cli.inputs import (
    PRESET_HELP,
    Data,
    Device,
    model_option,
    out_option,
    read_and_show,
    set_option,
    with_read_options,
)
from dgcf.cli.terminal import AsJson, emit, notify
from dgcf.config import parse_settings
from dgcf.data.columns import ReadOptions
from dgcf.data.paths import absolute_source
from dgcf.errors import StoppedError


@with_read_options
def command(
    data: Data,
    model: Annotated[str, model_option()] = "dgcf",
    trials: Annotated[
        int | None, Option(min=1, help="Total number of finished trials of the study.", show_default="30")
    ] = None,
    minutes: Annotated[
        float | None, Option(min=0, help="Start no trial after this many minutes.", show_default=False)
    ] = None,
    preset: Annotated[str | None, Option(help=PRESET_HELP, show_default="that of the study, or default")] = None,
    settings: Annotated[list[str] | None, set_option("Fix a setting; repeatable.")] = None,
    search: Annotated[
        list[str] | None,
        Option(metavar="SPACE", help="Search space: key=low:high, key=low:high:log or key=a,b,c; repeatable."),
    ] = None,
    metric: Annotated[
        str | None, Option(help="Validation metric to maximise.", show_default="that of the preset")
    ] = None,
    seed: Annotated[int, Option(help="Random seed of the search and of every training.")] = 0,
    jobs: Annotated[int, Option(min=1, max=1024, help="Number of processes.")] = 1,
    folder: Annotated[Path | None, out_option("Study folder.", "tune/DATASET-MODEL")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
    *,
    read: ReadOptions,
) -> None:
    """Search for better settings by the validation split; the test split is never read.

    The same command resumes the study; started several times at once, the processes share its trials. The first trial
    is the preset. The best settings are written to best.toml in the study folder, for `dgcf train --config`.

    Example: `dgcf tune deoscirec/ml-100k --model lightgcn --trials 30 --set dim=64 --search l2=1e-6:1e-2:log`
    """
    from dgcf.cli.views.progress import progress_of  # here, because torch takes seconds to import
    from dgcf.cli.views.tune import draw
    from dgcf.experiments.search import search_for
    from dgcf.experiments.space import parse_space
    from dgcf.experiments.tune import tune

    fixed, spaces = parse_settings(settings or []), dict(parse_space(text) for text in search or [])
    study = search_for(
        read_and_show(data, read=read),
        model,
        preset=preset,
        settings=fixed,
        search=spaces,
        metric=metric,
        seed=seed,
        out=folder,
        source=absolute_source(data),
    )
    notify(f"{study.recipe.name} on {study.dataset.name}, validation {study.metric}, in {study.path}")
    try:
        display = progress_of("trials")
        tuned = tune(study, trials=trials, minutes=minutes, jobs=jobs, device=device, progress=display)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; the same command resumes the study in {study.path}.") from None
    emit(tuned.to_dict(), as_json, lambda: draw(tuned))

"""``dgcf models``: list the models, and the settings of one."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from dgcf.cli import completion
from dgcf.cli.inputs import Preset, read_dataset
from dgcf.cli.terminal import AsJson, emit
from dgcf.errors import ConfigError


def command(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME",
            help="Show this model with all its settings.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    preset: Preset = None,
    data: Annotated[
        str | None,
        Option(
            help="Also show the values that depend on this dataset.",
            show_default=False,
            autocompletion=completion.datasets,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models, or the settings of one: the value that a training uses, search space of `dgcf tune`, meaning.

    Example: `dgcf models dgcf --data ml-100k`
    """
    from dgcf.cli.views import models as view  # here, because torch takes seconds to import
    from dgcf.train import Size
    from dgcf.train.presets import DEFAULT, known_name
    from dgcf.train.recipe import describe_models

    if name is None and (data is not None or preset is not None):
        option = "--preset" if data is None else "--data"
        raise ConfigError(f"{option} was given without a model; name a model, such as `dgcf models dgcf {option} …`.")
    if data is None:
        answer = describe_models(name, preset or DEFAULT)
    else:
        dataset = read_dataset(data)
        known = known_name(dataset.fingerprint, preset or DEFAULT)
        answer = describe_models(name, preset or DEFAULT, known, Size.of(dataset)) | {"dataset": dataset.name}
    emit(answer, as_json, lambda: view.draw_list(answer) if name is None else view.draw_one(answer))

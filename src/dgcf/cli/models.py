"""``dgcf models``: list the models, and the settings of one."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from dgcf.cli import completion
from dgcf.cli.terminal import AsJson, emit


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
    as_json: AsJson = False,
) -> None:
    """List the models, or the settings of one: default, search space of `dgcf tune`, meaning.

    Example: `dgcf models dgcf`
    """
    from dgcf.cli.views import models as view  # here, because torch takes seconds to import
    from dgcf.train.recipe import describe_models

    answer = describe_models(name)
    emit(answer, as_json, lambda: view.draw_list(answer) if name is None else view.draw_one(answer))

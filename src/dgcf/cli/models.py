"""``dgcf models``: what can be trained, and what each setting means."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgcf.cli.terminal import AsJson, emit, out
from dgcf.config import Between, Parameter, Space, parameters

if TYPE_CHECKING:
    from dgcf.models.catalog import Entry


def register(root: typer.Typer) -> None:
    root.command("models")(list_models)


def list_models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One model, with all its settings.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models, or the settings of one: defaults, meaning, and where `dgcf tune` looks for better values.

    Example: `dgcf models dgcf`
    """
    from dgcf.models.catalog import CATALOG, entry  # here, because torch takes seconds to import
    from dgcf.train.config import TrainConfig

    chosen = list(CATALOG.values()) if name is None else [entry(name)]
    loop = parameters(TrainConfig())
    in_epochs = any(not one.solved for one in chosen)
    result = {
        "models": [describe(one) for one in chosen],
        "training": [parameter.to_dict() for parameter in loop] if in_epochs else [],
    }
    emit(result, as_json, lambda: _draw_list(chosen) if name is None else _draw_one(chosen[0], loop))


def describe(model: Entry) -> dict[str, Any]:
    """JSON-ready: what the model is, how it comes to be, and its own settings (not those of the training loop)."""
    return {
        "name": model.name,
        "about": model.about,
        "trained": _trained(model),
        "source": _source(model),
        "parameters": [parameter.to_dict() for parameter in parameters(model.config)],
    }


def _trained(model: Entry) -> str:
    return "at once" if model.solved else "in epochs"


def _source(model: Entry) -> str:
    """The model's equation, shapes and origin, as its class tells them."""
    return (inspect.getdoc(model.kind) or "").replace("``", "`")


def _draw_list(chosen: list[Entry]) -> None:
    table = Table("model", "trained", "what it is")
    for model in chosen:
        table.add_row(model.name, _trained(model), model.about)
    out.print(table)
    out.print("`dgcf models NAME` shows a model's settings.")


def _draw_one(model: Entry, loop: list[Parameter]) -> None:
    out.print(f"{model.name}: {model.about}; trained {_trained(model)}\n")
    out.print(_source(model) + "\n", soft_wrap=True)
    own = parameters(model.config)
    if own:
        out.print(_settings_table(own, "its own settings"))
    else:
        out.print("It has no settings.")
    if not model.solved:
        out.print(_settings_table(loop, "settings of the training loop"))
        out.print("A preset (`dgcf train --preset`) sets values over these defaults, and --set over both.")


def _settings_table(settings: list[Parameter], title: str) -> Table:
    table = Table("setting", "default", "search", "meaning", title=title, title_justify="left")
    for one in settings:
        # A type that is a choice of words is explained by its words; where the sentence names them all, once is enough.
        kind = "" if " | " not in one.kind or all(word in one.about for word in one.kind.split(" | ")) else one.kind
        meaning = f"{one.about} ({kind})" if kind else one.about
        table.add_row(one.name, _word(one.default), _range(one.space), meaning)
    return table


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _range(space: Space | None) -> str:
    if space is None:
        return ""
    if isinstance(space, Between):
        return f"{space.low:g} … {space.high:g}{' (log)' if space.log else ''}"
    return ", ".join(map(_word, space.values))

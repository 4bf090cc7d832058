"""Show the catalogue of models, and the settings of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgcf.cli.terminal import Table, out


def draw_list(answer: Mapping[str, Any]) -> None:
    """Print a table of all models."""
    table = Table("model", "trained", "description")
    for model in answer["models"]:
        table.add_row(model["name"], model["trained"], model["about"])
    out.print(table)
    out.print("`dgcf models NAME` shows a model's settings.")


def draw_one(answer: Mapping[str, Any]) -> None:
    """Print one model: its equation, and its settings with the values that a training uses."""
    (model,) = answer["models"]
    out.print(f"{model['name']}: {model['about']}; trained {model['trained']}\n")
    out.print(model["source"] + "\n", soft_wrap=True)
    if model["parameters"]:
        out.print(_settings_table(model["parameters"], "settings of the model"))
    else:
        out.print("This model has no settings.")
    for part, what in (("training", "training loop"), ("blending", "composed ranking")):
        if answer[part]:
            out.print(_settings_table(answer[part], f"settings of the {what}"))
    on = f" on {answer['dataset']}" if "dataset" in answer else ""
    out.print(f"Values of a training with the preset {answer['preset']}{on}; --set overrides them.", soft_wrap=True)
    if any(one["from_data"] for part in (model["parameters"], answer["training"]) for one in part):
        text = "by data: derived from the size or the name of the data; --data DATA shows the value."
        out.print(text, soft_wrap=True)


def _settings_table(settings: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = Table("setting", "value", "search", "meaning", title=title, title_justify="left")
    for setting in settings:
        about, kind = setting["about"], setting["type"]
        # Show the choices of a setting unless its sentence names them all.
        choices = kind.split(" | ") if " | " in kind else []
        meaning = about if all(choice in about for choice in choices) else f"{about} ({kind})"
        value = "by data" if setting["from_data"] else _value(setting["value"])
        table.add_row(setting["name"], value, _space(setting["space"]), meaning)
    return table


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _space(space: Mapping[str, Any] | None) -> str:
    if space is None:
        return ""
    if "values" in space:
        return ", ".join(map(_value, space["values"]))
    return f"{space['low']:g} … {space['high']:g}{' (log)' if space['log'] else ''}"

"""Log a recommender to MLflow as a pyfunc model, which is loaded from its file without pickle.

A row of the input is a user (column ``user``), a new user with some items (``items``, a list), or a user with further
items (both). A row of the output has the lists ``items`` and ``scores``, and ``titles`` where titles are known.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from dgcf.errors import DataError
from dgcf.ids import RawId
from dgcf.recommend import artifact
from dgcf.recommend.card import card_markdown, model_card
from dgcf.recommend.recommender import Recommender
from dgcf.version import __version__

MODEL = "recommender.dgcf"
DEFAULTS = {"k": 10, "exclude_seen": True, "unknown": "raise"}


class Model:
    """What ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, rec: Recommender) -> None:
        self.rec = rec

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a data frame with a list for each row; ``params`` are ``k``, ``exclude_seen`` and ``unknown``."""
        import pandas as pd

        chosen = {**DEFAULTS, **(params or {})}
        columns = set(getattr(rows, "columns", ())) & {"user", "items"}
        if not columns:
            raise DataError("the input has neither the column user nor items; give a data frame with one of them.")
        answers = [self._answer(row, chosen) for row in rows[sorted(columns)].to_dict("records")]
        return pd.DataFrame(answers, index=rows.index)

    def _answer(self, row: dict[str, Any], params: dict[str, Any]) -> dict[str, list[Any]]:
        user, items = _id(row.get("user")), row.get("items")
        items = [] if items is None or isinstance(items, float) else [_id(item) for item in items]
        if items:
            table = self.rec.recommend_for(items, user=user, **params)
        elif user is not None:
            table = self.rec.recommend(user, **params)
        else:
            raise DataError("a row of the input has neither a user nor items; give one of them.")
        titles = {"titles": table["title"]} if "title" in table.columns else {}
        return {"items": table["item"], "scores": table["score"], **titles}


def _load_pyfunc(path: str) -> Model:
    """Return the model of a file that ``log_model`` logged; MLflow calls this."""
    return Model(Recommender.of(artifact.load(path)))


def _id(value: Any) -> RawId | None:
    """Return an id as text or a whole number; a data frame with gaps holds whole numbers as floats."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and value != value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def log_model(rec: Recommender, *, name: str, folder: Path, register: str | None = None) -> dict[str, Any]:
    """Log a model, its card, settings and metrics as a run of the experiment ``dgcf``, and return where it is.

    It is logged at MLFLOW_TRACKING_URI, by default in ``mlflow.db`` in ``folder``.
    """
    from dgcf.train.run import tracking

    for variable, value in tracking.UNLESS_SET.items():
        os.environ.setdefault(variable, value)
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = given or f"sqlite:///{folder / 'mlflow.db'}"
    shown = re.sub(r"//[^/@]*@", "//***@", uri)
    with tracking.quiet(), tracking.needed("mlflow", "MLflow"):
        mlflow = import_module("mlflow")
        import_module("mlflow.pyfunc")
        import_module("pandas")
    card = model_card(rec)
    with tracking.quiet(), tracking.explained(shown), _tracking_at(mlflow, uri), tempfile.TemporaryDirectory() as place:
        file = rec.save(Path(place) / MODEL)
        experiment = _experiment(mlflow, tracking.EXPERIMENT, None if given else folder / "mlruns")
        with mlflow.start_run(experiment_id=experiment, run_name=name, tags=_tags(card)) as run:
            _log_card(mlflow, card, name, tracking.mlflow_name)
            first = "name" if "name" in inspect.signature(mlflow.pyfunc.log_model).parameters else "artifact_path"
            info = mlflow.pyfunc.log_model(
                **{first: "model"},
                loader_module=__name__,
                data_path=str(file),
                signature=_signature(rec),
                registered_model_name=register,
                pip_requirements=[f"dgcf=={__version__}", "pandas"],
            )
    return {
        "format": "mlflow",
        "uri": shown,
        "run_id": run.info.run_id,
        "model_uri": info.model_uri,
        "registered": register,
        "load": f"mlflow.pyfunc.load_model({info.model_uri!r})",
        "users": card["data"]["users"],
        "items": card["data"]["items"],
    }


def _log_card(mlflow: Any, card: dict[str, Any], name: str, metric_name: Callable[[str], str]) -> None:
    """Log the settings, the metrics of each split and the card in the active run."""
    mlflow.log_params({key: str(value) for key, value in {"model": card["model"], **card["settings"]}.items()})
    for one in card["metrics"]:
        values = {f"{one['split']}/{metric}": value for metric, value in one["values"].items()}
        mlflow.log_metrics({metric_name(metric): value for metric, value in values.items()})
    mlflow.log_dict(card, "card.json")
    mlflow.log_text(card_markdown(card, name), "card.md")


def _experiment(mlflow: Any, name: str, files: Path | None) -> str:
    """Return the id of the experiment; a new one keeps its files in ``files``, or where the server says."""
    experiment = mlflow.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    return str(mlflow.create_experiment(name, artifact_location=None if files is None else files.as_uri()))


@contextmanager
def _tracking_at(mlflow: Any, uri: str) -> Iterator[None]:
    """Log at a tracking server inside the block, and where it was before after it; MLflow's prints go to stderr."""
    before, variable = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)  # sets the variable, too
    try:
        with redirect_stdout(sys.stderr):  # where it prints links to the run
            yield
    finally:
        mlflow.set_tracking_uri(before)
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        os.environ.update({} if variable is None else {"MLFLOW_TRACKING_URI": variable})


def _tags(card: dict[str, Any]) -> dict[str, str]:
    data = card["data"]
    tags = {
        "dgcf.dataset": data["name"],
        "dgcf.fingerprint": data["fingerprint"],
        "dgcf.trained_at": card["trained_at"],
    }
    return {name: value for name, value in tags.items() if value}


def _signature(rec: Recommender) -> Any:
    """Return the types of the input, output and parameters."""
    models, types = import_module("mlflow.models"), import_module("mlflow.types")
    schema = import_module("mlflow.types.schema")
    kinds = {"text": types.DataType.string, "integer": types.DataType.long}
    user, item = (kinds[rec.snapshot.vocabulary(side).kind] for side in ("user", "item"))
    inputs = [
        types.ColSpec(user, "user", required=False),
        types.ColSpec(schema.Array(item), "items", required=False),
    ]
    outputs = [types.ColSpec(schema.Array(item), "items"), types.ColSpec(schema.Array(types.DataType.double), "scores")]
    if rec.snapshot.items.titles:
        outputs.append(types.ColSpec(schema.Array(types.DataType.string), "titles"))
    of = {int: types.DataType.long, bool: types.DataType.boolean, str: types.DataType.string}
    params = [types.ParamSpec(name, of[type(value)], value) for name, value in DEFAULTS.items()]
    return models.ModelSignature(types.Schema(inputs), types.Schema(outputs), types.ParamSchema(params))

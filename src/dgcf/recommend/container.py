"""Named members in one folder or one ``.dgcf`` file, each under its SHA-256: what holds an artefact.

The file is a ZIP whose members are stored as they are. Nothing is ever extracted: members are read by the names that
a recommender has, so a name such as ``../x`` leads nowhere, and a file that holds one is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from dgcf.errors import ArtifactError
from dgcf.files import whole_file, whole_folder

MANIFEST = "manifest.json"
KIND = "dgcf recommender"
FORMAT = 2
"""The newest: 2 may hold item weights in place of embeddings. What needs no more than 1 is written as 1."""
SUFFIX = ".dgcf"
_MANIFEST_BYTES = _PART_BYTES = 2**20
# What reading a damaged ZIP or JSON may raise, whichever byte it is.
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    RuntimeError,  # a ZIP's encryption, or a compression that Python has not
    zipfile.BadZipFile,
    zlib.error,
)


def write(
    path: Path,
    members: Mapping[str, bytes],
    *,
    overwrite: bool = False,
    known: frozenset[str] = frozenset(),
    written: int = FORMAT,
) -> Path:
    """Write a ``.dgcf`` file where the name says so, else a folder; it appears whole or not at all.

    ``written`` is the oldest format that has these members: who reads that can read them.
    ``known`` are names that an older folder may have and that go with it when it is replaced.
    """
    files = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in members.items()}
    manifest: dict[str, Any] = {"kind": KIND, "format": written, "files": files}
    manifest["sha256"] = _own_hash(manifest)
    whole = {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode(), **members}
    if path.suffix == SUFFIX:
        if path.exists() and not overwrite:
            raise ArtifactError(
                f"{path} exists already; choose another name, or overwrite it (--overwrite, overwrite=True)."
            )
        with whole_file(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
            for name, data in whole.items():
                # A fixed time: the same recommender gives the same bytes.
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
        return path
    with whole_folder(path, overwrite=overwrite, also=known) as beside:
        for name, data in whole.items():
            (beside / name).write_bytes(data)
    return path


class Container:
    """An artefact, open for reading; ``known`` are the only names that a member may have."""

    def __init__(self, path: Path, known: frozenset[str]) -> None:
        self.path = path
        with explained(path):
            self._files = self._checked(json.loads(self._raw(MANIFEST, _MANIFEST_BYTES)), known)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> bytes:
        """A member, checked against its SHA-256."""
        with explained(self.path):
            expected = self._files[name]
            data = self._raw(name, expected["bytes"])
            if len(data) != expected["bytes"] or hashlib.sha256(data).hexdigest() != expected["sha256"]:
                raise ValueError(f"{name} does not match its checksum")
        return data

    def check(self, name: str) -> None:
        """Check a member that is read later, without holding it."""
        with explained(self.path), self._open(name) as file:
            digest = hashlib.sha256()
            while part := file.read(_PART_BYTES):
                digest.update(part)
            if digest.hexdigest() != self._files[name]["sha256"]:
                raise ValueError(f"{name} does not match its checksum")

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        if self.path.is_dir():
            with (self.path / name).open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(name) as member:
                yield member

    def _raw(self, name: str, most: int) -> bytes:
        """A member, and one byte more than ``most`` if it has more: never as much as a hostile file claims."""
        with self._open(name) as file:
            return file.read(most + 1)

    def _checked(self, manifest: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
        if manifest["kind"] != KIND:
            raise ArtifactError(
                f"{self.path} holds a {str(manifest['kind'])[:60]!r}, expected a {KIND!r}; "
                "save one with Recommender.save or `dgcf export`."
            )
        if not isinstance(manifest["format"], int) or manifest["format"] > FORMAT:
            raise ArtifactError(
                f"{self.path} was written by a newer dgcf (format {str(manifest['format'])[:20]}, this one reads "
                f"{FORMAT}); upgrade dgcf."
            )
        if manifest["sha256"] != _own_hash({key: value for key, value in manifest.items() if key != "sha256"}):
            raise ValueError(f"{MANIFEST} does not match its checksum")
        files = dict(manifest["files"])
        strange = sorted((set(files) | self._names()) - known - {MANIFEST})
        if strange:
            raise ArtifactError(
                f"{self.path} holds a member {strange[0][:60]!r} that no recommender has; do not trust it, and get it "
                "again from where it was made."
            )
        return files

    def _names(self) -> set[str]:
        """The members of a ZIP. What else lies in a folder is none of ours: it is never opened."""
        if self.path.is_dir():
            return set()
        with zipfile.ZipFile(self.path) as archive:
            names = archive.namelist()
        if len(set(names)) != len(names):
            raise ValueError("it holds a member twice")
        return set(names)


def is_artifact(path: Path) -> bool:
    """Whether a path looks like an artefact, whole or not: a file, or a folder with a manifest."""
    return path.is_file() or (path / MANIFEST).is_file()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn whatever a damaged artefact provokes into one sentence."""
    try:
        yield
    except FileNotFoundError as problem:
        missing = Path(str(problem.filename or path)).name
        raise ArtifactError(
            f"{path} is not a recommender: there is no {missing}; give what Recommender.save or `dgcf export` wrote, "
            "or a run folder of `dgcf train`."
        ) from problem
    except DAMAGE as problem:
        told = str(problem).strip("'\"").replace("\n", " ")[:120] or type(problem).__name__
        raise ArtifactError(
            f"{path} is damaged or not a recommender ({told}); save it again, or restore it from a copy."
        ) from problem


def _own_hash(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()

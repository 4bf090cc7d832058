"""The container of an artefact: named members in a folder or a ``.dgcf`` file, each with its SHA-256.

The file is a ZIP of uncompressed members without gaps, as ``write`` makes it. Any other directory (compression,
encryption, gaps, overlaps) is refused before a member is read, so reading needs no more memory than the file's size.
Nothing is extracted: members are read by the known names only, and a file with a name such as ``../x`` is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypedDict

from dgcf.errors import ArtifactError, DataError
from dgcf.files import atomic_file, atomic_folder
from dgcf.recommend import signing
from dgcf.stored import FileEntry, InvalidFileError, check_type, decode_json, file_entry, open_member, seal, verify_seal

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
KIND = "dgcf recommender"
FORMAT = 4
"""The newest format: 2 may hold item weights in place of embeddings, 3 both, 4 also a
prior. Embeddings alone are written as 1."""
SUFFIX = ".dgcf"
DESCRIPTION_BYTES = _PART_BYTES = 2**20
_DIRECTORY_BYTES = 2**17  # more than the longest ZIP comment, which zipfile searches
_LOCAL_HEADER = struct.Struct("<4s22x2H")  # signature, lengths of name and extra field
_END = struct.Struct("<4s4H2IH")  # the end record of the directory
# The errors that reading a damaged file may raise; an InvalidFileError is a ValueError.
DAMAGE = (ValueError, EOFError, OverflowError, NotImplementedError, struct.error, zipfile.BadZipFile)


class _Manifest(TypedDict):
    kind: str
    format: int
    files: dict[str, FileEntry]


def write(
    path: Path,
    members: Mapping[str, bytes],
    *,
    overwrite: bool = False,
    known: frozenset[str] = frozenset(),
    version: int = FORMAT,
    sign: Path | None = None,
) -> Path:
    """Write a ``.dgcf`` file if the name has this suffix, else a folder; atomically.

    ``version``: the oldest format that has these members. ``known``: members that an overwritten folder may have.
    ``sign``: the file of a private key.
    """
    files = {name: file_entry(data) for name, data in members.items()}
    manifest = json.dumps(seal({"kind": KIND, "format": version, "files": files}), indent=1).encode() + b"\n"
    signature = {} if sign is None else {SIGNATURE: signing.sign(manifest, sign)}
    files_to_write = {MANIFEST: manifest, **signature, **members}
    if path.suffix.lower() == SUFFIX:
        if path.exists() and not overwrite:
            raise DataError(
                f"{path} exists already; choose another name, or overwrite it (--overwrite, overwrite=True)."
            )
        with atomic_file(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
            for name, data in files_to_write.items():
                # A fixed time, so that the same recommender gives the same bytes.
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
        return path
    with atomic_folder(path, overwrite=overwrite, also={SIGNATURE, *known}) as beside:
        for name, data in files_to_write.items():
            (beside / name).write_bytes(data)
    return path


class Container:
    """An artefact, open for reading; ``known`` are the only names a member may have."""

    def __init__(self, path: Path, known: frozenset[str]) -> None:
        self.path = path
        with explain_damage(path):
            self._places = None if path.is_dir() else self._directory()
            manifest = self._read(MANIFEST, DESCRIPTION_BYTES)
            self._files = self._check_manifest(decode_json(manifest, dict[str, Any], MANIFEST))
            self._refuse_unknown(known)
            signed = SIGNATURE in self._names()
            signing.verify(path, manifest, self._read(SIGNATURE, signing.SIGNATURE_BYTES) if signed else None)
            for name, entry in self._files.items():
                with self._open(name) as (_, size):
                    if size != entry["bytes"]:
                        raise InvalidFileError(f"{name} has {size:,} bytes, its manifest says {entry['bytes']:,}")

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return a member of at most ``limit`` bytes, checked against its SHA-256."""
        with explain_damage(self.path):
            if name not in self._files:
                raise InvalidFileError(f"{name} is missing")
            data = self._read(name, self._files[name]["bytes"] if limit is None else limit)
            if file_entry(data) != self._files[name]:
                raise InvalidFileError(f"{name} does not match its checksum")
        return data

    def check(self, name: str) -> None:
        """Verify the checksum of a member without keeping it in memory."""
        with explain_damage(self.path), self._open(name) as (file, size):
            if _digest(file, size) != self._files[name]["sha256"]:
                raise InvalidFileError(f"{name} does not match its checksum")

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Yield a file at the member's first byte, and the member's size."""
        if self._places is None:
            with open_member(self.path / name) as file:
                yield file, os.fstat(file.fileno()).st_size
        elif name not in self._places:
            raise InvalidFileError(f"{name} is missing")
        else:
            start, size = self._places[name]
            with open_member(self.path.resolve()) as file:
                file.seek(start)
                yield file, size

    def _read(self, name: str, limit: int) -> bytes:
        with self._open(name) as (file, size):
            if size > limit:
                raise InvalidFileError(f"{name} is larger than {limit:,} bytes")
            return file.read(size)

    def _check_manifest(self, manifest: dict[str, Any]) -> dict[str, FileEntry]:
        head = check_type(manifest, _Manifest, MANIFEST)
        if head["kind"] != KIND:
            raise ArtifactError(
                f"{self.path} holds a {head['kind'][:60]!r}, expected a {KIND!r}; "
                "save one with Recommender.save or `dgcf export`."
            )
        if head["format"] > FORMAT:
            raise ArtifactError(
                f"{self.path} was written by a newer dgcf (format {head['format']}, this one reads {FORMAT}); "
                "upgrade dgcf."
            )
        if not verify_seal(manifest, MANIFEST) or head["format"] < 1:
            raise InvalidFileError(f"{MANIFEST} has an unknown format")
        return head["files"]

    def _refuse_unknown(self, known: frozenset[str]) -> None:
        listed, present = set(self._files), self._names() - {MANIFEST, SIGNATURE}
        if unknown := sorted((listed | present) - known):
            raise ArtifactError(
                f"{self.path} holds an unknown member {unknown[0][:60]!r}; do not trust it, and get it again from its "
                "source."
            )
        if unlisted := sorted(present - listed):
            raise InvalidFileError(f"{MANIFEST} does not name {unlisted[0]}")

    def _names(self) -> set[str]:
        """Return the members of a ZIP, or the signature of a folder; other files of a folder are never opened."""
        if self._places is not None:
            return set(self._places)
        return {SIGNATURE} if os.path.lexists(self.path / SIGNATURE) else set()

    def _directory(self) -> dict[str, tuple[int, int]]:
        """Return the first byte and the size of each member of a ZIP."""
        places: dict[str, tuple[int, int]] = {}
        with open_member(self.path.resolve()) as file, zipfile.ZipFile(_Directory(file, self.path)) as archive:
            end = 0
            for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits or info.file_size != info.compress_size:
                    raise InvalidFileError(f"member {info.filename[:60]!r} is compressed or encrypted")
                if info.filename in places:
                    raise InvalidFileError(f"it holds the member {info.filename[:60]!r} twice")
                file.seek(end)
                signature, *lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                if info.header_offset != end or signature != b"PK\3\4":
                    raise InvalidFileError(f"member {info.filename[:60]!r} does not begin where the one before ends")
                start = end + _LOCAL_HEADER.size + sum(lengths)
                end = start + info.file_size
                places[info.filename] = (start, info.file_size)
            file.seek(-_END.size, os.SEEK_END)
            signature, *_, size, begin, comment = _END.unpack(file.read(_END.size))
            # Beyond 4 GiB both may be all ones: the numbers are in a record of 76 bytes before this one.
            whole = begin == 0xFFFFFFFF or file.tell() - _END.size - begin - size in (0, 76)
            if signature != b"PK\5\6" or not whole or comment or end != archive.start_dir:
                raise InvalidFileError("its members do not fill the file")
        return places


class _Directory:
    """A file whose directory ``zipfile`` reads; each read is limited to the largest directory of an artefact."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        if not (b"PK".startswith(file.read(2)) or zipfile.is_zipfile(file)):  # an artefact cut short begins with PK
            raise ArtifactError(f"{path} is not a recommender; give a run folder of `dgcf train` or a .dgcf file.")
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        return self._file.read(_DIRECTORY_BYTES if size < 0 else min(size, _DIRECTORY_BYTES))


def is_signed(path: Path) -> bool:
    """Return whether an artefact has a signature, which is not verified."""
    if path.is_dir():
        return os.path.lexists(path / SIGNATURE)
    with explain_damage(path), zipfile.ZipFile(path) as archive:
        return SIGNATURE in archive.namelist()


def hash_of(path: Path) -> str | None:
    """Return the SHA-256 of a regular file, or None if it cannot be read."""
    try:
        with open_member(path) as file:
            return _digest(file, os.fstat(file.fileno()).st_size)
    except (OSError, InvalidFileError):
        return None


def _digest(file: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size and (part := file.read(min(size, _PART_BYTES))):
        digest.update(part)
        size -= len(part)
    return digest.hexdigest()


@contextlib.contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn the errors of reading a damaged artefact into an ``ArtifactError`` of one sentence."""
    try:
        yield
    except FileNotFoundError as problem:
        missing = Path(str(problem.filename or path)).name
        raise ArtifactError(
            f"{path} is not a recommender: there is no {missing}; give what Recommender.save or `dgcf export` wrote, "
            "or a run folder of `dgcf train`."
        ) from problem
    except OSError as problem:
        raise ArtifactError(
            f"cannot read {path}: {problem.strerror or problem}; check the file and the disk."
        ) from problem
    except DAMAGE as problem:
        reason = str(problem).replace("\n", " ")[:160] or type(problem).__name__
        raise ArtifactError(
            f"{path} is damaged or not a recommender ({reason}); save it again, or restore it from a copy."
        ) from problem

"""Copies of models that several servers share: a folder, or a bucket of an S3-compatible store (extra ``s3``)."""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from dgcf.errors import ConfigError, DgcfError
from dgcf.files import atomic_file
from dgcf.serve.errors import ModelRefusedError, RequestError

T = TypeVar("T")
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 30, 3
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "use_listings_cache": False,
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"max_attempts": ATTEMPTS},
        },
    }
}


class SharedModelsError(RequestError):
    """The models that servers share cannot be read or written now."""

    kind, status, title = "shared-models", 503, "The shared models cannot be used"
    retry_after = 5


class SharedModels(ABC):
    """Files by name; a name has the checksum of its content, so a file never changes."""

    def __init__(self, where: str) -> None:
        self.where = where

    def put(self, path: Path) -> None:
        """Store a file by its name, unless it is there."""
        self._explained("written to", lambda: self._put(path))

    def get(self, target: Path) -> None:
        """Fetch the file of a name to a path; raise ``ModelRefusedError`` if its content has another checksum."""
        with atomic_file(target) as part:
            self._explained("read from", lambda: self._get(target.name, part))
            with part.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != target.stem:
                    raise ModelRefusedError(
                        f"{target.name} in {self.where} is damaged: its checksum is not its name; delete it there, and "
                        "publish the model again by a reload."
                    )

    def names(self) -> set[str]:
        """Return the names of all files."""
        return self._explained("read from", self._names)

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files of these names that are there."""
        unneeded = set(names)
        if unneeded:
            self._explained("deleted from", lambda: [self._remove(name) for name in unneeded & self._names()])

    def _explained(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except DgcfError:
            raise
        except FileNotFoundError:
            raise SharedModelsError(f"the model is not in {self.where}; check that all servers share it.") from None
        except Exception as problem:  # of the library of the store, which differ
            reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200].rstrip(".")
            raise SharedModelsError(f"models cannot be {what} {self.where} ({reason}); it is tried again.") from problem

    @abstractmethod
    def _put(self, path: Path) -> None: ...

    @abstractmethod
    def _get(self, name: str, part: Path) -> None: ...

    @abstractmethod
    def _names(self) -> set[str]: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...


class FolderModels(SharedModels):
    """Models in a folder that all servers have mounted."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._folder = Path(where)

    def _put(self, path: Path) -> None:
        target = self._folder / path.name
        if not target.exists():
            with atomic_file(target) as part:
                shutil.copyfile(path, part)

    def _get(self, name: str, part: Path) -> None:
        shutil.copyfile(self._folder / name, part)

    def _names(self) -> set[str]:
        return {path.name for path in self._folder.iterdir()} if self._folder.is_dir() else set()

    def _remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class BucketModels(SharedModels):
    """Models in a store that ``fsspec`` knows, such as S3; a file appears there whole."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        protocol = where.partition("://")[0]
        try:
            core = import_module("fsspec.core")
            self._store, root = core.url_to_fs(where, **_OPTIONS.get(protocol, {}))
        except (ImportError, ValueError) as problem:
            extra = "; install it with: pip install 'dgcf[s3]'" if protocol == "s3" else ""
            reason = str(problem).splitlines()[0].rstrip(".")
            raise ConfigError(
                f"models in {protocol}:// need a package that is not installed ({reason}){extra}."
            ) from None
        self._root = root.rstrip("/")

    def _put(self, path: Path) -> None:
        if not self._store.exists(self._at(path.name)):
            self._store.put_file(str(path), self._at(path.name))

    def _get(self, name: str, part: Path) -> None:
        self._store.get_file(self._at(name), str(part))

    def _names(self) -> set[str]:
        try:
            return {str(name).rpartition("/")[2] for name in self._store.ls(self._root, detail=False)}
        except FileNotFoundError:
            return set()

    def _remove(self, name: str) -> None:
        self._store.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


def shared_models(where: str) -> SharedModels:
    """Return the models of a folder or of an address such as ``s3://BUCKET/PREFIX``."""
    if "://" not in where:
        return FolderModels(where)
    if "@" in where:
        raise ConfigError(
            "the address of the models has an @, expected no credentials in it, such as s3://BUCKET/PREFIX; set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile."
        )
    return BucketModels(where)

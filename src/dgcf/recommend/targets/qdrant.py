"""Export to two collections of Qdrant, at a server or in a folder, under the aliases ``NAME_items`` and ``NAME_users``.

New collections are filled under names of their own; one request then moves both aliases, and the old ones are deleted.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from dgcf.errors import ConfigError, DataError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Side
from dgcf.recommend.targets.base import Search, Vectors, checked_index, checked_name
from dgcf.recommend.targets.secrets import without

URL, KEY = "DGCF_QDRANT_URL", "DGCF_QDRANT_API_KEY"
_BATCH = 500
_BUILD_SECONDS = 3600.0
_ABANDONED_SECONDS = 86_400
"""Collections of exports that were killed are deleted when they are this old."""


class Qdrant:
    """Collections at a server, or in a folder (``folder``). ``index``: hnsw, or flat for an exact search."""

    def __init__(self, name: str, settings: Mapping[str, str], index: str = "hnsw", folder: Path | None = None) -> None:
        self.name, self.folder = checked_name(name), folder
        self.index = checked_index(index, ("flat", "hnsw"), "Qdrant")
        self._url, self._key = settings.get(URL), settings.get(KEY)
        if folder is None and not self._url:
            raise ConfigError(
                f"{URL} is not set; set it to the server, such as http://127.0.0.1:6333, in the environment or in a "
                "file (--env-file), or name a folder with --out."
            )
        _qdrant()
        self._models = import_module("qdrant_client.models")

    def describe(self) -> dict[str, Any]:
        where = {"out": str(self.folder)} if self.folder is not None else {"url": without(self._url or "", [self._key])}
        return {**where, "collections": [self._alias(side) for side in get_args(Side)], "index": self.index}

    @contextlib.contextmanager
    def staged(self, vectors: Vectors, *, overwrite: bool) -> Iterator[Search]:
        with self._explained(), contextlib.closing(self._client()) as client:
            old = self._old(client, overwrite)
            stamp = f"--{int(time.time())}-{secrets.token_hex(3)}"
            new = {side: f"{self._alias(side)}{stamp}" for side in get_args(Side)}
            try:
                for side, collection in new.items():
                    self._fill(client, collection, side, vectors)
                yield lambda users, k: self._search(client, new, users, k)
                self._swap(client, new, old)
            except BaseException:
                with contextlib.suppress(Exception):
                    for collection in new.values():
                        client.delete_collection(collection)
                raise
            self._sweep(client, {*old.values()})

    def _alias(self, side: Side) -> str:
        return f"{self.name}_{side}s"

    def _client(self) -> Any:
        client = _qdrant().QdrantClient
        if self.folder is not None:
            return client(path=str(self.folder))
        return client(url=self._url, api_key=self._key, timeout=60, check_compatibility=False)

    def _old(self, client: Any, overwrite: bool) -> dict[str, str]:
        """Return the collections of the aliases that exist; raise if they must not be replaced."""
        names = {self._alias(side) for side in get_args(Side)}
        for collection in client.get_collections().collections:
            if collection.name in names:
                raise DataError(f"the collection {collection.name} was not written by dgcf; choose another --name.")
        every = {alias.alias_name: alias.collection_name for alias in client.get_aliases().aliases}
        old = {name: every[name] for name in names if name in every}
        for alias, collection in old.items():
            if not collection.startswith(f"{alias}--"):
                raise DataError(f"the alias {alias} is not of dgcf, it names {collection}; choose another --name.")
            if not overwrite:
                raise DataError(f"{alias} exists already; choose another --name, or overwrite it (--overwrite).")
        return old

    def _fill(self, client: Any, collection: str, side: Side, vectors: Vectors) -> None:
        models, rows = self._models, vectors.rows[side]
        exact = models.HnswConfigDiff(m=0) if self.index == "flat" or side == "user" else None
        how = models.VectorParams(size=vectors.dim, distance=models.Distance.DOT, hnsw_config=exact)
        client.create_collection(collection, vectors_config=how)
        for start in range(0, len(rows), _BATCH):
            places = range(start, min(start + _BATCH, len(rows)))
            payloads = [vectors.payload(side, place) for place in places]
            batch = models.Batch(ids=list(places), vectors=rows[start : places.stop].tolist(), payloads=payloads)
            client.upsert(collection, points=batch, wait=True)
        end = time.monotonic() + _BUILD_SECONDS
        while client.get_collection(collection).status == models.CollectionStatus.YELLOW:  # the index is being built
            if time.monotonic() > end:
                raise DataError(f"Qdrant did not finish the index of {collection} in an hour; look at the server.")
            time.sleep(0.5)

    def _search(self, client: Any, names: Mapping[Side, str], users: Sequence[int], k: int) -> list[list[RawId]]:
        from_users = self._models.LookupLocation(collection=names["user"])
        answers = (
            client.query_points(names["item"], query=user, lookup_from=from_users, limit=k, with_payload=["id"])
            for user in users
        )
        return [[point.payload["id"] for point in answer.points] for answer in answers]

    def _swap(self, client: Any, new: Mapping[Side, str], old: Mapping[str, str]) -> None:
        """Let both aliases name the new collections, in one request."""
        models = self._models
        deleted = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)) for alias in old]
        created = [
            models.CreateAliasOperation(
                create_alias=models.CreateAlias(collection_name=collection, alias_name=self._alias(side))
            )
            for side, collection in new.items()
        ]
        client.update_collection_aliases(change_aliases_operations=[*deleted, *created])

    def _sweep(self, client: Any, old: set[str]) -> None:
        """Delete the replaced collections, and those of exports of this name that were killed a day ago."""
        named = {alias.collection_name for alias in client.get_aliases().aliases}
        prefixes = tuple(f"{self._alias(side)}--" for side in get_args(Side))
        for name in [collection.name for collection in client.get_collections().collections]:
            begun = name.rpartition("--")[2].partition("-")[0]
            abandoned = begun.isdigit() and time.time() - int(begun) > _ABANDONED_SECONDS
            if name not in named and name.startswith(prefixes) and (name in old or abandoned):
                client.delete_collection(name)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise ``DataError``, without the key, for what the client or the server reports."""
        errors = import_module("qdrant_client.http.exceptions")
        try:
            yield
        except (errors.ApiException, RuntimeError, ValueError, OSError) as problem:
            raise DataError(
                f"Qdrant refused the export: {without(str(problem), [self._key])}; correct that and export again."
            ) from None


def _qdrant() -> Any:
    try:
        return import_module("qdrant_client")
    except ImportError:
        raise ConfigError("Qdrant needs its client; install it with: pip install 'dgcf[qdrant]'.") from None

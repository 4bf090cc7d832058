"""``study.json``: the description of a study, written once with its checksum and compared when the study is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from dgcf.files import atomic_file
from dgcf.stored import InvalidFileError, check_type, decode_json, read_member, seal, verify_seal
from dgcf.train import resolve
from dgcf.train.presets import PRESETS
from dgcf.train.run.folder import OTHER_ORDER, OTHER_WEIGHTS

ABOUT = "study.json"
FORMAT = 2


class AboutDataset(TypedDict):
    """The dataset of a study."""

    name: str
    source: str
    fingerprint: str
    order: NotRequired[str | None]
    weights: NotRequired[str | None]


class About(TypedDict):
    """``study.json``."""

    format: int
    model: str
    preset: str
    metric: str
    seed: int
    warm_up: int
    dataset: AboutDataset
    space: dict[str, str]
    settings: dict[str, Any]


def write_about(path: Path, about: Mapping[str, Any]) -> str:
    """Write the description and return its checksum."""
    sealed = seal(about)
    with atomic_file(path) as beside:
        beside.write_text(json.dumps(sealed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return str(sealed["sha256"])


def read_about(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the description and its checksum; version 0.1 wrote none."""
    fields = decode_json(read_member(path), dict[str, Any], path.name)
    about = dict(check_type(fields, About, path.name))
    if verify_seal(fields, path.name):
        return about, str(fields["sha256"])
    if about["format"] != 1:
        raise InvalidFileError(f"{path.name} has no checksum")
    return about, None


class Recorded(NamedTuple):
    """What a study in a folder was begun with."""

    model: str | None = None
    preset: str | None = None
    spaces: Mapping[str, str] | None = None


def recorded_study(folder: Path) -> Recorded:
    """Return what the study in a folder was begun with; nothing if it cannot be read, which is refused on opening."""
    try:
        about = read_about(folder / ABOUT)[0]
    except (OSError, InvalidFileError):
        return Recorded()
    return Recorded(about["model"], about["preset"] if about["preset"] in PRESETS else None, about["space"])


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two descriptions; the source of the same data is not one."""
    if before["dataset"]["fingerprint"] != now["dataset"]["fingerprint"]:
        old, new = (f"{about['dataset']['name']} ({about['dataset']['fingerprint'][:12]})" for about in (before, now))
        yield f"dataset {old} is now {new}"
    elif before["dataset"].get("order") != now["dataset"].get("order"):
        yield OTHER_ORDER
    elif before["dataset"].get("weights") != now["dataset"].get("weights"):
        yield OTHER_WEIGHTS
    fields, fields_now = _flat(before), _flat(now)
    for key in dict.fromkeys([*fields, *fields_now]):
        if fields.get(key) != fields_now.get(key):
            yield f"{key} {fields.get(key, 'not given')} is now {fields_now.get(key, 'not given')}"


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in about.items() if key not in ("dataset", "space", "settings")}
    # A setting that a later version added had its default in the study.
    defaults = resolve(about["model"], preset="plain").settings()
    space = {f"space of {key}": value for key, value in about["space"].items()}
    return {**plain, **space, **defaults, **about["settings"]}

"""Update checksums after a test has changed stored files, as an attacker would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dgcf.stored import chain_line, file_entry, seal


def reseal_dataset(folder: Path, **changes: Any) -> None:
    """Update the checksums in ``dataset.json``; ``changes`` replace fields, ``...`` removes one."""
    about = json.loads((folder / "dataset.json").read_text())
    about["files"] = {
        path.name: file_entry(path.read_bytes())
        for path in sorted(folder.iterdir())
        if path.name != "dataset.json" and path.is_file()
    }
    reseal(folder / "dataset.json", about, changes)


def reseal(path: Path, about: dict[str, Any] | None = None, changes: dict[str, Any] | None = None) -> None:
    """Write a description with changed fields and a valid checksum."""
    about = {**(json.loads(path.read_text()) if about is None else about), **(changes or {})}
    about = {key: value for key, value in about.items() if key != "sha256" and value is not ...}
    path.write_text(json.dumps(seal(about)))


def rechain(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as lines with valid checks."""
    text, check = "", ""
    for record in records:
        line, check = chain_line({key: value for key, value in record.items() if key != "check"}, check)
        text += line
    path.write_text(text)

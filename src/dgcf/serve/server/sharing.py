"""What several servers share: the database of the events, and the store of the models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.serve.engine.shared_models import shared_models
from dgcf.serve.events.address import VARIABLE, parse

FILE_VARIABLE = f"{VARIABLE}_FILE"
"""The variable that names a file with the URL."""


def events_url(option: str | None, environment: Mapping[str, str], warn: Callable[[str], None]) -> str | None:
    """Return the URL of the events: that of ``--events``, else of the environment or its file; None without one."""
    url = option or environment.get(VARIABLE) or _of_file(environment.get(FILE_VARIABLE))
    if url is None:
        return None
    address = parse(url)
    if option is not None and address.has_password:
        raise ConfigError(
            f"the URL of --events has a password, which other users can see; set {VARIABLE} to the URL, or put the "
            "password into a file (PGPASSFILE)."
        )
    if not address.is_private:
        warn(f"what is sent to {address.label} may not be encrypted; add sslmode=verify-full to the URL of the events.")
    return url


def _of_file(name: str | None) -> str | None:
    if not name:
        return None
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"the file {name} of {FILE_VARIABLE} cannot be read; check it and its rights.") from None


def models_address(option: str | None) -> str | None:
    """Return the address of the shared models, a folder by its whole path; raise ConfigError if it cannot be used."""
    if option is None:
        return None
    if "://" not in option:
        return os.path.abspath(Path(option).expanduser())  # noqa: PTH100 (a link keeps its own name)
    shared_models(option)
    return option

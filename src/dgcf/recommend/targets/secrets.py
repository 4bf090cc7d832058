"""Connection strings and keys: read from the environment or a file, and never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dgcf.errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_FILE_BYTES = 2**16


def settings(env_file: Path | None) -> Mapping[str, str]:
    """Return the variables of a file of NAME=VALUE lines, or those of the environment if no file is given."""
    if env_file is None:
        return os.environ
    try:
        if env_file.stat().st_size > _FILE_BYTES:
            raise ConfigError(f"{env_file} is larger than {_FILE_BYTES:,} bytes; give a file of NAME=VALUE lines.")
        lines = env_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{env_file} cannot be read; give a text file of NAME=VALUE lines.") from None
    values: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:  # the line itself may be a secret
            raise ConfigError(f"line {number} of {env_file} is not NAME=VALUE; correct it.")
        value = match[2]
        values[match[1]] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return values


def without(text: str, secrets: Iterable[str | None]) -> str:
    """Return the first line of a text, shortened, with secrets replaced."""
    line = " ".join(text.split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    return line[:200].rstrip(".")

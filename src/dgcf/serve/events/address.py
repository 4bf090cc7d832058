"""The address of a PostgreSQL database with events: a URL of libpq, with the name of a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from urllib.parse import unquote

from dgcf.errors import ConfigError

VARIABLE = "DGCF_EVENTS_URL"
SCHEMES = ("postgresql://", "postgres://")
SCHEMA = "dgcf"
_NAME = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,62}")
_FORM = "postgresql://USER@HOST:PORT/DATABASE"
_ENCRYPTED = ("require", "verify-ca", "verify-full")


def is_address(text: object) -> bool:
    """Return whether a text is a URL of PostgreSQL."""
    return isinstance(text, str) and text.startswith(SCHEMES)


@dataclass(frozen=True)
class Address:
    """``parameters``: those of libpq, a password among them; ``schema``: where the tables are.

    ``label`` names the database without the password.
    """

    parameters: Mapping[str, str] = field(repr=False)
    schema: str
    label: str

    @property
    def has_password(self) -> bool:
        return bool(self.parameters.get("password"))

    @property
    def is_private(self) -> bool:
        """Whether nobody can read what is sent: encrypted, or within this machine."""
        hosts = (self.parameters.get("hostaddr") or self.parameters.get("host") or "/").split(",")
        return self.parameters.get("sslmode") in _ENCRYPTED or all(map(_is_local, hosts))


def _is_local(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse(url: str) -> Address:
    """Return the address of a URL; raise ``ConfigError``, which never shows the URL, because it may hold a password."""
    try:
        conninfo = import_module("psycopg.conninfo")
        problem = import_module("psycopg").Error
    except ImportError:
        raise ConfigError(
            "events in PostgreSQL need the package psycopg; install it with: pip install 'dgcf[postgres]'."
        ) from None
    if not is_address(url):
        raise ConfigError(f"the address of the events is not a URL of PostgreSQL, expected {_FORM}; correct it.")
    where, schema = _without_schema(url)
    if not _NAME.fullmatch(schema):
        raise ConfigError(
            "the schema of the events is not a name of lower-case letters, digits and _ that begins with a letter; "
            "correct schema= in the URL."
        )
    try:
        parameters = {name: str(value) for name, value in conninfo.conninfo_to_dict(where).items()}
    except problem:  # its message shows a part of the URL
        raise ConfigError(
            f"the URL of the events cannot be read, expected {_FORM} with parameters of libpq; characters such as @ "
            "and / in names or passwords are percent-encoded."
        ) from None
    if not re.fullmatch("[0-9,]*", parameters.get("port", "")):
        raise ConfigError(f"the URL of the events has a port that is not a number, expected {_FORM}; correct it.")
    host, port = parameters.get("host") or "the local socket", parameters.get("port") or "5432"
    return Address(parameters, schema, f"{parameters.get('dbname', 'the default database')} at {host} port {port}")


def _without_schema(url: str) -> tuple[str, str]:
    """Return the URL without the parameter ``schema``, and its value."""
    where, mark, query = url.partition("?")
    kept, schema = [], SCHEMA
    for part in query.split("&") if mark else []:
        name, _, value = part.partition("=")
        if name == "schema":
            schema = unquote(value)
        elif part:
            kept.append(part)
    return where + ("?" + "&".join(kept) if kept else ""), schema

"""Bearer tokens: read from a file or the environment, and compared in constant time.

Reading needs a token if a read token is set, writing if any token is set, and the admin routes always do.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.files import ADVICE
from dgcf.serve.server.refusal import Refusal
from dgcf.serve.settings import SCOPES, Scope

FILE_VARIABLE = "DGCF_TOKENS_FILE"
VARIABLES: dict[Scope, str] = {scope: f"DGCF_{scope.upper()}_TOKEN" for scope in SCOPES}
MIN_LENGTH, MAX_LENGTH, MAX_FILE = 16, 512, 65_536
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
CHALLENGE = [(b"www-authenticate", b'Bearer realm="dgcf"')]

Tokens = dict[Scope, tuple[str, ...]]


def read_tokens(file: Path | None, environment: Mapping[str, str], warn: Callable[[str], None]) -> Tokens:
    """Return the tokens of a file (``file``, or the one that the environment names) and of the environment."""
    named = environment.get(FILE_VARIABLE)
    file = file or (Path(named) if named else None)
    pairs = [] if file is None else _of_file(file, warn)
    for scope, variable in VARIABLES.items():
        if variable in environment:
            pairs.append((variable, scope, environment[variable]))
    tokens: dict[Scope, list[str]] = {}
    seen: dict[str, str] = {}
    for place, scope, token in pairs:
        _check(place, token)
        if token in seen:
            raise ConfigError(f"{place} has the same token as {seen[token]}; give each line and scope its own.")
        seen[token] = place
        tokens.setdefault(scope, []).append(token)
    return {scope: tuple(given) for scope, given in tokens.items()}


def _of_file(path: Path, warn: Callable[[str], None]) -> list[tuple[str, Scope, str]]:
    """Return place, scope and token of each line of a file."""
    pairs: list[tuple[str, Scope, str]] = []
    for number, line in enumerate(_text_of(path, warn).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"line {number} of {path}"
        scope = next((scope for scope in SCOPES if scope == words[0]), None)
        if len(words) != 2 or scope is None:  # the line is not shown: it may hold a token
            raise ConfigError(f"{place} is not a scope and a token; write it as `read TOKEN` (or write, or admin).")
        pairs.append((place, scope, words[1]))
    if not pairs:
        raise ConfigError(f"{path} has no token; write a line such as `admin TOKEN`, or leave out --tokens.")
    return pairs


def _text_of(path: Path, warn: Callable[[str], None]) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise ConfigError(f"{path} is not a regular file; give --tokens a text file.")
            content = file.read(MAX_FILE + 1)
    except OSError as problem:
        advice = ADVICE.get(problem.errno or 0, "check the file")
        raise ConfigError(f"the tokens file {path} cannot be read: {problem.strerror}; {advice}.") from problem
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path} has more than {MAX_FILE} bytes; give --tokens a file with a line for each token.")
    if about.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        warn(f"the tokens file {path} can be read by other users; run `chmod 600 {path}`.")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} has characters beyond ASCII; a token has letters, digits and -._~+/=.") from None


def _check(place: str, token: str) -> None:
    if not MIN_LENGTH <= len(token) <= MAX_LENGTH:
        raise ConfigError(
            f"{place} has a token of {len(token)} characters, expected {MIN_LENGTH} to {MAX_LENGTH}; "
            "make one with `openssl rand -hex 32`."
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"{place} has a token with characters beyond letters, digits and -._~+/=; choose another.")


class Access:
    """Which scope a request may use, by its token."""

    def __init__(self, tokens: Mapping[Scope, tuple[str, ...]]) -> None:
        self._known = [
            (rank, sha256(token.encode()).digest())
            for rank, scope in enumerate(SCOPES, 1)
            for token in tokens.get(scope, ())
        ]
        ranks = {rank for rank, _ in self._known}
        self._ranks = {scope: rank for rank, scope in enumerate(SCOPES, 1)}
        self._needed = {"read": 1 in ranks, "write": bool(ranks), "admin": True}
        self._possible = {scope: any(held >= rank for held in ranks) for scope, rank in self._ranks.items()}

    def is_open(self, scope: Scope | None) -> bool:
        """Return whether a route of this scope needs no token."""
        return scope is None or not self._needed[scope]

    def identify(self, authorization: bytes | None) -> tuple[int, bytes]:
        """Return the rank of the scope of a token, 0 if it is unknown, and a digest that identifies the token."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return 0, b""
        digest = sha256(authorization[7:].strip()).digest()
        rank = 0
        for known, expected in self._known:  # all are compared, so that the time tells nothing
            if hmac.compare_digest(digest, expected):
                rank = known
        return rank, digest

    def require(self, scope: Scope | None, rank: int, *, given: bool) -> None:
        """Refuse a request whose token does not have the scope; ``given``: it had a header Authorization."""
        if scope is None or not self._needed[scope] or rank >= self._ranks[scope]:
            return
        if not self._possible[scope]:
            raise Refusal(403, f"this route is off, because no {scope} token is set; start the server with one.")
        if rank:
            challenge = f'Bearer error="insufficient_scope", scope="{scope}"'.encode()
            detail = f"the token does not have the scope {scope}; use one that has it."
            raise Refusal(403, detail, [(b"www-authenticate", challenge)])
        what = "the token is unknown" if given else f"this route needs a token of the scope {scope}"
        raise Refusal(401, f"{what}; send `Authorization: Bearer TOKEN`.", CHALLENGE)

"""Headers of requests and answers: security, CORS, and where a request comes from."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from dgcf.errors import ConfigError
from dgcf.serve.server.refusal import Headers, Refusal

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
SAFE = ("GET", "HEAD", "OPTIONS")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]*)?")
_EXPOSED = b"etag, retry-after, x-request-id"
_ACCEPTED = b"authorization, content-type, if-none-match, x-request-id"


def sane_request_id(given: bytes | None) -> str | None:
    """Return the request id of a client if it can be taken as it is: 1 to 64 letters, digits and ``._-``."""
    return given.decode("ascii") if given is not None and _REQUEST_ID.fullmatch(given) else None


def check_origin(text: str) -> str:
    """Return an origin such as ``https://shop.example`` in lower case; raise ConfigError if it is none."""
    if _ORIGIN.fullmatch(text) is None:
        raise ConfigError(f"--origin is {text!r}, expected the origin of a page, such as https://shop.example.")
    return text.rstrip("/").lower()


class Origins:
    """Cross-origin requests: closed, but for the origins that are allowed."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._allowed = frozenset(origin.encode() for origin in origins)
        self._always: Headers = [(b"vary", b"origin")] if origins else []

    def headers(self, origin: bytes | None) -> Headers:
        """Return the headers of CORS for an answer."""
        if origin is None or origin not in self._allowed:
            return self._always
        return [*self._always, (b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]

    def preflight(self, given: Mapping[bytes, bytes], methods: Sequence[str]) -> Headers | None:
        """Return the headers that allow a cross-origin request; None if ``given`` is not an allowed preflight."""
        origin = given.get(b"origin")
        if origin not in self._allowed or b"access-control-request-method" not in given:
            return None
        return [
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", _ACCEPTED),
            (b"access-control-max-age", b"600"),
        ]

    def check(self, method: str, given: Mapping[bytes, bytes]) -> None:
        """Refuse a request that changes something and was sent by the page of another origin."""
        origin = given.get(b"origin")
        if origin is None or method in SAFE or origin in self._allowed:
            return
        if origin.partition(b"://")[2].lower() != given.get(b"host", b"").lower():
            raise Refusal(403, "pages of other origins may not change anything; start the server with --origin ORIGIN.")


class Hosts:
    """Names by which a service on loopback may be called without a token.

    A page on the internet can let its own name resolve to 127.0.0.1 (DNS rebinding). Its requests are of the same
    origin for the browser, but have its name in the header Host.
    """

    def __init__(self, host: str, origins: Sequence[str]) -> None:
        self._checked = is_loopback(host)
        named = {host, *(urlsplit(origin).hostname or "" for origin in origins)}
        self._names = {"localhost", *(name.lower() for name in named)}
        self._known: set[bytes] = set()

    def check(self, given: bytes | None) -> None:
        """Refuse a request that names another host."""
        if not self._checked or given is None or given in self._known:
            return
        match = _HOST.fullmatch(given.decode("latin-1"))
        name = match[1].strip("[]").lower() if match else ""
        if name not in self._names and not is_loopback(name):
            raise Refusal(
                421,
                "the header Host does not name this service; call it as localhost, or set a read token.",
            )
        if len(self._known) < 64:
            self._known.add(given)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def client_identity(address: str) -> bytes:
    """Return what a rate limit knows a client by: its address, of IPv6 the network of 64 bits."""
    if ":" not in address:
        return address.encode()
    try:
        return ipaddress.IPv6Address(address.partition("%")[0]).packed[:8]
    except ValueError:
        return address.encode()

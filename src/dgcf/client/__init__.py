"""A typed client of the HTTP service, synchronous and asynchronous; needs httpx (``pip install 'dgcf[client]'``)."""

from __future__ import annotations

from dgcf.errors import ConfigError

try:
    import httpx as _httpx
except ImportError:
    raise ConfigError("the client needs the package httpx; install it with: pip install 'dgcf[client]'.") from None

from dgcf.client.clients import AsyncClient, Client
from dgcf.client.errors import (
    AccessError,
    AnswerError,
    NotFoundError,
    RefusedError,
    ServiceError,
    UnavailableError,
)
from dgcf.client.exchange import Retries

del _httpx

__all__ = [
    "AccessError",
    "AnswerError",
    "AsyncClient",
    "Client",
    "NotFoundError",
    "RefusedError",
    "Retries",
    "ServiceError",
    "UnavailableError",
]

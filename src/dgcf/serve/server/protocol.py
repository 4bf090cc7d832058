"""HTTP/1.1 on a connection, with the limits that uvicorn's protocol lacks: bytes and seconds of a request's head,
bytes of the URL, pipelined requests, idle seconds, and connections.

Deadlines are checked by a sweep over all connections twice a second, so that a request needs no timer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from dgcf.serve.server.board import Field, Slot
from dgcf.serve.server.refusal import Refusal
from dgcf.serve.settings import Limits

PIPELINED = 32
LINGER_SECONDS, LINGER_BYTES = 2.0, 16 * 2**20
"""How long, and for how many bytes, a client may go on sending after it was refused, so that it reads the answer."""
FLUSH_SECONDS = 10.0
GRACE_SECONDS = 0.5
"""How long an idle connection is kept when the service stops: a request may be on its way."""
_HOST = re.compile(rb"(\[[0-9A-Za-z:._~%-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")


class Connections(ServerState):
    """The connections of a worker, counted in ``slot``. ``refused`` logs a refusal and returns the answer to send."""

    def __init__(self, limits: Limits, refused: Callable[[Refusal], bytes], slot: Slot) -> None:
        super().__init__()
        self.limits, self.refused, self._slot = limits, refused, slot
        self.stopping = False

    def note(self) -> None:
        """Write the number of connections to the slot."""
        self._slot.set(Field.CONNECTIONS, len(self.connections))

    def sweep(self, now: float) -> None:
        """Close the connections whose time is up."""
        for connection in list(self.connections):
            cast(Protocol, connection).check(now)

    def stop(self) -> None:
        """Close connections once they are idle; a request that still comes is the last of its connection."""
        self.stopping = True
        for connection in list(self.connections):
            cast(Protocol, connection).stop()


class Protocol(HttpToolsProtocol):
    """A connection."""

    def __init__(
        self, config: Config, server_state: Connections, app_state: dict[str, Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.limits, self.state = server_state.limits, server_state
        self._refusal: Refusal | None = None
        self._head_since: float | None = None  # while a head is awaited or read
        self._idle_since: float | None = None  # after an answer
        self._close_until: float | None = None  # once it is to be closed
        self._head_bytes = self._discarded = 0
        self._running: RequestResponseCycle | None = None  # the oldest request that is not answered
        self._receiving = False  # between the first and the last byte of a request
        self._discarding = False

    # -- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, _Transport(cast(asyncio.Transport, transport), self)))
        self.state.note()
        self._head_since = self.loop.time()
        if len(self.connections) > self.limits.connections:
            self._receiving = True  # the request that is on its way is read, and dropped
            self._refuse(Refusal(503, "too many connections are open; repeat the request later.", retry_after=1))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that has sent whole requests and now only reads."""
        return self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self.state.note()

    def check(self, now: float) -> None:
        """Close the connection if its time is up."""
        if self._close_until is not None:
            if now > self._close_until:
                self.transport.abort()
        elif self._head_since is not None and now - self._head_since > self.limits.header_seconds:
            if self._head_bytes:
                detail = f"the head of the request took more than {self.limits.header_seconds:g} s; send it faster."
                self._refuse(Refusal(408, detail))
            else:
                self.transport.close()
        elif self._idle_since is not None and now - self._idle_since > self._patience:
            self.transport.close()

    @property
    def _patience(self) -> float:
        return GRACE_SECONDS if self.state.stopping else self.limits.idle_seconds

    def stop(self) -> None:
        """Answer what was received, and at most one more request."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # of the newest request
        else:
            self._idle_since = self.loop.time()

    def begin_closing(self) -> bool:
        """Prepare to close; return whether the client is still sending, and has to be let finish."""
        self._discarding = True
        self._close_until = self.loop.time() + (LINGER_SECONDS if self._receiving else FLUSH_SECONDS)
        return self._receiving

    # -- requests -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abort()
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # no other protocol is spoken here: this request is the last one
        except httptools.HttpParserError:
            sentence = "the request is not valid HTTP/1.1; check the client, and percent-encode the URL."
            self._refuse(self._refusal or Refusal(400, sentence))
            return
        if self._head_since is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes + self.limits.url_bytes:
                self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving, self._idle_since = True, None
        self._head_since, self._head_bytes, self._fields_bytes = self.loop.time(), 1, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.url_bytes:
            raise self._stop_parsing(
                Refusal(414, f"the URL has more than {self.limits.url_bytes:,} bytes; send long lists in the body.")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; one that follows a body in chunks is ignored."""
        if self._head_since is not None:
            super().on_header(name, value)
        self._fields_bytes += len(name) + len(value) + 4
        if self._fields_bytes > self.limits.header_bytes:
            raise self._stop_parsing(self._head_too_large())

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise self._stop_parsing(Refusal(400, "too many requests were sent without awaiting an answer."))
        self._check_head()
        super().on_headers_complete()
        self.scope["state"]["cycle"] = self.cycle
        self._head_since = None
        if not self.pipeline or self.pipeline[0][0] is not self.cycle:
            self._running = self.cycle
        if self.state.stopping:
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        """Refuse what RFC 9112 forbids and the parser accepts: other versions and codings, no host or several."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise self._stop_parsing(Refusal(400, "the request is not HTTP/1.1 or HTTP/1.0; send HTTP/1.1."))
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
                if hosts > 1 or _HOST.fullmatch(value) is None:
                    raise self._stop_parsing(Refusal(400, "the header Host is invalid or repeated; send one host."))
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise self._stop_parsing(Refusal(400, "the transfer coding is unknown; send `chunked`, or a length."))
        if hosts == 0 and version == "1.1":
            raise self._stop_parsing(Refusal(400, "the header Host is missing; send it."))

    def on_message_complete(self) -> None:
        self._receiving = False
        super().on_message_complete()

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request that has waited for the one before it."""
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or wait for one; uvicorn's would also set a timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._begin(*self.pipeline.pop())
        elif not self._receiving:
            self._idle_since = self.loop.time()

    def _head_too_large(self) -> Refusal:
        return Refusal(431, f"the headers have more than {self.limits.header_bytes:,} bytes; send shorter ones.")

    def _stop_parsing(self, refusal: Refusal) -> ValueError:
        """Return the exception that makes the parser give up, so that ``refusal`` is sent."""
        self._refusal = refusal
        return ValueError(refusal.detail)

    def _finish(self) -> bool:
        """Take no more from the client; return whether there are whole requests to answer, the newest as the last."""
        newest = self.cycle
        if newest is None or newest.response_complete:
            return False
        self._discarding = True
        if newest.more_body:
            if newest is self._running:
                return False
            self.pipeline.popleft()  # its body is cut, and the one before it is the last
            before = self.pipeline[0][0] if self.pipeline else self._running
            assert before is not None
            newest = self.cycle = before
        newest.keep_alive = False
        return True

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with a problem and close, after the answers that are under way."""
        if self._finish():
            return
        newest = self.cycle
        if newest is not None and not newest.response_complete:  # its body is cut
            newest.disconnected = True
            newest.message_event.set()
            if newest.response_started:
                self.transport.close()
                return
        self.transport.write(self.state.refused(refusal))
        self.transport.close()


class _Transport:
    """The transport of a connection, whose ``close`` lets a client that is still sending read the answer first.

    If a socket is closed while data comes, the client gets a reset and loses the answer.
    """

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self.write = transport.write
        self.abort = transport.abort
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_extra_info = transport.get_extra_info
        self._closing = False

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._protocol.begin_closing() and not self._transport.is_closing():
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

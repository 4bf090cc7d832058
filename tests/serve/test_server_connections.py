"""Connections: heads that are malformed, large or slow, idle and half-closed clients, and stopping, by raw sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from dgcf.serve.server import protocol
from dgcf.serve.settings import Limits
from tests.serve.listening import GET, LIMITS, Peer, Running, wait_until


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 1.0)
    monkeypatch.setattr(protocol, "FLUSH_SECONDS", 1.0)
    made: list[Running] = []

    def make(limits: Limits = LIMITS) -> Running:
        made.append(Running(limits))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Running]


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: local host\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n",
    b"GET /\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_request_is_a_problem(running: Make, data: bytes) -> None:
    server = running()
    with Peer(server) as peer:
        peer.send(data)
        peer.problem(400)
    assert server.answered == 0
    with Peer(server) as peer:
        peer.send(GET)
        assert peer.answer()[0] == 200


def test_query_with_plain_utf_8_is_refused_with_what_to_do(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send("GET /v1/items?q=café HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert "percent-encode" in peer.problem(400)["detail"]


def test_field_after_the_body_is_not_one_of_the_head(running: Make) -> None:
    with Peer(running()) as peer:
        head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        peer.send(head + b"0\r\nX-Request-Id: of-a-trailer\r\nOrigin: http://other.example\r\n\r\n" + GET)
        for _ in range(2):
            status, headers, _ = peer.answer()
            assert status == 200
            assert headers["x-request-id"] != "of-a-trailer"


def test_request_of_http_1_0_needs_no_host(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send(b"GET /v1/model HTTP/1.0\r\n\r\n")
        status, headers, _ = peer.answer()
        assert (status, headers["connection"]) == (200, "close")


def test_malformed_request_after_a_good_one_does_not_overtake_its_answer(running: Make) -> None:
    server = running()
    server.delay = 0.2
    with Peer(server) as peer:
        peer.send(GET + b"hello\r\n\r\n")
        status, headers, body = peer.answer()
        assert (status, headers["connection"], body) == (200, "close", b"xx")
        assert peer.at_end()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * 1_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"a" * 5_000, 414),
        (b"GET /v1/model HTTP/1.1\r\nX: " + b"a" * 2_000 + b"\r\n\r\n", 431),
        (b"GET /v1/model HTTP/1.1\r\n" + b"X: a\r\n" * 400, 431),
        (b"GET /v1/model HTTP/1.1\r\nX: " + b"a" * 4_000, 431),
        (b"GET /v1/model HTTP/1.1\r\n" + b"a" * 4_000, 431),
    ],
    ids=["url", "endless url", "header", "many headers", "endless header", "endless name"],
)
def test_large_head_is_refused(running: Make, head: bytes, status: int) -> None:
    with Peer(running()) as peer:
        peer.send(head)
        peer.problem(status)


def test_head_of_almost_the_largest_size_is_answered(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send(b"GET /v1/model?" + b"a" * 980 + b" HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_950 + b"\r\n\r\n")
        assert peer.answer()[0] == 200


def test_slow_head_is_refused(running: Make) -> None:
    with Peer(running()) as peer:
        started = time.monotonic()
        with pytest.raises(OSError, match=r"."):
            peer.drip(GET[:-2] * 100, 1, 0.05)
        assert time.monotonic() - started < 4
    with Peer(running()) as peer:
        peer.send(b"GET /v1/mo")
        assert "took more than" in peer.problem(408)["detail"]


def test_connection_that_says_nothing_is_closed(running: Make) -> None:
    with Peer(running()) as peer:
        started = time.monotonic()
        assert peer.at_end()
        assert time.monotonic() - started < 3


def test_idle_connection_is_closed_also_if_it_sends_empty_lines(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send(GET)
        assert peer.answer()[0] == 200
        started = time.monotonic()
        while time.monotonic() - started < 4:
            try:
                peer.send(b"\r\n")
            except OSError:
                break
            time.sleep(0.05)
        assert time.monotonic() - started < 3


def test_slow_body_is_refused_though_it_never_pauses(running: Make) -> None:
    server = running()
    with Peer(server) as peer:
        peer.send(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        done = threading.Event()

        def drip() -> None:
            while not done.is_set():
                try:
                    peer.send(b"x")
                except OSError:
                    return
                time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        status, _, _ = peer.answer()
        done.set()
        thread.join(10)
        assert status == 408
    assert server.answered == 0


@pytest.mark.parametrize("chunked", [False, True])
def test_refusal_of_a_large_body_can_be_read_though_the_client_goes_on_sending(running: Make, chunked: bool) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"
    size = 2_000_000
    with Peer(running()) as peer:
        if chunked:
            peer.send(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size)
        else:
            peer.send(head + b"Content-Length: %d\r\n\r\n" % size)
        peer.send(b"x" * size)
        assert "100,000 bytes" in peer.problem(413)["detail"]


def test_client_that_sends_forever_after_a_refusal_is_cut(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER_BYTES", 1_000_000)
    server = running()
    with Peer(server) as peer:
        peer.send(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        with pytest.raises(OSError, match=r"."):
            peer.drip(b"x" * 500_000_000, 100_000, 0.0)
    wait_until(lambda: server.open == 0)


def test_client_that_does_not_read_is_cut(running: Make) -> None:
    server = running()
    server.size = 50_000_000
    with Peer(server) as peer:
        peer.send(GET)
        wait_until(lambda: server.answered == 1)
        wait_until(lambda: server.open == 0)


def test_connections_beyond_the_limit_are_refused(running: Make) -> None:
    server = running()
    peers = [Peer(server) for _ in range(LIMITS.connections)]
    try:
        wait_until(lambda: server.open == LIMITS.connections)
        with Peer(server) as late:
            late.send(GET)
            assert "too many connections" in late.problem(503)["detail"]
    finally:
        for peer in peers:
            peer.__exit__()
    wait_until(lambda: server.open == 0)
    with Peer(server) as peer:
        peer.send(GET)
        assert peer.answer()[0] == 200


def test_pipelined_requests_are_answered_in_order_up_to_a_limit(running: Make) -> None:
    server = running()
    with Peer(server) as peer:
        peer.send(GET * 20)
        assert [peer.answer()[0] for _ in range(20)] == [200] * 20
    with Peer(server) as peer:
        peer.send(GET * 500)
        answers = peer.rest().split(b"HTTP/1.1 ")[1:]
        assert {answer[:3] for answer in answers} == {b"200"}
        assert protocol.PIPELINED <= len(answers) < 100
        assert b"connection: close" in answers[-1]


def test_pipelined_request_with_a_cut_body_follows_the_answers_before_it(running: Make) -> None:
    server = running()
    server.delay = 0.2
    cut = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    with Peer(server) as peer:
        peer.send(GET * 2 + cut)
        answers = peer.rest().split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200", b"200"]
    wait_until(lambda: server.answered == 2)


def test_half_closed_client_gets_its_answer(running: Make) -> None:
    server = running()
    server.delay = 0.2
    with Peer(server) as peer:
        peer.send(GET)
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.answer()[0] == 200
        assert peer.at_end()


@pytest.mark.parametrize(
    "cut", [b"POST /v1/ev", b"Content-Length: 9\r\n\r\nab", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_half_closed_client_gets_the_answers_before_a_cut_request(running: Make, cut: bytes) -> None:
    server = running()
    server.delay = 0.2
    if not cut.startswith(b"POST"):
        cut = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n" + cut
    with Peer(server) as peer:
        peer.send(GET * 2 + cut)
        peer.socket.shutdown(socket.SHUT_WR)
        first, last = peer.answer(), peer.answer()
        assert (first[0], last[0], last[1]["connection"]) == (200, 200, "close")
        assert peer.at_end()


def test_request_to_upgrade_is_answered_as_any_other(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send(GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n")
        status, headers, _ = peer.answer()
        assert (status, headers["connection"]) == (200, "close")


def test_expectation_of_a_large_body_is_refused_before_it_is_sent(running: Make) -> None:
    with Peer(running()) as peer:
        peer.send(
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 999999\r\n\r\n"
        )
        peer.problem(413)


def test_stop_finishes_the_answers_under_way_and_announces_the_end_to_others(running: Make) -> None:
    server = running()
    with Peer(server) as slow, Peer(server) as idle:
        idle.send(GET)
        assert "connection" not in idle.answer()[1]
        server.delay = 0.5
        slow.send(GET)
        wait_until(lambda: server.board.total(10) == 1)
        server.begin_stop()
        time.sleep(0.1)
        server.delay = 0.0
        idle.send(GET)  # was on its way when the service was stopped
        assert idle.answer()[1]["connection"] == "close"
        status, _, body = slow.answer()
        assert (status, body) == (200, b"xx")
        assert slow.at_end()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address, timeout=2)


def test_stop_closes_idle_connections_soon(running: Make) -> None:
    server = running(Limits())
    with Peer(server) as peer:
        peer.send(GET)
        peer.answer()
        server.begin_stop()
        started = time.monotonic()
        assert peer.at_end()
        assert time.monotonic() - started < 2

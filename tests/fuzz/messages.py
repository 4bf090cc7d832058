"""Malformed HTTP requests, each a function of a seed and an index: its bytes, and how a client sends them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tests.fuzz.heads import BYTES, JSON, POSTS, any_post, chunks, first_line, framing, get, good, header, post, target

End = Literal["read", "half-close", "close", "reset"]


@dataclass(frozen=True)
class Case:
    """``pieces`` are sent with ``pause`` seconds between them."""

    kind: str
    pieces: tuple[bytes, ...]
    pause: float = 0.0
    end: End = "read"

    @property
    def content(self) -> bytes:
        return b"".join(self.pieces)


def make_case(seed: int, index: int) -> Case:
    """Return the case of an index."""
    chance = random.Random(f"{seed}:{index}")
    kinds, weights = zip(*((kind, weight) for kind, (weight, _) in KINDS.items()), strict=True)
    kind = chance.choices(kinds, weights)[0]
    made = KINDS[kind][1](chance)
    if isinstance(made, Case):
        return made
    end: End = chance.choices(("read", "half-close", "close", "reset"), (88, 6, 3, 3))[0]
    return Case(kind, _pieces(chance, made), 0.0, end)


def _pieces(chance: random.Random, data: bytes) -> tuple[bytes, ...]:
    """Cut data now and then, as a network does."""
    if len(data) < 2 or chance.random() < 0.8:
        return (data,)
    places = sorted({0, *(chance.randrange(1, len(data)) for _ in range(chance.randrange(1, 4))), len(data)})
    return tuple(data[start:end] for start, end in pairwise(places))


# The kinds ----------------------------------------------------------------------------------------------------------


def flipped(chance: random.Random) -> bytes:
    """Change bytes of a valid request."""
    data = bytearray(good(chance))
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place = chance.randrange(len(data) + 1)
        change = chance.randrange(4)
        if change == 0 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif change == 1:
            data[place:place] = chance.choice(BYTES)
        elif change == 2:
            del data[place : place + chance.randrange(1, 9)]
        else:
            data[place:place] = data[place : place + chance.randrange(1, 60)]
    return bytes(data)


def text_body(chance: random.Random) -> bytes:
    """Return a request whose body is no valid JSON, or JSON that is too much."""
    depth = chance.choice((50, 150, 250, 5_000, 100_000))
    many = chance.choice((300, 2_000, 20_000))
    bodies = (
        *(b"", b"{", b"null", b"[]", b'"a"', b"{}{}", b"{,}", b"{'items': []}", b'{"items": [1,]}', b"\0", b"// x\n{}"),
        *(b"[" * depth, b"[" * depth + b"]" * depth, b'{"items":' * depth, b'{"items":' * depth + b"1" + b"}" * depth),
        *(b'{"items": [NaN]}', b'{"items": [Infinity]}', b'{"items": [1e999]}', b'{"k": -Infinity, "items": []}'),
        *(b'{"items": [%s]}' % (b"9" * many), b'{"items": [], "k": 1%s}' % (b"0" * many), b'{"items": [-0, 01, 1.]}'),
        *(b'{"items": ["\\ud800"]}', b'{"items": ["\\udc00\\ud800"]}', b'{"\\ud800": 1}', b'{"items": ["\\u0000"]}'),
        *(b'{"items": [], "items": ["i00001"]}', b'{"items": [], "k": 1, "k": "x"}', b'{"users": [], "items": []}'),
        *(b'{"items": ["\xff\xfe"]}', b'{"items": ["\xed\xa0\x80"]}', b'{"items": ["\xc0\xaf"]}', b"\xff\xfe{\0}\0"),
        *(b'\xef\xbb\xbf{"items": []}', b'{"items": ["a\nb"]}', b'{"items": ["a\x01"]}', b'{"items": ["\\x41"]}'),
        *(b'{"items": [%s]}' % b",".join([b'"i00001"'] * many), b'{"items": ["%s"]}' % (b"a" * many * 9)),
        *(b'{"%s": 1}' % (b"k" * many), b"{%s}" % b",".join(b'"k%d": 1' % key for key in range(many)), b" " * many),
        b'{"items": [true, null, {}, [], 1.5, "", -9223372036854775809, 9223372036854775808]}',
        b'{"user": "fuzz-user", "item": "fuzz-item", "time": 1e308, "kind": "like"}',
        b'{"user": "fuzz-user", "item": "fuzz-item", "time": "9999-99-99T99:99:99Z"}',
        b'{"title": "\\u202e\\u0000", "attributes": {"": [], "a": 1e400}}',
    )
    body, (path, _) = chance.choice(bodies), chance.choice(POSTS)
    if chance.random() < 0.1:
        return post(body, b"/v1/items/fuzz-item").replace(b"POST", b"PUT", 1)
    return post(body, path)


def coded_body(chance: random.Random) -> bytes:
    """Return a request whose body is not what its header fields say."""
    plain = json.dumps({"items": ["i00001"]})
    body = chance.choice(
        (
            *(plain.encode(), gzip.compress(plain.encode(), mtime=0), gzip.compress(b"\0" * 10**6, mtime=0)),
            *(plain.encode("utf-16"), plain.encode("utf-32"), b"items=i00001", bytes(chance.randbytes(200))),
        )
    )
    media = chance.choice(
        (
            *(JSON, JSON, b"Content-Type: application/json; charset=utf-16\r\n", b"Content-Type: text/plain\r\n", b""),
            *(
                b"Content-Type: application/json;;;\r\n",
                b"Content-Type: application/x-www-form-urlencoded\r\n",
                JSON * 2,
            ),
            b"Content-Type: multipart/form-data; boundary=x\r\n",
        )
    )
    coding = chance.choice(
        (b"", b"Content-Encoding: gzip\r\n", b"Content-Encoding: br, gzip\r\n", b"Content-MD5: x\r\n")
    )
    wrong = b"Content-Length: %d\r\n" % max(0, len(body) + chance.choice((-5, -1, 0, 0, 0)))
    return post(body, extra=coding, framing=wrong, media=media)


def large_body(chance: random.Random) -> bytes:
    """Return a body beyond the limit of bytes, sent or only announced."""
    size = chance.choice((1_048_577, 1_100_000, 10**12))
    body = b"[" + b" " * chance.choice((0, 1_000, 1_200_000))
    if chance.random() < 0.5:
        return post(body[:size], framing=b"Content-Length: %d\r\n" % size)
    return post(b"%x\r\n%s" % (size, body[:size]), framing=b"Transfer-Encoding: chunked\r\n")


def pipeline(chance: random.Random) -> bytes:
    """Return valid requests on one connection, with something invalid after them."""
    requests = b"".join(good(chance) for _ in range(chance.choice((1, 2, 5, 20, 60))))
    makers: tuple[Callable[[random.Random], bytes], ...] = (flipped, noise, header, chunks, framing, first_line)
    return requests + chance.choice((*makers, lambda _: b"", lambda _: b"\r\n" * 2_000))(chance)


def upgrade(chance: random.Random) -> bytes:
    protocol = chance.choice((b"websocket", b"h2c", b"HTTP/3", b"\xff", b"", b"websocket, h2c"))
    lines = b"Connection: " + chance.choice((b"Upgrade", b"upgrade, HTTP2-Settings", b"close, Upgrade")) + b"\r\n"
    lines += b"Upgrade: " + protocol + b"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    lines += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    data = get(chance)[:-2] + lines + b"\r\n" if chance.random() < 0.7 else any_post(chance, extra=lines)
    frames = (b"", b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get(chance))
    return data + chance.choice(frames)


def noise(chance: random.Random) -> bytes:
    return chance.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            chance.randbytes(chance.choice((1, 30, 3_000))),
            bytes(chance.choices(b"\r\n \t:/GETHTP1.0a", k=chance.choice((5, 50, 500)))),
            b"\0" * chance.choice((1, 5_000)) + b"\r\n\r\n",
            b"EHLO localhost\r\nQUIT\r\n",
        )
    )


def cut(chance: random.Random) -> Case:
    """Send a part of a request; the client then waits, or goes away."""
    data = any_post(chance) if chance.random() < 0.7 else good(chance)
    if chance.random() < 0.3:
        body = b"4\r\nabcd\r\n8\r\nabcdefgh\r\n0\r\n\r\n"
        data = post(body, framing=b"Transfer-Encoding: chunked\r\n")
    if chance.random() < 0.2:
        data = good(chance) + data
    end: End = chance.choices(("read", "half-close", "close", "reset"), (4, 2, 2, 2))[0]
    return Case("cut", _pieces(chance, data[: chance.randrange(len(data))]), 0.0, end)


def slow(chance: random.Random) -> Case:
    """Send a request in small pieces: some in time, most not."""
    data = good(chance) if chance.random() < 0.6 else any_post(chance, extra=b"Expect: 100-continue\r\n")
    seconds, count = chance.choice((0.3, 2.5, 4.0)), chance.choice((5, 20, 40))
    size = max(1, -(-len(data) // count))
    pieces = tuple(data[start : start + size] for start in range(0, len(data), size))
    return Case("slow", pieces, seconds / len(pieces))


Maker = Callable[[random.Random], "bytes | Case"]
KINDS: dict[str, tuple[int, Maker]] = {
    "flipped": (20, flipped),
    "first line": (10, first_line),
    "target": (10, target),
    "header": (12, header),
    "framing": (10, framing),
    "chunks": (8, chunks),
    "text body": (10, text_body),
    "coded body": (4, coded_body),
    "large body": (1, large_body),
    "pipeline": (4, pipeline),
    "upgrade": (2, upgrade),
    "noise": (3, noise),
    "cut": (6, cut),
    "slow": (4, slow),
}
"""Weight and maker of each kind of case."""

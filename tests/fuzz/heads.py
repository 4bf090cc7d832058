"""Heads of HTTP requests, valid and malformed, and bodies in chunks."""

from __future__ import annotations

import json
import random

TOKEN = "admin-of-the-fuzzer-0123456789"
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
ACCESS = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
PATHS = (
    *(b"/", b"/healthz", b"/readyz", b"/metrics", b"/openapi.json", b"/docs", b"/page/app.js", b"/v1/model"),
    *(b"/v1/recommend/u00001?k=5", b"/v1/recommend/nobody?k=3&why=true", b"/v1/similar/items/i00001?k=3"),
    *(b"/v1/similar/users/u00003", b"/v1/explain/u00001/i00002", b"/v1/items?q=the&limit=5", b"/v1/items/i00004"),
    *(b"/v1/users/u00005", b"/v1/events/export", b"/v1/operations", b"/v1/model/charts", b"/nothing/here"),
)
POSTS = (
    (b"/v1/recommend", {"items": ["i00001", "i00002"], "k": 5, "why": True}),
    (b"/v1/recommend", {"users": ["u00001", "nobody"], "k": 3, "exclude": ["i00001"]}),
    (b"/v1/explain", {"items": ["i00001"], "item": "i00002"}),
    (b"/v1/events", {"user": "fuzz-user", "item": "fuzz-item", "kind": "like"}),
    (b"/v1/events", {"events": [{"user": "fuzz-user", "item": "fuzz-item", "time": 1.5, "key": "fuzz-key"}]}),
)
BYTES = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x0b", b"\x1b[2J", b"\x7f", b"\x80", b"\xff\xfe"),
    *(b"%", b"%00", b"%2e%2e", b"%zz", b"%ff", b"../", b":", b";", b",", b"?", b"#", b"[", b"\\", b'"', b"\xc3\x28"),
    *(b"HTTP/1.1", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"A" * 300),
)


# Valid requests -----------------------------------------------------------------------------------------------------


def get(chance: random.Random) -> bytes:
    return b"GET " + chance.choice(PATHS) + b" HTTP/1.1\r\n" + HOST + chance.choice((b"", ACCESS)) + b"\r\n"


def post(
    body: bytes, path: bytes = b"/v1/recommend", extra: bytes = b"", framing: bytes | None = None, media: bytes = JSON
) -> bytes:
    framing = b"Content-Length: %d\r\n" % len(body) if framing is None else framing
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + ACCESS + media + extra + framing + b"\r\n" + body


def any_post(chance: random.Random, **options: bytes) -> bytes:
    path, value = chance.choice(POSTS)
    return post(json.dumps(value).encode(), path, **options)


def good(chance: random.Random) -> bytes:
    return get(chance) if chance.random() < 0.5 else any_post(chance)


# Malformed ones -----------------------------------------------------------------------------------------------------


def first_line(chance: random.Random) -> bytes:
    methods = (
        *(b"GET", b"get", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"PRI", b"BREW"),
        *(b"", b"G\0T", b"GET\t", b"M" * 5000, b"\xc3\xa9", b"PROPFIND", b"POST"),
    )
    versions = (
        *(b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/3", b"HTTP/1.2", b"HTTP/1.10", b"http/1.1"),
        *(b"HTTP/-1.1", b"", b"HTTP/", b"HTTP/1.1 x", b"HTTP/99999999999.1", b"HTTQ/1.1", b"HTTP/1,1"),
    )
    method = chance.choice(methods) if chance.random() < 0.4 else b"GET"
    target = _target(chance) if chance.random() < 0.4 else chance.choice(PATHS)
    version = chance.choice(versions) if chance.random() < 0.4 else b"HTTP/1.1"
    blank = chance.choices((b" ", b"  ", b"\t", b"", b"\xa0", b"\r"), (20, 2, 1, 1, 1, 1))[0]
    end = chance.choices((b"\r\n", b"\n", b"\r", b"\n\r"), (20, 2, 1, 1))[0]
    return blank.join((method, target, version)) + end + HOST + b"\r\n"


def _target(chance: random.Random) -> bytes:
    path = chance.choice(PATHS)
    extra = b"".join(chance.choice(BYTES) for _ in range(chance.randrange(1, 4)))
    place = chance.randrange(len(path) + 1)
    choices = (
        path,
        path[:place] + extra + path[place:],
        path + b"?" + extra + b"=" + extra,
        b"/v1/items/" + bytes(chance.randrange(33, 256) for _ in range(chance.randrange(1, 40))),
        b"/v1/recommend/" + b"%" + bytes(chance.choices(b"0123456789abcdefgG%", k=chance.randrange(0, 9))),
        b"/page/" + chance.choice((b"../", b"..%2f", b"%2e%2e/", b"....//", b"%5c..")) * 5 + b"etc/passwd",
        b"/" + b"a" * chance.choice((1_000, 8_000, 9_000, 60_000)),
        b"/v1/model?" + b"a=b&" * chance.choice((100, 2_000, 5_000)),
        b"/v1/recommend/u00001?k=" + chance.choice((b"-1", b"1e9", b"9" * 400, b"NaN", b"0x10", b"%31", b"5&k=6")),
        chance.choice(
            (b"*", b"http://localhost/v1/model", b"//localhost/", b"http://[::1", b"localhost:80", b"", b"?")
        ),
    )
    return chance.choice(choices)


def target(chance: random.Random) -> bytes:
    method = chance.choices((b"GET", b"HEAD", b"DELETE", b"POST", b"OPTIONS"), (6, 2, 1, 1, 1))[0]
    access = b"" if method in (b"DELETE", b"POST") else ACCESS  # so that nothing is deleted
    return method + b" " + _target(chance) + b" HTTP/1.1\r\n" + HOST + access + b"\r\n"


def header(chance: random.Random) -> bytes:
    """Return a request with strange header fields."""
    size = chance.choice((1_000, 15_000, 17_000, 70_000))
    lines = (
        *(b"X: " + b"a" * size, b"X" * size + b": a", b"X: a\r\n" * (size // 6) + b"Y: b", b"Cookie: " + b"a=" * 2_500),
        *(b"X: a\r\n b", b"X: a\r\n\tb", b" X: a", b"X : a", b"X", b": a", b"X:", b"X(y): a", b"X\0: a", b"X: a\0b"),
        *(b"X: a\rb", b"X: a\nb", b"X: a\r", b"X: a\x01\x1f\x7f", b"X: \xff\xfe", b"\xc3\xa9: a", b"X:\n\nGET / HTTP"),
        *(b"Host: localhost", b"Host: other.example", b"Host: a b", b"Host: a/b", b"Host:", b"Host: \xff"),
        *(b"X-Request-Id: a\tb", b"X-Request-Id: " + b"a" * 300, b"X-Request-Id: \x1b[31m", b"Origin: null"),
        *(b"Authorization: Bearer ", b"Authorization: Bearer \xff", b"Authorization: " + b"B" * 9_000),
        *(b"Expect: 100-continue", b"Expect: 200-ok", b"Connection: close, close", b"Connection: \x01", b"TE: x"),
        *(b"If-None-Match: *", b'If-None-Match: "', b"Accept: " + b"*/*," * 500, b"Accept-Encoding: gzip;q=9"),
        *(b"Range: bytes=0-0,1-1", b"Content-Type: " + b"a" * 500, b"Content-Type: \xff;charset=\xfe", b"DNT: x"),
    )  # fmt: skip
    chosen = b"".join(chance.choice(lines) + b"\r\n" for _ in range(chance.choice((1, 1, 1, 2, 4))))
    host = chance.choices((HOST, b"", b"Host: localhost:80\r\n"), (8, 2, 1))[0]
    if chance.random() < 0.3:
        return any_post(chance, extra=chosen)
    return b"GET " + chance.choice(PATHS) + b" HTTP/1." + chance.choice((b"1", b"1", b"1", b"0")) + b"\r\n" + (
        chosen + host + b"\r\n" if chance.random() < 0.5 else host + chosen + b"\r\n"
    )  # fmt: skip


def framing(chance: random.Random) -> bytes:
    """Return a request whose length can be read in two ways, before one that would be smuggled."""
    body = json.dumps({"items": ["i00001"]}).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    length = b"Content-Length: %d\r\n" % chance.choice((len(body), len(chunked), 0, 5))
    code = chance.choice(
        (
            *(
                b"chunked",
                b"Chunked",
                b"chunked, chunked",
                b"gzip, chunked",
                b"chunked, gzip",
                b"identity",
                b"xchunked",
            ),
            *(
                b"\x0bchunked",
                b"chunked\x0b",
                b'"chunked"',
                b"chunked;q=1",
                b",chunked",
                b"chunked,",
                b"",
                b"chunk\0ed",
            ),
        )
    )
    name = chance.choices(
        (b"Transfer-Encoding: ", b"Transfer-Encoding:", b"Transfer-Encoding : ", b"Transfer-Encoding:\r\n "),
        (6, 1, 1, 1),
    )[0]
    coding = name + code + b"\r\n"
    number = b"%d" % len(body)
    strange = (b"+" + number, b"-1", number + b", " + number, number + b" " + number, b"0x10", b"", b"1e2", b"9" * 25)
    odd = b"Content-Length: " + chance.choice((*strange, b"\xd9\xa3", number + b"\x0b", b"018", number)) + b"\r\n"
    fields = chance.choice(
        (length + coding, coding + length, coding, odd, odd + length, length * 2, coding * 2, odd + coding, length)
    )
    data = post(chance.choice((body, chunked)), framing=fields)
    if chance.random() < 0.2:
        data = data.replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    return data + (get(chance) if chance.random() < 0.7 else b"")


def chunks(chance: random.Random) -> bytes:
    """Return a request in chunks, most of them damaged."""
    body = json.dumps({"items": ["i00001"]}).encode()
    size = chance.choices(
        (
            *(b"%x" % len(body), b"%X" % len(body), b"0%x" % len(body), b"0" * 500 + b"%x" % len(body)),
            *(
                b"",
                b"-1",
                b"zz",
                b"0x5",
                b"F" * 17,
                b"7" + b"f" * 15,
                b"%x " % len(body),
                b"5 5",
                b"\xff",
                b"%d" % 10**9,
            ),
        ),
        (6, 1, 1, 1, *(1,) * 10),
    )[0]
    extension = chance.choice((b"", b"", b";a=b", b';a="b\r\nc"', b";" + b"x" * 20_000, b";\0", b";a=b\n"))
    line, after = (chance.choices((b"\r\n", b"\n", b"\r", b"", b"\r\r\n"), (12, 1, 1, 1, 1))[0] for _ in range(2))
    last = chance.choice(
        (
            *(
                b"0\r\n\r\n",
                b"0\r\n\r\n",
                b"0\n\n",
                b"00\r\n\r\n",
                b"0\r\n",
                b"",
                b"0\r\nX: y\r\n\r\n",
                b"0\r\nX\r\n\r\n",
            ),
            *(
                b"0\r\nContent-Length: abc\r\n\r\n",
                b"0\r\nHost: other.example\r\n\r\n",
                b"0\r\nX-Request-Id: of-a-trailer\r\n\r\n",
            ),
            *(
                b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"0\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
                b"0\r\n X: y\r\n\r\n",
            ),
        )
    )
    data = post(size + extension + line + body + after + last, framing=b"Transfer-Encoding: chunked\r\n")
    return data + (get(chance) if chance.random() < 0.4 else b"")

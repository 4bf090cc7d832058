"""A strict plain parser of HTTP/1.1: which requests in some bytes are valid, and whether answers are.

It follows RFC 9112. Where the RFC lets a recipient choose between repairing and refusing, a request counts as valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Fields = list[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([!-~]+) +HTTP/1\.([0-9])")
_TARGET = re.compile(rb"/[!-~]*|[A-Za-z][A-Za-z0-9+.-]*://[!-~]+|\*")
_HOST = re.compile(rb"(\[[0-9A-Za-z:._~%-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(;[^\0\r\n]*)?")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*")


class InvalidError(Exception):
    """The bytes are not a valid message."""


class CutError(Exception):
    """The bytes end within a message."""


@dataclass(frozen=True)
class Request:
    """A valid request; ``last``: nothing after it counts, because its client asks for the end or another protocol."""

    method: bytes
    target: bytes
    minor: int
    fields: Fields
    body: bytes
    last: bool

    def field(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.fields if key == name), None)


@dataclass(frozen=True)
class Stream:
    """The valid requests that some bytes begin with, and what comes after them.

    ``beyond``: there are bytes after a request that asks for the end; a client that sends them may get a reset.
    """

    requests: list[Request]
    rest: Literal["nothing", "cut", "invalid"]
    beyond: bool = False


@dataclass(frozen=True)
class Answer:
    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.fields.get(b"connection", b"").lower() == b"close"


# Requests -----------------------------------------------------------------------------------------------------------


def parse_requests(data: bytes) -> Stream:
    """Return the valid requests that ``data`` begins with."""
    requests: list[Request] = []
    place = 0
    while True:
        while data[place : place + 2] == b"\r\n" or data[place : place + 1] == b"\n":
            place += 2 if data[place : place + 1] == b"\r" else 1
        if place >= len(data):
            return Stream(requests, "nothing")
        try:
            request, place = _request(data, place)
        except InvalidError:
            return Stream(requests, "invalid")
        except CutError:
            return Stream(requests, "cut")
        requests.append(request)
        if request.last:
            return Stream(requests, "nothing", place < len(data))


def _line(data: bytes, place: int) -> tuple[bytes, int]:
    """Return a line without its end, and where the next one begins."""
    end = data.find(b"\n", place)
    if end < 0:
        raise CutError
    return data[place:end].removesuffix(b"\r"), end + 1


def _request(data: bytes, place: int) -> tuple[Request, int]:
    line, place = _line(data, place)
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise InvalidError
    method, target, minor = match[1], match[2], int(match[3])
    fields, place = _fields(data, place)
    if not _TARGET.fullmatch(target) and method != b"CONNECT":
        raise InvalidError
    _check_host(fields, minor)
    length, chunked = _framing(fields)
    if chunked:
        body, place = _chunks(data, place)
    else:
        body, place = data[place : place + length], place + length
        if place > len(data):
            raise CutError
    options = {part.strip().lower() for name, value in fields if name == b"connection" for part in value.split(b",")}
    upgrade = b"upgrade" in options and any(name == b"upgrade" and value for name, value in fields)
    last = b"close" in options or minor == 0 or upgrade or method == b"CONNECT"
    return Request(method, target, minor, fields, body, last), place


def _fields(data: bytes, place: int) -> tuple[Fields, int]:
    """Return the header or trailer fields, names in lower case, and where they end."""
    fields: Fields = []
    while True:
        line, place = _line(data, place)
        if not line:
            return fields, place
        if line[:1] in b" \t":  # the continuation of a value, for which one may read a blank
            if not fields or b"\0" in line or b"\r" in line:
                raise InvalidError
            fields[-1] = (fields[-1][0], fields[-1][1] + b" " + line.strip())
            continue
        match = _FIELD.fullmatch(line)
        if match is None:
            raise InvalidError
        fields.append((match[1].lower(), match[2]))


def _check_host(fields: Fields, minor: int) -> None:
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or (not hosts and minor >= 1) or any(not _HOST.fullmatch(host) for host in hosts):
        raise InvalidError


def _framing(fields: Fields) -> tuple[int, bool]:
    """Return the length of a body, and whether it comes in chunks."""
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise InvalidError
    if codings:
        if codings != [b"chunked"]:
            raise InvalidError
        return 0, True
    if lengths and not re.fullmatch(rb"[0-9]+", lengths[0]):
        raise InvalidError
    return (int(lengths[0][:30]) if lengths else 0), False


def _chunks(data: bytes, place: int) -> tuple[bytes, int]:
    body = b""
    while True:
        line, place = _strict_line(data, place)
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise InvalidError
        size = int(match[1], 16)
        if size == 0:
            _, place = _fields(data, place)
            return body, place
        if place + size + 2 > len(data):
            raise CutError
        body += data[place : place + size]
        place += size
        if data[place : place + 2] != b"\r\n":
            raise InvalidError
        place += 2


def _strict_line(data: bytes, place: int) -> tuple[bytes, int]:
    """Return a line that ends with CR LF: within chunks nothing else may end one."""
    line, after = _line(data, place)
    if data[place:after] != line + b"\r\n":
        raise InvalidError
    return line, after


# Answers ------------------------------------------------------------------------------------------------------------


def parse_answers(data: bytes, requests: Sequence[Request]) -> list[Answer]:
    """Return the complete answers that ``data`` begins with, without interim ones; raise InvalidError."""
    answers: list[Answer] = []
    place = 0
    try:
        while place < len(data):
            request = requests[len(answers)] if len(answers) < len(requests) else None
            answer, place = _answer(data, place, request)
            if answer.status >= 200:
                answers.append(answer)
            if answer.closes and request is not None and request.method == b"HEAD":
                break  # a refusal of the connection has a body
    except CutError:
        pass
    return answers


def _answer(data: bytes, place: int, request: Request | None) -> tuple[Answer, int]:
    line, place = _strict_line(data, place)
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise InvalidError(f"the status line is {line[:80]!r}")
    start = place
    pairs, place = _fields(data, place)
    fields = dict(pairs)
    head = data[start:place]
    if head.count(b"\n") != head.count(b"\r\n") or any(not _TOKEN.fullmatch(name) for name in fields):
        raise InvalidError(f"the fields are {head[:200]!r}")
    if len([name for name, _ in pairs if name in (b"content-length", b"transfer-encoding", b"connection")]) != sum(
        name in fields for name in (b"content-length", b"transfer-encoding", b"connection")
    ):
        raise InvalidError("a field is repeated that describes the connection or the body")
    status = int(match[1])
    body = b""
    if status in (204, 304) or status < 200 or (request is not None and request.method == b"HEAD"):
        pass
    elif fields.get(b"transfer-encoding") == b"chunked":
        if b"content-length" in fields or (request is not None and request.minor == 0):
            raise InvalidError("the answer may not be chunked")
        body, place = _chunks(data, place)
    else:
        if not re.fullmatch(rb"[0-9]{1,12}", fields.get(b"content-length", b"")):
            raise InvalidError(f"the length is {fields.get(b'content-length')!r}")
        size = int(fields[b"content-length"])
        body, place = data[place : place + size], place + size
        if place > len(data):
            raise CutError
    return Answer(status, fields, body), place


def problem_of(answer: Answer) -> str:
    """Return what is wrong with the problem document of an answer, empty if nothing."""
    if answer.fields.get(b"content-type") != b"application/problem+json":
        return f"the media type of a refusal is {answer.fields.get(b'content-type')!r}"
    try:
        document = strict_json(answer.body)
    except ValueError as error:
        return f"a problem document is not JSON: {error}"
    expected = {"type", "title", "status", "detail", "instance"}
    if not isinstance(document, dict) or not expected <= set(document):
        return f"a problem document lacks fields: {document}"
    same = document["instance"] == answer.fields.get(b"x-request-id", b"").decode("latin-1")
    if document["status"] != answer.status or not same or "\n" in document["detail"]:
        return f"a problem document disagrees with its answer: {document}"
    return ""


def strict_json(data: bytes) -> Any:
    """Return the value of JSON in UTF-8 without NaN and lone surrogates; raise ValueError."""

    def refuse(text: str) -> float:
        raise ValueError(f"{text} is not JSON")

    try:
        value = json.loads(data.decode("utf-8"), parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value

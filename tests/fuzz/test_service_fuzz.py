"""A sample of malformed requests; ``python -m tests.fuzz.service`` sends many more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.messages import KINDS, Case, make_case
from tests.fuzz.service import Outcome, judge, run
from tests.fuzz.wire import parse_requests
from tests.serve.models import small_model

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"


def test_malformed_requests_leave_the_service_answering(tmp_path: Path) -> None:
    fuzzer = run(range(400), 1, small_model(tmp_path / "films.dgcf", epochs=1), tmp_path)
    assert fuzzer.failures == []
    assert fuzzer.results["refused"] > 250
    assert fuzzer.results["answered"] > 20, "some must be valid for the sample to mean anything"
    assert fuzzer.results["closed"] > 10
    assert {name.partition(":")[0] for name in fuzzer.kinds} == set(KINDS)


def test_cases_are_a_function_of_seed_and_index() -> None:
    assert make_case(3, 5) == make_case(3, 5)
    assert len({make_case(3, index).content for index in range(50)}) > 40


@pytest.mark.parametrize(
    ("data", "count", "rest"),
    [
        (GET * 3 + b"\r\n", 3, "nothing"),
        (GET[:-1], 0, "cut"),
        (GET + b"hello\r\n\r\n", 1, "invalid"),
        (GET.replace(b"Host", b"Most"), 0, "invalid"),
        (GET.replace(b"1.1", b"1.0").replace(b"Host", b"Most") + GET, 1, "nothing"),
        (POST + b"Content-Length: 2\r\n\r\n{}" + GET, 2, "nothing"),
        (POST + b"Content-Length: 3\r\n\r\n{}", 0, "cut"),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "invalid"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n" + GET, 2, "nothing"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", 0, "invalid"),
    ],
)
def test_plain_parser_knows_what_is_valid(data: bytes, count: int, rest: str) -> None:
    stream = parse_requests(data)
    assert (len(stream.requests), stream.rest) == (count, rest)


@pytest.mark.parametrize(
    ("sent", "received", "problem"),
    [
        (GET, OK, ""),
        (GET * 2, OK, "1 answers for 2 valid requests"),
        (GET, OK * 2, "status 200 for what is not valid HTTP"),
        (GET, OK.replace(b"{}", b"{"), "0 answers for 1 valid requests"),
        (b"hello\r\n\r\n", OK, "status 200 for what is not valid HTTP"),
        (b"hello\r\n\r\n", b"", "what is not valid HTTP was ignored"),
        (GET, OK.replace(b"{}", b"{,"), "the body of an answer is not JSON"),
        (GET, OK.replace(b"\r\nc", b"\nc", 1), "an answer is not valid HTTP"),
        (GET, OK.replace(b"200", b"500"), "status 500"),
        (GET, OK.replace(b"200", b"404"), "the media type of a refusal"),
        (POST + b"Content-Length: 2\r\n\r\n{,", OK, "status 200 for a body that is not JSON"),
    ],
)
def test_wrong_answers_are_noticed(sent: bytes, received: bytes, problem: str) -> None:
    case = Case("any", (sent,))
    noticed, _ = judge(case, parse_requests(sent), Outcome(received, "closed", 0.0))
    assert noticed.startswith(problem)
    assert bool(noticed) == bool(problem)


@pytest.mark.slow
def test_many_malformed_requests_leave_the_service_answering() -> None:
    command = [sys.executable, "-m", "tests.fuzz.service", "--count", "10000", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "malformed requests: 10000, refused: " in done.stdout

"""Fuzz the service: malformed requests are refused with a problem document or cut, and the service goes on.

``python -m tests.fuzz.service --count 10000 --seed 0`` runs the long form; ``--only INDEX`` repeats one request.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.fuzz.heads import TOKEN
from tests.fuzz.messages import Case, make_case
from tests.fuzz.wire import Answer, InvalidError, Stream, parse_answers, parse_requests, problem_of, strict_json
from tests.serve.models import small_model
from tests.serve.service import Service, wait_for

LIMITS = {"header_seconds": 1.0, "body_seconds": 1.0, "idle_seconds": 5.0}
BATCH = 1_000
CLIENTS = 40
"""Clients at the same time. Slow ones come first in a batch, so that dozens are slow together."""
PATIENCE = 10.0
GOOD_SECONDS = 1.0
MORE_FILES, FIRST_MEMORY, MORE_MEMORY = 4, 96 << 20, 32 << 20
"""How many open files a worker may have more than before the first batch, and how much more memory than before the
first batch and than after it: so many large requests at once need memory, which the allocator keeps."""
GOOD = b"GET /v1/recommend/u00149?k=5 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PIPELINED, LINGER_SECONDS = 32, 1.8
RESET = struct.pack("ii", 1, 0)

Result = Literal["refused", "answered", "closed"]


@dataclass(frozen=True)
class Outcome:
    """What a client received, and how the connection ended."""

    data: bytes
    end: Literal["closed", "reset", "open", "left"]
    seconds: float


# A client -----------------------------------------------------------------------------------------------------------


def exchange(address: tuple[str, int], case: Case, stream: Stream) -> Outcome:
    """Send a case and read until the service closes the connection."""
    started = time.monotonic()
    data = bytearray()
    with socket.create_connection(address, timeout=PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            _send(sock, case)
            if case.end in ("close", "reset"):
                if case.end == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                return Outcome(b"", "left", time.monotonic() - started)
            half_closed = case.end == "half-close" and _half_close(sock)
            while part := sock.recv(1 << 16):
                data += part
                if not half_closed and stream.rest == "nothing" and _is_answered(bytes(data), stream):
                    half_closed = _half_close(sock)
            return Outcome(bytes(data), "closed", time.monotonic() - started)
        except TimeoutError:
            return Outcome(bytes(data), "open", time.monotonic() - started)
        except OSError:
            return Outcome(bytes(data), "reset", time.monotonic() - started)


def _send(sock: socket.socket, case: Case) -> None:
    """Send the pieces until the service answers; what it sent before it refused more can still be read."""
    for piece in case.pieces:
        try:
            sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return
        if case.pause and select.select([sock], [], [], case.pause)[0]:
            return


def _half_close(sock: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
    return True


def _is_answered(data: bytes, stream: Stream) -> bool:
    try:
        answers = parse_answers(data, stream.requests)
    except InvalidError:
        return True
    return len(answers) >= len(stream.requests) or (answers[-1:] != [] and answers[-1].closes)


# What is right ------------------------------------------------------------------------------------------------------


def judge(case: Case, stream: Stream, outcome: Outcome) -> tuple[str, Result]:
    """Return what is wrong with the answers to a case (empty if nothing), and what became of it."""
    if outcome.end == "left" or (outcome.end == "reset" and stream.beyond):
        return "", "closed"
    try:
        answers = parse_answers(outcome.data, stream.requests)
    except InvalidError as error:
        return f"an answer is not valid HTTP: {error}", "answered"
    result: Result = "closed"
    if answers:
        result = "refused" if answers[-1].status >= 400 else "answered"
    problems = [_of_answer(answer, place, stream) for place, answer in enumerate(answers)]
    problems += [_of_connection(answers, stream, outcome), _of_number(case, answers, stream, outcome)]
    return next((problem for problem in problems if problem), ""), result


def _of_answer(answer: Answer, place: int, stream: Stream) -> str:
    request = stream.requests[place] if place < len(stream.requests) else None
    if answer.status >= 500 and (answer.status != 503 or b"retry-after" not in answer.fields):
        return f"status {answer.status}: {answer.body[:300]!r}"
    if request is None and answer.status < 400:
        return f"status {answer.status} for what is not valid HTTP"
    if answer.fields.get(b"x-request-id") == b"of-a-trailer":
        return "a field after the body was taken for one of the head"
    if answer.status >= 400:
        return "" if request is not None and request.method == b"HEAD" else problem_of(answer)
    try:
        if answer.body and answer.fields.get(b"content-type", b"").startswith(b"application/json"):
            strict_json(answer.body)
    except ValueError as error:
        return f"the body of an answer is not JSON: {error}"
    try:
        if answer.status < 300 and request is not None and request.method in (b"POST", b"PUT"):
            strict_json(request.body)
    except ValueError as error:
        return f"status {answer.status} for a body that is not JSON: {error}"
    return ""


def _of_connection(answers: list[Answer], stream: Stream, outcome: Outcome) -> str:
    if outcome.end != "closed":
        return f"the connection was {outcome.end} after {outcome.seconds:.1f} s"
    if any(answer.closes for answer in answers[:-1]):
        return "an answer came after the last one"
    refused = answers[len(stream.requests) :]
    if (stream.rest == "nothing" and refused) or len(refused) > 1:
        return f"{len(answers)} answers for {len(stream.requests)} requests"
    if refused and not refused[0].closes:
        return "the connection stays open after what is not valid HTTP"
    return ""


def _of_number(case: Case, answers: list[Answer], stream: Stream, outcome: Outcome) -> str:
    """Return what is wrong if an answer is missing."""
    expected = min(len(stream.requests), PIPELINED)
    if answers and answers[-1].closes:
        return ""
    if len(answers) < expected:
        return f"{len(answers)} answers for {len(stream.requests)} valid requests"
    if stream.rest == "invalid" and case.end != "half-close" and len(answers) == len(stream.requests):
        return "what is not valid HTTP was ignored"
    return "" if answers or not stream.requests else "no answer"


# The service --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    """What a worker uses."""

    memory: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Used:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path(f"/proc/{pid}/fd").iterdir())))


def _mebibytes(*used: Used) -> str:
    return ", ".join(str(one.memory >> 20) for one in used)


class Fuzzer:
    """Sends cases to a service, and collects failures."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.seed = service, seed
        self.results: Counter[Result] = Counter()
        self.kinds: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest_good, self.repeated = 0.0, 0
        for _ in range(50):
            self.good_body = self._good()
        self.workers = service.workers()
        self.before = [Used.of(pid) for pid in self.workers]
        self.first = self.after = self.before
        """After the first batch, and at the end."""

    def run(self, indices: Iterable[int]) -> None:
        """Send the cases of these indices, at most one batch at a time."""
        cases = {index: make_case(self.seed, index) for index in indices}
        slow_first = sorted(cases, key=lambda index: cases[index].pause, reverse=True)
        with ThreadPoolExecutor(CLIENTS) as clients:
            futures = {index: clients.submit(self._send, cases[index]) for index in slow_first}
            time.sleep(0.2)
            self._check_good("among malformed requests")
        for index, future in futures.items():
            problem, result, in_time = future.result()
            self.results[result] += 1
            self.kinds[f"{cases[index].kind}: {result}"] += 1
            if problem and not in_time:
                self.repeated += 1
                problem, *_ = self._send(cases[index])
            if problem:
                self.failures.append(f"request {index} of seed {self.seed} ({cases[index].kind}): {problem}")
        self._check_good("after a batch")
        if self.first is self.before:
            self.first = [Used.of(pid) for pid in self.workers]

    def _send(self, case: Case) -> tuple[str, Result, bool]:
        """Return what is wrong, what became of a case, and whether the connection ended in time.

        On a busy machine a client may miss the seconds that it has to read a refusal.
        """
        stream = parse_requests(case.content)
        outcome = exchange(self.service.address, case, stream)
        return *judge(case, stream, outcome), outcome.end == "closed" or outcome.seconds < LINGER_SECONDS

    def _good(self) -> bytes:
        case = Case("good", (GOOD,))
        stream = parse_requests(GOOD)
        outcome = exchange(self.service.address, case, stream)
        answers = parse_answers(outcome.data, stream.requests)
        if [answer.status for answer in answers] != [200]:
            raise AssertionError(f"a good request was answered with {outcome.data[:300]!r}")
        self.slowest_good = max(self.slowest_good, outcome.seconds)
        return answers[0].body

    def _check_good(self, when: str) -> None:
        """Check that a good request is answered as before, and that the quickest of three is answered in time."""
        seconds = []
        while len(seconds) < 3 and min(seconds, default=PATIENCE) > GOOD_SECONDS:
            started = time.monotonic()
            try:
                if self._good() != self.good_body:
                    self.failures.append(f"{when}, a good request has another answer")
            except (AssertionError, InvalidError, OSError) as error:
                self.failures.append(f"{when}, a good request fails: {error}")
            seconds.append(time.monotonic() - started)
        if min(seconds) > GOOD_SECONDS:
            self.failures.append(f"{when}, good requests took {', '.join(f'{one:.1f}' for one in seconds)} s")

    def check_service(self) -> None:
        """Check the log, the workers, and what they use."""
        if self.service.workers() != self.workers:
            self.failures.append(f"workers were {self.workers}, now they are {self.service.workers()}")
            return
        most = [used.files + MORE_FILES for used in self.before]
        try:
            wait_for(lambda: all(Used.of(pid).files <= files for pid, files in zip(self.workers, most, strict=True)))
        except AssertionError:
            self.failures.append(f"open files: {[Used.of(pid).files for pid in self.workers]}, expected at most {most}")
        self.after = [Used.of(pid) for pid in self.workers]
        for old, first, new in zip(self.before, self.first, self.after, strict=True):
            if new.memory > min(old.memory + FIRST_MEMORY, first.memory + MORE_MEMORY):
                self.failures.append(f"memory of a worker: {_mebibytes(old, first, new)} MiB")

    def check_log(self) -> None:
        """Check that the log has no error; the service must have stopped."""
        for line in self.service.log_file.read_text(encoding="utf-8").splitlines():
            try:
                wrong = json.loads(line)["level"] == "error" or "Traceback" in line
            except (ValueError, KeyError):
                wrong = True
            if wrong:
                self.failures.append(f"in the log: {line[:3000]}")


def run(indices: range, seed: int, model: Path, folder: Path) -> Fuzzer:
    """Send the cases of these indices to a service of their own."""
    settings = {"tokens": {"admin": [TOKEN]}}
    with Service(model, folder / "data", limits=LIMITS, settings=settings) as service:
        fuzzer = Fuzzer(service, seed)
        for start in range(0, len(indices), BATCH):
            fuzzer.run(indices[start : start + BATCH])
        fuzzer.check_service()
        code = service.stop()
    if code:
        fuzzer.failures.append(f"the service ended with code {code}")
    fuzzer.check_log()
    return fuzzer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.service", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat the request of this index, and show it")
    chosen = parser.parse_args()
    if chosen.only is not None:
        print(make_case(chosen.seed, chosen.only))
    indices = range(chosen.count) if chosen.only is None else range(chosen.only, chosen.only + 1)
    with tempfile.TemporaryDirectory(prefix="dgcf-fuzz-") as name:
        folder, started = Path(name), time.monotonic()
        fuzzer = run(indices, chosen.seed, small_model(folder / "films.dgcf"), folder)
    for failure in fuzzer.failures[:40]:
        print(failure, file=sys.stderr)
    for kind, count in sorted(fuzzer.kinds.items()):
        print(f"{kind}: {count}")
    for old, first, new in zip(fuzzer.before, fuzzer.first, fuzzer.after, strict=True):
        print(f"memory before, after a batch, at the end: {_mebibytes(old, first, new)} MiB")
        print(f"open files before and at the end: {old.files}, {new.files}")
    print(f"slowest good request: {fuzzer.slowest_good:.3f} s, repeated: {fuzzer.repeated}")
    print(f"seconds: {time.monotonic() - started:.0f}")
    results = ", ".join(f"{name}: {fuzzer.results[name]}" for name in ("refused", "answered", "closed"))
    print(f"malformed requests: {len(indices)}, {results}, failures: {len(fuzzer.failures)}")
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""The process of a refresh, as the worker that starts it sees it: bounded in time and memory, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgcf.errors import DgcfError
from dgcf.serve.refresh.process import beyond, tells_of_memory
from dgcf.serve.server.process import environment

LINE = 2**24
"""The longest message of the process: a card with long settings."""
_LOOK = 0.2  # seconds between two looks at its memory
_SHOWN = 500


class FailedError(DgcfError):
    """The process of a refresh ended without a result."""

    kind = "refresh"


async def carry_out(
    orders: dict[str, Any], folder: Path, *, memory: int, timeout: float, note: Callable[[str], None]
) -> dict[str, Any]:
    """Return the outcome of a refresh; ``note`` is called with its steps. The process never outlives this call."""
    with (folder / "errors.txt").open("w+b") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "dgcf.serve.refresh.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment(),
            start_new_session=True,
            limit=LINE,
        )
        watch = asyncio.ensure_future(_exceeds(process.pid, memory))
        talk = asyncio.ensure_future(_talk(process, orders | {"memory": memory}, note))
        try:
            await asyncio.wait([watch, talk], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if talk.done() and (outcome := talk.result()) is not None:
                return outcome
            if watch.done():
                return {"result": "refused", "detail": beyond(memory)}
            if not talk.done():
                return {"result": "refused", "detail": _too_long(timeout)}
        finally:
            for task in (watch, talk):
                task.cancel()
            _kill(process.pid)
            await process.wait()
        text = _last_words(errors.fileno())
        if tells_of_memory(text):  # the C library or the interpreter has given up
            return {"result": "refused", "detail": beyond(memory)}
        if (name := _crash(process.returncode)) is not None:
            why = f"{name} ended the update, as it does where memory is short; it may be that {beyond(memory)}"
            return {"result": "refused", "detail": why}
        raise FailedError(_end(process.returncode, text))


async def _talk(
    process: asyncio.subprocess.Process, orders: dict[str, Any], note: Callable[[str], None]
) -> dict[str, Any] | None:
    """Send the orders and return the outcome; None if the process ends without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        await process.stdin.drain()
    outcome: dict[str, Any] | None = None
    while line := await process.stdout.readline():
        message = json.loads(line)
        if "step" in message:
            note(str(message["step"]))
        else:
            outcome = message
    return outcome


async def _exceeds(pid: int, memory: int) -> None:
    """Return once the process has more resident memory than it may use; where the system does not say, never."""
    page = resource.getpagesize()
    while True:
        with contextlib.suppress(OSError, IndexError, ValueError):
            if int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * page > memory:
                return
        await asyncio.sleep(_LOOK)


def _kill(pid: int) -> None:
    """Kill the process and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _too_long(timeout: float) -> str:
    return (
        f"the refresh took longer than {timeout:,.0f} s, which is its limit; raise --refresh-timeout. The served model "
        "stays."
    )


def _crash(code: int | None) -> str | None:
    """Return the name of the signal of a crash, which a library that gets no more memory may end in; None without."""
    crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
    return next((one.name for one in crashes if code == -one), None)


def _last_words(errors: int) -> str:
    """Return the end of what the process wrote to its standard error."""
    size = os.fstat(errors).st_size
    return os.pread(errors, _SHOWN, max(0, size - _SHOWN)).decode("utf-8", "replace").strip()


def _end(code: int | None, text: str) -> str:
    """Return how the process ended, with the last line that it wrote."""
    how = f"with exit code {code}" if code is None or code >= 0 else f"by {signal.Signals(-code).name}"
    last = text.splitlines()[-1].strip() if text else ""
    return f"the process of the refresh ended {how}{f' ({last})' if last else ''}; the served model stays."

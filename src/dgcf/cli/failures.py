"""Translate every exception into a failure: one sentence for the user, a kind for programs and an exit code."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from dgcf.cli.streams import ResultNotWrittenError
from dgcf.errors import DataError, DgcfError, hint_of
from dgcf.files import ADVICE
from dgcf.memory import available_memory, format_bytes

SEE_TRACEBACK = "set DGCF_DEBUG=1 to see the traceback"
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
REDUCE = (
    "use a smaller dataset (`dgcf data prepare --user-core`, `--item-core`), smaller settings (dim, layers, "
    "batch_size) or fewer --jobs, or a machine with more memory"
)


@dataclass(frozen=True)
class Failure:
    """An error as the command line reports it; ``message`` is one sentence."""

    kind: str
    message: str
    code: int = FAILED

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {"error": {"kind": self.kind, "message": self.message, "hint": hint_of(self.message)}}


def failure_of(problem: BaseException, command_path: Callable[[], str] = lambda: "dgcf") -> Failure | None:
    """Return the failure that explains an exception, or None for a bug."""
    for kind, explain in EXPLANATIONS:
        if isinstance(problem, kind) and (failure := explain(problem)) is not None:
            return failure
    if hasattr(problem, "format_message"):  # a usage error; typer bundles click, so its class has no public name
        message = " ".join(str(problem.format_message()).split()).rstrip(".")
        context = getattr(problem, "ctx", None)
        path = context.command_path if context is not None else command_path()
        return Failure("usage", f"{message}; see `{path} --help`.", WRONG_USAGE)
    return None


def _dgcf_error(problem: DgcfError) -> Failure:
    unreadable = isinstance(problem, DataError) and isinstance(problem.__cause__, OSError)
    return Failure("io" if unreadable else problem.kind, str(problem), problem.exit_code)


def _interruption(problem: BaseException) -> Failure:
    return Failure("interrupted", f"stopped by {_stopped_by}; no partial files remain.", INTERRUPTED)


def _output(problem: ResultNotWrittenError) -> Failure:
    advice = "free some space" if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "check the output"
    return Failure("io", f"cannot write the result: {problem.strerror}; {advice}.")


def _memory(problem: BaseException) -> Failure:
    match = re.search(r"allocate (?:([\d.]+ [KMGTPE]?i?B)|(\d+) bytes)", str(problem))
    requested = "" if match is None else f": {match[1] or format_bytes(int(match[2]))} more were requested"
    available = available_memory()
    free = "" if available is None else f", and {format_bytes(available)} are free"
    return Failure("memory", f"not enough memory{requested}{free}; {REDUCE}.")


def _system(problem: OSError) -> Failure:
    if problem.errno == errno.ENOMEM:
        return _memory(problem)
    names = [str(os.fsdecode(name)) for name in (problem.filename, problem.filename2) if isinstance(name, str | bytes)]
    action = f"cannot access {' and '.join(names)}" if names else "the operating system reported an error"
    reason = problem.strerror or str(problem) or type(problem).__name__
    return Failure("io", f"{action}: {reason}; {ADVICE.get(problem.errno or 0, SEE_TRACEBACK)}.")


def _runtime(problem: RuntimeError) -> Failure | None:
    """Explain the messages of torch and DuckDB that have no class of their own."""
    text = str(problem)
    if "Query interrupted" in text:  # DuckDB's message after a signal
        return _interruption(problem)
    if type(problem).__name__ == "OutOfMemoryError" or re.search(r"(can't|Cannot) allocate memory", text):
        return _memory(problem)
    if "not enough memory" in text or "out of memory" in text.lower():
        return _memory(problem)
    if "std::bad_cast" in text:  # DuckDB's message for a name that is not UTF-8
        return _name(problem)
    return None


def _name(problem: BaseException) -> Failure | None:
    """Explain a file name that is not UTF-8; Python keeps its bytes as surrogates, which cannot be encoded."""
    if isinstance(problem, UnicodeEncodeError) and "surrogates" not in problem.reason:
        return None
    return Failure("data", "the name of a file or folder has bytes that are not UTF-8; rename it.")


def _imported(problem: ImportError) -> Failure | None:
    """Explain a library that could not be loaded for lack of memory."""
    lacking = re.search(r"failed to map segment|[Cc]annot allocate memory", str(problem))
    return _memory(problem) if lacking else None


def _database(problem: Exception) -> Failure | None:
    """Explain DuckDB's errors, without importing it for verbs that do not use it."""
    duckdb = sys.modules.get("duckdb")
    if duckdb is None or not isinstance(problem, duckdb.Error):
        return None
    if isinstance(problem, duckdb.OutOfMemoryException):
        return _memory(problem)
    if isinstance(problem, duckdb.InterruptException):
        return _interruption(problem)
    number = next((number for number in ADVICE if os.strerror(number) in str(problem)), None)
    path = re.search(r'file \\*"(.+?)\\*"', str(problem))
    if number is not None:
        return _system(OSError(number, os.strerror(number), path and path[1]))
    reason = str(problem).strip().splitlines()[0].rstrip(".")
    if isinstance(problem, duckdb.IOException):
        return Failure("io", f"DuckDB could not read or write a file: {reason}; {SEE_TRACEBACK}.")
    return Failure("data", f"DuckDB could not process the data: {reason}; check the file.")


# The first entry that matches and returns a failure is used.
EXPLANATIONS: tuple[tuple[type[BaseException], Callable[[Any], Failure | None]], ...] = (
    (DgcfError, _dgcf_error),
    (KeyboardInterrupt, _interruption),
    (ResultNotWrittenError, _output),
    (MemoryError, _memory),
    (RecursionError, lambda problem: Failure("data", "the input is nested too deeply; give a flatter file.")),
    (Exception, _database),
    (OSError, _system),
    (ImportError, _imported),
    (UnicodeEncodeError, _name),
    (RuntimeError, _runtime),
)

_stopped_by = "the keyboard"


def stop_on_signals() -> None:
    """Make SIGTERM and SIGHUP stop a verb as Ctrl-C does; a signal that is ignored (``nohup``) stays ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has both
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def ignore_signals() -> None:
    """Ignore the signals that stop a verb, once it has ended."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    global _stopped_by
    _stopped_by = signal.Signals(number).name
    raise KeyboardInterrupt

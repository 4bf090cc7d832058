"""The process of a refresh: ``python -m dgcf.serve.refresh.process`` reads orders, writes its steps and its result.

Orders and messages are lines of JSON. The process has a lower priority than the workers and a limit of memory, and ends
when its standard input is closed, so that it does not outlive the worker that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dgcf.errors import DgcfError, NotEnoughMemoryError
from dgcf.memory import format_bytes

NICENESS = 10
KILLED_FIRST = 500
"""By how much the system prefers this process when it has to end one for want of memory."""
NO_TORCH = "a refresh needs torch, which is not installed here; install it with: pip install torch."
_SIGNS = ("alloc", "out of memory", "cannot allocate", "can't start new thread", "failed to map", "cannot map")


def without_torch() -> str | None:
    """Return why no refresh can run here, or None."""
    return NO_TORCH if find_spec("torch") is None else None


def beyond(memory: int) -> str:
    """Return the sentence of a refresh that needs more memory than it may use."""
    return (
        f"the refresh needs more than the {format_bytes(memory)} of memory that it may use; raise --refresh-memory. "
        "The served model stays."
    )


def tells_of_memory(text: str) -> bool:
    """Return whether a message is one of a program that gets no more memory."""
    return any(sign in text.lower() for sign in _SIGNS)


def main() -> int:
    """Carry out the orders of the first line of the standard input."""
    orders = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    _lower()
    memory = int(orders.pop("memory"))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    _say(_outcome(orders, memory))
    return 0


def _outcome(orders: dict[str, Any], memory: int) -> dict[str, Any]:
    try:
        warnings.simplefilter("ignore")
        from dgcf.serve.refresh.learn import Orders, learn

        paths: dict[str, Any] = {name: Path(orders[name]) for name in ("base", "events", "out")}
        outcome = learn(Orders(**{**orders, **paths}), lambda step: _say({"step": step}))
        return outcome | {"peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    except NotEnoughMemoryError as problem:
        return _refused(f"{str(problem).rstrip('.')}; or raise --refresh-memory. The served model stays.")
    except DgcfError as problem:
        return _refused(str(problem))
    except (MemoryError, RuntimeError, ImportError, OSError) as problem:
        if isinstance(problem, MemoryError) or tells_of_memory(str(problem)):
            return _refused(beyond(memory))
        raise


def _refused(detail: str) -> dict[str, Any]:
    return {"result": "refused", "detail": detail}


def _lower() -> None:
    """Give way to the workers, which answer meanwhile."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(KILLED_FIRST), encoding="ascii")


def _end_with_the_worker() -> None:
    """End this process when nobody holds the other end of its standard input any more."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(0, 4096):
            pass
    os._exit(1)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

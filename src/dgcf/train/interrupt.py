"""Signals during training: the first one asks the loop to stop between two steps, the second one stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Give a question that answers yes after the first Ctrl-C, SIGTERM or, unless it is ignored (nohup), SIGHUP.

    A step must not be torn apart half-way: some parameters would be updated and others not. Signals reach only a
    process's main thread; elsewhere the answer stays no and Python's own behaviour is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield asked.is_set
    finally:
        for number, old in before.items():
            signal.signal(number, old)

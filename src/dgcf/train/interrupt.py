"""Signals during training: the first stops the loop between two steps, the second stops immediately."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Yield a callable that is True after the first SIGINT, SIGTERM or, unless it is ignored (nohup), SIGHUP.

    A step must not be interrupted: some parameters would be updated and others not. Only the main thread receives
    signals; in others the callable stays False and the handlers are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requested = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield requested.is_set
    finally:
        for number, old in before.items():
            signal.signal(number, old)

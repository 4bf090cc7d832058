"""What training costs in memory: the most that the process held since a mark was set, in megabytes (10⁶ bytes)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import sys
from pathlib import Path

import torch

MEGABYTE = 1e6
_KERNEL = Path("/proc/self")


def mark_peak() -> None:
    """Begin to measure from here on, so that what ran before in this process is not counted.

    What earlier work let go of is handed back to the system first, or it would count as ours. Where the system keeps
    one peak for the whole life of a process (macOS, or a sealed /proc), that is what ``peak_mb`` gives.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # of the GNU C library; others have no such thing
    with contextlib.suppress(OSError):
        (_KERNEL / "clear_refs").write_text("5")  # sets VmHWM back to what is resident now
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()


def peak_mb() -> dict[str, float]:
    """``{"peak_mb": …}``: the most resident memory since ``mark_peak``; with a GPU in use also ``gpu_peak_mb``.

    A system that tells neither gives nothing.
    """
    peak = {} if (resident := _resident_peak()) is None else {"peak_mb": resident / MEGABYTE}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        peak["gpu_peak_mb"] = torch.cuda.max_memory_allocated() / MEGABYTE
    return peak


def _resident_peak() -> float | None:
    """In bytes."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB$", (_KERNEL / "status").read_text(), re.MULTILINE):
            return int(found[1]) * 1024.0
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)

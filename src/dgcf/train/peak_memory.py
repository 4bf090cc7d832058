"""Peak memory of the process since a mark, in megabytes (10⁶ bytes)."""

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
    """Start measuring, so that earlier work of this process is not counted.

    Memory that was freed before is returned to the system first, or it would count. Where the system has one peak for
    the whole life of a process (macOS, or a read-only /proc), ``peak_mb`` gives that.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc only
    with contextlib.suppress(OSError):
        (_KERNEL / "clear_refs").write_text("5")  # sets VmHWM back to what is resident now
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()


def peak_mb() -> dict[str, float]:
    """Return ``{"peak_mb": …}``, the peak resident memory since ``mark_peak``, and ``gpu_peak_mb`` if a GPU is in use.

    Empty on systems that report neither.
    """
    peak = {} if (resident := _resident_peak()) is None else {"peak_mb": resident / MEGABYTE}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        peak["gpu_peak_mb"] = torch.cuda.max_memory_allocated() / MEGABYTE
    return peak


def _resident_peak() -> float | None:
    """Return the peak resident memory in bytes."""
    with contextlib.suppress(OSError):
        if match := re.search(r"^VmHWM:\s+(\d+) kB$", (_KERNEL / "status").read_text(), re.MULTILINE):
            return int(match[1]) * 1024.0
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)

"""Memory available to this process: of the machine, its cgroups and its resource limits."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dgcf.errors import NotEnoughMemoryError

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def require_memory(needed: int, what: str, advice: str, *, size: str = "") -> None:
    """Raise NotEnoughMemoryError if ``what`` needs more bytes than are available.

    ``advice`` ends the sentence; ``size`` names the quantity that the need depends on.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise NotEnoughMemoryError(
            f"{what} needs about {format_bytes(needed)} of memory{size and f' for {size}'}, "
            f"and {format_bytes(available)} are free; {advice}."
        )


def available_memory() -> int | None:
    """Return the bytes that this process can allocate without swapping, or None if unknown."""
    limits = [_machine(), *_resource_limits(), *_cgroup_limits()]
    finite = [limit for limit in limits if limit is not None]
    return max(0, min(finite)) if finite else None


def format_bytes(n_bytes: int) -> str:
    """Return a size in words: ``1.5 GB``, ``20.0 MB``."""
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 5e7 else f"{n_bytes / 1e6:,.1f} MB"


def _machine() -> int | None:
    """Return the available memory of the machine, or its total memory if that is unknown."""
    available = _field(PROC / "meminfo", "MemAvailable")
    if available is not None:
        return available
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # no such call, or no such name, on this system
        return None


def _resource_limits() -> Iterator[int]:
    """Yield the memory that ``ulimit -v`` and ``ulimit -d`` leave."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield soft - (_field(PROC / "self" / "status", used) or 0)


def _cgroup_limits() -> Iterator[int]:
    """Yield the memory that each cgroup of this process leaves, version 1 or 2, up to the root."""
    with contextlib.suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                yield from _up(CGROUPS, path, "memory.max", "memory.current", "")
            elif "memory" in controllers.split(","):
                root = CGROUPS / "memory"
                yield from _up(root, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _up(root: Path, path: str, limit_name: str, used_name: str, prefix: str) -> Iterator[int]:
    # In a container the path may be that of the host, which is not mounted; the container's group is then the root.
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is not None and used is not None:
            cached = sum(_field(folder / "memory.stat", f"{prefix}{kind}_file") or 0 for kind in ("inactive", "active"))
            yield limit - max(0, used - cached)  # cached files are dropped when memory is needed
        if folder == root:
            break


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _field(path: Path, name: str) -> int | None:
    """Return a field of a file such as /proc/meminfo in bytes, or None."""
    try:
        match = re.search(rf"^{name}:?\s+(\d+)( kB)?$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * (1024 if match[2] else 1) if match else None

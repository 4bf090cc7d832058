"""Shared functions of the benchmarks: separate processes, medians, the hardware, Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def in_process(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run Python code in a new process and return its ``result``, with the peak memory as ``peak_mb``."""
    tail = (
        "\nimport resource as _r, json as _j\n"
        "print(_j.dumps({**result, 'peak_mb': _r.getrusage(_r.RUSAGE_SELF).ru_maxrss / 1024}))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code + tail, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if process.returncode:
        raise SystemExit(f"a benchmark process failed:\n{process.stderr}")
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def median(values: list[float]) -> float:
    return statistics.median(values)


def hardware() -> str:
    """Return the number of cores, memory, architecture and Python version."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

"""How everything here is measured: in processes of their own, interleaved, medians, with the machine named."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def in_process(code: str, *words: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run Python code in a new process; the JSON object it prints last, with its peak memory as ``peak_mb``."""
    tail = (
        "\nimport resource as _r, json as _j\n"
        "print(_j.dumps({**result, 'peak_mb': _r.getrusage(_r.RUSAGE_SELF).ru_maxrss / 1024}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + tail, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise SystemExit(f"a benchmark process failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def median(values: list[float]) -> float:
    return statistics.median(values)


def hardware() -> str:
    """The machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

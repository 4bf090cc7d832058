"""Measure how long the library and the command line take to start: the best of several new processes.

    python -m benchmarks.startup [--rounds 10]

The limits are 0.1 s for ``import dgcf``, without the start of Python, and 0.7 s for ``dgcf --help``; the command fails
above one of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks.measure import hardware, markdown

LIMITS = {"import dgcf": 0.1, "dgcf --help": 0.7}


def seconds(*words: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    python, imported, helped = (
        min(seconds(*words) for _ in range(args.rounds))
        for words in (("-c", "pass"), ("-c", "import dgcf"), ("-m", "dgcf", "--help"))
    )
    taken = {"import dgcf": imported - python, "dgcf --help": helped}
    print(f"{hardware()}; Python itself starts in {python:.3f} s\n")
    print(markdown(["start", "s", "limit"], [[name, f"{taken[name]:.3f}", f"{LIMITS[name]:g}"] for name in LIMITS]))
    if slow := [name for name in LIMITS if taken[name] > LIMITS[name]]:
        sys.exit(f"{', '.join(slow)}: above the limit.")


if __name__ == "__main__":
    main()

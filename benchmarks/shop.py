"""Measure a shop's first session: a raw export, a default training, recommendations to all customers as Parquet.

    python -m benchmarks.shop [--lines 542000] [--users 5200] [--items 4070] [--folder FOLDER]

The export is that of ``examples/shop_export.py``, with about as many pairs (270,000), customers (4,200) and articles as
a published one. Each step is the command of a user in a process of its own, and training has no setting. ``LIMIT`` must
hold on two idle cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples.shop_export import Shape, write

from benchmarks.measure import hardware, markdown

LIMIT = 300.0
"""Seconds from the raw file to the Parquet file."""
READING = ("--missing", "skip", "--where", "Quantity > 0")


def measured(*words: str) -> tuple[float, float]:
    """Run ``dgcf`` to its end; return its seconds and its peak memory in MB."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dgcf", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dgcf {words[0]} failed with exit code {process.returncode}.")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=542_000)
    parser.add_argument("--users", type=int, default=5_200)
    parser.add_argument("--items", type=int, default=4_070)
    parser.add_argument("--folder", type=Path, help="where to keep the files; a temporary folder by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        export = write(folder / "shop.csv", Shape(args.lines, args.users, args.items, tastes=9))
        run, recommendations = folder / "run", folder / "recommendations.parquet"
        steps = {
            "train": ("train", str(export), *READING, "--out", str(run)),
            "recommend --all": ("recommend", str(run), "--all", "--out", str(recommendations)),
        }
        taken = {name: measured(*words) for name, words in steps.items()}
    total = sum(seconds for seconds, _ in taken.values())
    rows = [[name, f"{seconds:.1f}", f"{peak:.0f}"] for name, (seconds, peak) in taken.items()]
    rows.append(["both", f"{total:.1f}", f"{max(peak for _, peak in taken.values()):.0f}"])
    print(f"{args.lines:,} lines, {hardware()}\n")
    print(markdown(["step", "s", "peak MB"], rows))
    print(f"\n{total:.0f} s, {'within' if total <= LIMIT else 'ABOVE'} the limit of {LIMIT:.0f} s.")


if __name__ == "__main__":
    main()

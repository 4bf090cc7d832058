"""Measure a shop's first session and first update: a raw export, a default training, recommendations to all customers
as Parquet, and an update with 1 % new rows.

    python -m benchmarks.shop [--lines 542000] [--users 5200] [--items 4070] [--folder FOLDER] [--scratch]

The export is that of ``examples/shop_export.py``, with about as many pairs (270,000), customers (4,200) and articles as
a published one; the new rows are the lines that follow. Each step is the command of a user in a process of its own, and
training has no setting. ``LIMIT`` must hold on two idle cores. The update may take ``SHARE`` of the processor time of
the training. ``--scratch`` also trains from scratch on the pairs of the update, old and new: the first training leaves
out the pairs of its validation and test parts, so that its epochs are less work than those of the update.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from examples.shop_export import COLUMNS, Shape, rows

from benchmarks.measure import hardware, markdown

LIMIT = 300.0
"""Seconds from the raw file to the Parquet file."""
SHARE, NEW_ROWS = 0.15, 0.01
READING = ("--missing", "skip", "--where", "Quantity > 0")


class Cost(NamedTuple):
    """Seconds, seconds of the processor on all cores, and the peak memory in MB."""

    seconds: float
    processor: float
    peak: float


def measured(*words: str) -> Cost:
    """Run ``dgcf`` to its end, and return its cost."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dgcf", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dgcf {words[0]} failed with exit code {process.returncode}.")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def write_exports(folder: Path, shape: Shape) -> tuple[Path, Path]:
    """Write the export of a shape, and another one of the rows that follow; return their paths."""
    lines = rows(replace(shape, lines=shape.lines + round(shape.lines * NEW_ROWS)))
    files = {"shop.csv": lines[: shape.lines], "new.csv": lines[shape.lines :]}
    for name, part in files.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *part])
    return folder / "shop.csv", folder / "new.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=542_000)
    parser.add_argument("--users", type=int, default=5_200)
    parser.add_argument("--items", type=int, default=4_070)
    parser.add_argument("--folder", type=Path, help="where to keep the files; a temporary folder by default")
    parser.add_argument("--scratch", action="store_true", help="also train from scratch on the pairs of the update")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        export, new = write_exports(folder, Shape(args.lines, args.users, args.items, tastes=9))
        run, updated, recommendations = folder / "run", folder / "updated", folder / "recommendations.parquet"
        steps = {
            "train": ("train", str(export), *READING, "--out", str(run)),
            "recommend --all": ("recommend", str(run), "--all", "--out", str(recommendations)),
            "update": ("update", str(run), str(new), "--out", str(updated)),
        }
        if args.scratch:
            steps["train from scratch"] = ("train", str(updated / "dataset"), "--out", str(folder / "scratch"))
        taken = {name: measured(*words) for name, words in steps.items()}
    table = [[name, f"{cost.seconds:.1f}", f"{cost.processor:.1f}", f"{cost.peak:.0f}"] for name, cost in taken.items()]
    print(f"{args.lines:,} lines, {hardware()}, load {os.getloadavg()[0]:.1f}\n")
    print(markdown(["step", "s", "processor, s", "peak MB"], table))
    total = taken["train"].seconds + taken["recommend --all"].seconds
    print(f"\n{total:.0f} s, {'within' if total <= LIMIT else 'ABOVE'} the limit of {LIMIT:.0f} s.")
    for name in ("train", "train from scratch") if args.scratch else ("train",):
        share = taken["update"].processor / taken[name].processor
        print(f"update: {share:.1%} of `{name}`, {'within' if share <= SHARE else 'ABOVE'} the limit of {SHARE:.0%}.")


if __name__ == "__main__":
    main()

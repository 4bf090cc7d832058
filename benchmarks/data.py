"""Measure reading 20 million rows, against a straightforward pandas script, and loading a prepared Gowalla.

    python -m benchmarks.data [--rows 20000000] [--rounds 3]

Both read string ids, ratings and timestamps, keep ratings of at least 3, drop repeated pairs, take the 10-core and map
the ids to numbers. Each run is a separate process; the two alternate.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.measure import hardware, in_process, markdown, median

OURS = """
import sys, time
started = time.perf_counter()
from dgcf.data.interactions import RatingFilter
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.splits import Split
preparation = Preparation(RatingFilter(3.0), user_core=10, item_core=10, split=Split("none"))
dataset = prepare(sys.argv[1], preparation)
result = {"seconds": time.perf_counter() - started, "pairs": len(dataset.train), "users": dataset.n_users}
"""

PANDAS = """
import sys, time
started = time.perf_counter()
import pandas as pd
read = pd.read_csv if sys.argv[1].endswith("csv") else pd.read_parquet
rows = read(sys.argv[1])
rows = rows[rows.rating >= 3.0].drop_duplicates(["user_id", "item_id"])
while True:
    before = len(rows)
    rows = rows[rows.groupby("user_id").user_id.transform("size") >= 10]
    rows = rows[rows.groupby("item_id").item_id.transform("size") >= 10]
    if len(rows) == before:
        break
user, users = pd.factorize(rows.user_id)
item, items = pd.factorize(rows.item_id)
result = {"seconds": time.perf_counter() - started, "pairs": len(rows), "users": len(users)}
"""

LOAD = """
import sys, time
from dgcf.data import Dataset
started = time.perf_counter()
dataset = Dataset.load(sys.argv[1])
result = {"seconds": time.perf_counter() - started, "pairs": len(dataset.train)}
"""


def generate(folder: Path, n: int) -> None:
    """Write pairs of power-law users and items, with ids of 12 and 10 characters, as CSV and Parquet."""
    rng = np.random.default_rng(0)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE rows (u BIGINT, i BIGINT, r DOUBLE, t BIGINT)")
        for start in range(0, n, 1_000_000):
            size = min(1_000_000, n - start)
            columns = {
                "u": (rng.pareto(1.2, size) * 3000).astype(np.int64) % 500_000,
                "i": (rng.pareto(1.0, size) * 800).astype(np.int64) % 100_000,
                "r": rng.integers(1, 11, size) / 2,
                "t": rng.integers(1_400_000_000, 1_600_000_000, size),
            }
            con.execute("INSERT INTO rows SELECT unnest($u), unnest($i), unnest($r), unnest($t)", columns)
        query = (
            "SELECT 'user-' || lpad(u::VARCHAR, 7, '0') AS user_id, 'B00' || lpad(i::VARCHAR, 7, '0') AS item_id, "
            "r AS rating, t AS timestamp FROM rows"
        )
        for suffix in ("csv", "parquet"):
            con.execute(f"COPY ({query}) TO '{folder / f'rows.{suffix}'}'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{hardware()}; {args.rows:,} rows; medians of {args.rounds} processes each, alternating\n")
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), args.rows)
        rows = []
        for suffix in ("csv", "parquet"):
            path = str(Path(folder) / f"rows.{suffix}")
            runs = [(in_process(OURS, path), in_process(PANDAS, path)) for _ in range(args.rounds)]
            assert all(ours["pairs"] == pandas["pairs"] for ours, pandas in runs), (
                "dgcf and pandas keep different pairs"
            )
            seconds = [median([run[side]["seconds"] for run in runs]) for side in (0, 1)]
            peaks = [max(run[side]["peak_mb"] for run in runs) for side in (0, 1)]
            pairs = f"{runs[0][0]['pairs']:,}"
            line = [suffix, pairs, f"{seconds[0]:.1f}", f"{seconds[1]:.1f}", f"{seconds[0] / seconds[1]:.2f}"]
            rows.append([*line, f"{peaks[0]:.0f}", f"{peaks[1]:.0f}"])
        header = ["file", "pairs kept", "dgcf, s", "pandas, s", "ratio", "dgcf, peak MB", "pandas, peak MB"]
        print(markdown(header, rows))
        _measure_loading(Path(folder), args.rounds)


def _measure_loading(folder: Path, rounds: int) -> None:
    from dgcf.data import load
    from dgcf.errors import DataError

    try:
        saved = load("deoscirec/gowalla").save(folder / "gowalla")
    except DataError as error:
        print(f"\nLoading a prepared Gowalla was not measured: {error}")
        return
    runs = [in_process(LOAD, str(saved)) for _ in range(max(rounds, 5))]
    print(f"\nLoading a prepared Gowalla: {median([run['seconds'] for run in runs]):.3f} s (median of {len(runs)})")


if __name__ == "__main__":
    main()

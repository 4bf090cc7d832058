"""Reading 20 million rows, ours against a straightforward pandas script; and loading a prepared Gowalla.

    python -m benchmarks.data [--rows 20000000] [--rounds 3]

Both read string ids, ratings and timestamps, keep ratings of at least 3, drop repeated pairs, take the 10-core and map
the ids to numbers. Each run is a process of its own; the two alternate.
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
how = Preparation(RatingFilter(3.0), user_core=10, item_core=10, split=Split("none"))
made = prepare(sys.argv[1], how)
result = {"seconds": time.perf_counter() - started, "pairs": len(made.train), "users": made.n_users}
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
made = Dataset.load(sys.argv[1])
result = {"seconds": time.perf_counter() - started, "pairs": len(made.train)}
"""


def generate(folder: Path, n: int) -> None:
    """Power-law users and items with names of 12 and 10 letters, as CSV and as Parquet."""
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
        named = (
            "SELECT 'user-' || lpad(u::VARCHAR, 7, '0') AS user_id, 'B00' || lpad(i::VARCHAR, 7, '0') AS item_id, "
            "r AS rating, t AS timestamp FROM rows"
        )
        for suffix in ("csv", "parquet"):
            con.execute(f"COPY ({named}) TO '{folder / f'rows.{suffix}'}'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(f"{hardware()}; {asked.rows:,} rows; medians of {asked.rounds} processes each, alternating\n")
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), asked.rows)
        rows = []
        for suffix in ("csv", "parquet"):
            path = str(Path(folder) / f"rows.{suffix}")
            runs = [(in_process(OURS, path), in_process(PANDAS, path)) for _ in range(asked.rounds)]
            assert all(ours["pairs"] == theirs["pairs"] for ours, theirs in runs), "the two disagree"
            seconds = [median([run[side]["seconds"] for run in runs]) for side in (0, 1)]
            peaks = [max(run[side]["peak_mb"] for run in runs) for side in (0, 1)]
            pairs = f"{runs[0][0]['pairs']:,}"
            line = [suffix, pairs, f"{seconds[0]:.1f}", f"{seconds[1]:.1f}", f"{seconds[0] / seconds[1]:.2f}"]
            rows.append([*line, f"{peaks[0]:.0f}", f"{peaks[1]:.0f}"])
        header = ["file", "pairs kept", "dgcf, s", "pandas, s", "ratio", "dgcf, peak MB", "pandas, peak MB"]
        print(markdown(header, rows))
        _loading(Path(folder), asked.rounds)


def _loading(folder: Path, rounds: int) -> None:
    from dgcf.data import load
    from dgcf.errors import DataError

    try:
        saved = load("deoscirec/gowalla").save(folder / "gowalla")
    except DataError as problem:
        print(f"\nLoading a prepared Gowalla was not measured: {problem}")
        return
    runs = [in_process(LOAD, str(saved)) for _ in range(max(rounds, 5))]
    print(f"\nLoading a prepared Gowalla: {median([run['seconds'] for run in runs]):.3f} s (median of {len(runs)})")


if __name__ == "__main__":
    main()

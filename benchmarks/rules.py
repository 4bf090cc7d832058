"""Measure what business rules cost: recommendations for all users into Parquet under each rule, against none.

    python -m benchmarks.rules [--data deoscirec/gowalla] [--dim 64] [--rounds 3]

One process and one thread. The jobs alternate, and the ratio is the median over the rounds of their processor times.
The embeddings are the initial weights of a model after propagation. A random half of the items is in stock, and a brand
has ten items on average.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import hardware, markdown, median
from benchmarks.recommend import K, prepare
from dgcf.recommend.batch import Batch
from dgcf.recommend.rules import Rules


def rules_of(items: list[str]) -> dict[str, Rules | None]:
    """Return the rules to measure, by what they say."""
    rng = np.random.default_rng(0)
    n = len(items)
    table = pd.DataFrame({"item": items, "brand": rng.integers(0, max(n // 10, 1), n), "stock": rng.integers(0, 2, n)})
    boost = dict.fromkeys(items[:: max(n // 500, 1)], 0.2)
    stock: dict[str, Any] = {"items_table": table, "where": "stock > 0"}
    return {
        "no rules": None,
        "half of the items excluded": Rules(exclude=items[::2]),
        "where stock > 0": Rules(**stock),
        "max_per brand=2": Rules(items_table=table, max_per={"brand": 2}),
        "boost of 500 items": Rules(boost=boost),
        "mmr 0.3 of 100 candidates": Rules(mmr=0.3),
        "stock, brand=2 and boost": Rules(**stock, max_per={"brand": 2}, boost=boost),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rec = prepare(args.data, args.dim, Path(name))
        rules = rules_of(list(rec.snapshot.items.texts))
        resolved = {what: None if one is None else one.resolve(rec.names["item"]) for what, one in rules.items()}
        times: dict[str, list[float]] = {what: [] for what in rules}
        for _ in range(args.rounds + 1):
            for what, under in resolved.items():
                started = time.process_time()
                Batch(rec.snapshot, K, rules=under).write(Path(name) / "all.parquet", overwrite=True)
                times[what].append(time.process_time() - started)
    print(f"{rec.snapshot.n_users:,} users × {rec.snapshot.n_items:,} items, d {args.dim}, K {K}, {hardware()}\n")
    plain = times["no rules"][1:]
    rows = []
    for what, seconds in times.items():
        ratio = median([one / base for one, base in zip(seconds[1:], plain, strict=True)])
        rows.append([what, f"{median(seconds[1:]):.1f}", f"{ratio:.2f}"])
    print(markdown(["rules", "s of processor time", "÷ no rules"], rows))


if __name__ == "__main__":
    main()

"""How near the sparse products of a training step come to what the memory gives: d 64, 3 layers, LightGCN and DGCF.

    python -m benchmarks.roofline [--data deoscirec/ml-1m] [--threads 2]

A product reads, for each stored entry, its column, its weight and a row of the embeddings, and writes every row once.
Those bytes, over the time of a product by strips of columns, are set beside the bandwidth of copying (bytes read and
written) within the second-level cache, within the third and in memory, by as many threads at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.measure import hardware, markdown, median
from dgcf.data import load
from dgcf.graph import build_propagation
from dgcf.graph.kernels.cpu.sparse import CSR, product
from dgcf.graph.kernels.cpu.stack import strips_of
from dgcf.graph.kernels.cpu.threads import together
from dgcf.models import entry
from dgcf.train.presets import DGCF_BY_DATASET, family_of

DIM = 64
SIZES = {"second-level cache": 256 << 10, "third-level cache": 4 << 20, "memory": 256 << 20}
"""Bytes that each thread copies from and to."""
AT_ONCE = 64 << 20
"""Bytes that a thread copies between two meetings."""


def seconds(job: Callable[[], object], rounds: int = 30) -> float:
    """The median time of a job, after three to warm up."""
    found = []
    for _ in range(rounds + 3):
        started = time.perf_counter()
        job()
        found.append(time.perf_counter() - started)
    return median(found[3:])


def bandwidth(size: int, threads: int) -> float:
    """Bytes read and written in a second by threads that each copy ``size`` bytes within their own memory."""
    times = max(1, AT_ONCE // size)

    def copy(source: torch.Tensor, target: torch.Tensor) -> None:
        for _ in range(times):
            target.copy_(source)

    jobs = [partial(copy, torch.ones(size // 4), torch.ones(size // 4)) for _ in range(threads)]
    return 2 * size * times * threads / seconds(lambda: together(jobs), rounds=10)


def product_time(matrix: CSR) -> float:
    """Seconds of ``M x`` by strips."""
    strips = [torch.randn(matrix.n_cols, columns.stop - columns.start) for columns in strips_of(DIM)]
    layers = 3

    def climb(x: torch.Tensor) -> None:
        for _ in range(layers):
            x = product(matrix, x)

    return seconds(lambda: together([partial(climb, strip) for strip in strips])) / layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/ml-1m", help="a dataset's name")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    speeds = {level: bandwidth(size, asked.threads) for level, size in SIZES.items()}
    print(f"{asked.data}, {asked.threads} thread(s); {hardware()}")
    print(markdown(["copying within", "GB/s"], [[level, f"{speed / 1e9:.0f}"] for level, speed in speeds.items()]))
    pairs = load(asked.data).train
    rows = []
    for name, more in (("lightgcn", {}), ("dgcf", {"epsilon": DGCF_BY_DATASET[family_of(asked.data)]["epsilon"]})):
        config = replace(entry(name).config, dim=DIM, layers=3, **more)
        stored = build_propagation(pairs.to_scipy(), config.spec()).stored
        (matrix,) = stored.drawing([None])()
        entries, n = len(matrix.values), matrix.n_cols
        moved = entries * (8 * len(strips_of(DIM)) + 4 * DIM) + n * 4 * DIM
        taken = product_time(matrix)
        reached = moved / taken / speeds["second-level cache"]
        cells = [name, f"{entries:,}", f"{moved / 1e6:.0f}", f"{taken * 1e3:.2f}", f"{moved / taken / 1e9:.0f}"]
        rows.append([*cells, f"{reached:.0%}"])
    print(markdown(["a product of", "entries", "MB moved", "ms", "GB/s", "of the second-level cache"], rows))


if __name__ == "__main__":
    main()

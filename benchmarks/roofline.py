"""Compare the sparse products of training with the memory bandwidth: d 64, 3 layers, LightGCN and DGCF.

    python -m benchmarks.roofline [--data deoscirec/ml-1m] [--threads 2]

For each stored entry, a product reads its column, its weight and a row of the embeddings. It writes every row once.
The rate is these bytes divided by the time of a product by strips of columns. It is compared with the rate of copying
(bytes read and written) within the L2 cache, within the L3 cache and in memory, with the same number of threads.
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
SIZES = {"L2 cache": 256 << 10, "L3 cache": 4 << 20, "memory": 256 << 20}
"""Size in bytes of the buffers that each thread copies between."""
BYTES_PER_JOB = 64 << 20
"""Bytes that a thread copies between two synchronisations."""


def seconds(job: Callable[[], object], rounds: int = 30) -> float:
    """Return the median time of a job, after three warm-up rounds."""
    times = []
    for _ in range(rounds + 3):
        started = time.perf_counter()
        job()
        times.append(time.perf_counter() - started)
    return median(times[3:])


def bandwidth(size: int, threads: int) -> float:
    """Return the bytes per second read and written by threads that each copy buffers of ``size`` bytes."""
    repeats = max(1, BYTES_PER_JOB // size)

    def copy(source: torch.Tensor, target: torch.Tensor) -> None:
        for _ in range(repeats):
            target.copy_(source)

    jobs = [partial(copy, torch.ones(size // 4), torch.ones(size // 4)) for _ in range(threads)]
    return 2 * size * repeats * threads / seconds(lambda: together(jobs), rounds=10)


def product_time(matrix: CSR) -> float:
    """Return the seconds of ``M x`` by strips of columns."""
    strips = [torch.randn(matrix.n_cols, columns.stop - columns.start) for columns in strips_of(DIM)]
    layers = 3

    def propagate(x: torch.Tensor) -> None:
        for _ in range(layers):
            x = product(matrix, x)

    return seconds(lambda: together([partial(propagate, strip) for strip in strips])) / layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/ml-1m", help="a dataset's name")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    speeds = {level: bandwidth(size, args.threads) for level, size in SIZES.items()}
    print(f"{args.data}, {args.threads} thread(s); {hardware()}")
    print(markdown(["copying within", "GB/s"], [[level, f"{speed / 1e9:.0f}"] for level, speed in speeds.items()]))
    pairs = load(args.data).train
    rows = []
    for name, settings in (("lightgcn", {}), ("dgcf", {"epsilon": DGCF_BY_DATASET[family_of(args.data)]["epsilon"]})):
        config = replace(entry(name).config, dim=DIM, layers=3, **settings)
        stored = build_propagation(pairs.to_scipy(), config.spec()).stored
        (matrix,) = stored.drawing([None])()
        entries, n = len(matrix.values), matrix.n_cols
        moved = entries * (8 * len(strips_of(DIM)) + 4 * DIM) + n * 4 * DIM
        duration = product_time(matrix)
        fraction = moved / duration / speeds["L2 cache"]
        cells = [name, f"{entries:,}", f"{moved / 1e6:.0f}", f"{duration * 1e3:.2f}", f"{moved / duration / 1e9:.0f}"]
        rows.append([*cells, f"{fraction:.0%}"])
    print(markdown(["product", "entries", "MB moved", "ms", "GB/s", "fraction of the L2 copy rate"], rows))


if __name__ == "__main__":
    main()

"""Measure building the filtered cross-hop matrix, and the sparse product against that of torch.

    python -m benchmarks.graph [--rounds 3] [--pairs 20000000] [--skip-large]

Builds run in separate processes on one thread. They report the seconds of the build, without reading, and the peak
memory of the whole process, including imports and data. Gowalla is read from DGCF_DATA_HOME, or skipped. The power-law
graph is generated: item popularity falls as rank^-0.7, user activity as rank^-0.5, and one user in seven has its most
popular item. Products alternate in one process after a warm-up; times are medians.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import hardware, in_process, markdown, median

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

BUILD = """
import sys, time
import numpy as np
from scipy.sparse import csr_array
from dgcf.graph import cross_hop, interaction_matrix
source, epsilon = sys.argv[1:3]
if source.endswith(".npz"):
    pairs = np.load(source)
    R = csr_array((np.ones(len(pairs["users"]), np.float32), (pairs["users"], pairs["items"])), shape=pairs["shape"])
    del pairs
else:
    from dgcf.data import load
    R = load(source).train.to_scipy()
wall, cpu = time.perf_counter(), time.process_time()
built = cross_hop(interaction_matrix(R), epsilon if epsilon == "auto" else float(epsilon))
result = {
    "seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "epsilon": built.epsilon,
    "cross": built.edges, "direct": built.direct_edges, "held": built.peak_held,
}
"""

PRODUCTS = """
import statistics, sys, time, warnings
import torch
from scipy.sparse import random_array
from dgcf.graph import EdgeDrop
from dgcf.graph.propagation import StoredMap
from dgcf.graph.operators.stored import StoredMatrix
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
torch.set_num_threads(1)
rounds, nodes, edges, dim = map(int, sys.argv[1:5])
half = random_array((nodes, nodes), density=edges / 2 / nodes**2, format="csr", rng=0)
M = (half + half.T).tocsr()
ours = StoredMap(StoredMatrix(M, torch.float32, torch.device("cpu")))
half_width = ours.to(torch.device("cpu"), torch.bfloat16)
csr = torch.sparse_csr_tensor(ours.matrix.offsets, ours.matrix.indices, ours.matrix.values, M.shape)
x = torch.randn(nodes, dim)
short = x.bfloat16()
rows = torch.randint(0, nodes, (3072,))
drop = EdgeDrop(0.1, 0, 0)
jobs = {
    "torch CSR": lambda: csr @ x,
    "product": lambda: ours.forward(x, None, None),
    "product, bfloat16": lambda: half_width.forward(short, None, None),
    "product, edge dropout": lambda: ours.forward(x, None, drop),
    "adjoint, edge dropout": lambda: ours.adjoint(x, None, drop),
    "dropout mask alone": lambda: ours.matrix.weights(drop),
    "3,072 rows": lambda: ours.forward(x, rows, None),
    "adjoint of 3,072 rows": lambda: ours.adjoint(x[:3072], rows, None),
}
assert torch.allclose(jobs["torch CSR"](), jobs["product"](), atol=1e-4)
times = {name: [] for name in jobs}
for turn in range(rounds + 2):
    for name, job in jobs.items():
        started = time.perf_counter()
        job()
        if turn >= 2:
            times[name].append(time.perf_counter() - started)
result = {"milliseconds": {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}, "entries": M.nnz}
"""


def power_law(n_users: int, n_items: int, n_pairs: int, seed: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return distinct pairs drawn with ``P(user) ∝ rank^-0.5`` and ``P(item) ∝ rank^-0.7``, ids shuffled."""
    rng = np.random.default_rng(seed)
    sides = []
    for size, exponent in ((n_users, 0.5), (n_items, 0.7)):
        weight = np.arange(1, size + 1) ** -exponent
        sides.append((np.cumsum(weight) / weight.sum(), rng.permutation(size)))
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < n_pairs:
        n_drawn = int(1.1 * (n_pairs - len(keys))) + 1000
        users, items = (
            ids[np.searchsorted(cumulative, rng.random(n_drawn)).clip(max=len(ids) - 1)] for cumulative, ids in sides
        )
        keys = np.unique(np.concatenate([keys, users * n_items + items]))
    keys = rng.permutation(keys)[:n_pairs]
    return (keys // n_items).astype(np.int32), (keys % n_items).astype(np.int32)


def build_row(name: str, source: str, epsilon: str, rounds: int) -> list[str]:
    """Return one row of the table of builds."""
    runs: list[dict[str, Any]] = [in_process(BUILD, source, epsilon, environment=ONE_THREAD) for _ in range(rounds)]
    first = runs[0]
    return [
        name,
        epsilon,
        f"{first['epsilon']:.10g}",
        f"{first['direct']:,}",
        f"{first['cross']:,}",
        f"{first['held'] / first['cross']:.2f}",
        f"{median([run['seconds'] for run in runs]):.2f}",
        f"{median([run['cpu'] for run in runs]):.2f}",
        f"{max(run['peak_mb'] for run in runs):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=20_000_000)
    parser.add_argument("--skip-large", action="store_true")
    args = parser.parse_args()
    print(f"{hardware()}; one thread; medians of {args.rounds} processes\n")
    rows = []
    try:
        rows += [build_row("gowalla", "deoscirec/gowalla", epsilon, args.rounds) for epsilon in ("0.004", "auto")]
    except SystemExit as error:
        print(f"Gowalla was skipped: {str(error).strip().splitlines()[-1]}\n")
    if not args.skip_large:
        users, items = args.pairs // 20, args.pairs // 100
        with tempfile.TemporaryDirectory() as folder:
            target = str(Path(folder) / "pairs.npz")
            user_idx, item_idx = power_law(users, items, args.pairs)
            np.savez(target, users=user_idx, items=item_idx, shape=(users, items))
            largest = np.bincount(item_idx).max()
            del user_idx, item_idx
            rows.append(build_row(f"power law, {users:,} users, {items:,} items", target, "auto", 1))
        print(f"The most popular item of the power-law graph has {largest:,} users.\n")
    header = ["graph", "ε", "ε used", "direct edges", "cross edges", "held / kept", "s", "CPU s", "peak MB"]
    print(markdown(header, rows))
    products = in_process(PRODUCTS, "9", "70000", "2800000", "64", environment=ONE_THREAD)
    milliseconds: dict[str, float] = products["milliseconds"]
    print(f"\n70,000 nodes, {products['entries']:,} stored entries, width 64, float32, one thread:\n")
    lines = [[name, f"{time:.1f}", f"{milliseconds['torch CSR'] / time:.2f}"] for name, time in milliseconds.items()]
    print(markdown(["operation", "ms", "speed-up over torch CSR"], lines))


if __name__ == "__main__":
    main()

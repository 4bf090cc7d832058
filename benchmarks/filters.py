"""Measure building the item filter of BSPM, and the libraries that can compute its singular vectors.

    python -m benchmarks.filters [--device cuda] [--rounds 3] [--data lightgcn/gowalla] [--vectors]

Each build runs in a process of its own, on two threads if on a CPU. It reports the seconds of ``solve``, the first one
in its process, and the peak memory of the process with imports and data. The settings are those of the filter that is
added to a trained model: rank 448, 400 neighbours. ``LIMITS`` must hold on an idle machine.

``--vectors`` compares the leading vectors of torch's randomised decomposition, of ARPACK on the Gram operator of the
users and of PROPACK: the seconds, the largest difference of a singular value from ARPACK's, and the test metrics of
BSPM with these vectors. ``--data`` may also be the folder of a prepared dataset.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import hardware, in_process, markdown, median

LIMITS = {"cpu": (120.0, 4096.0), "cuda": (8.0, float("inf"))}
"""Seconds and MB of a build: on two cores, and on one H200."""
THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
RANK = 448

BUILD = """
import sys, time
import torch
from dgcf.data import load
from dgcf.models import entry
source, device, rank, neighbours = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data, known = load(source), entry("bspm")
model = known.build(data.n_users, data.n_items, type(known.config)(rank=rank, neighbours=neighbours))
torch.ones(1, device=device)  # starts CUDA
started = time.perf_counter()
model.solve(data.train, 0, device)  # its state is on the CPU
result = {"seconds": time.perf_counter() - started}
if device == "cuda":
    result["gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
"""

VECTORS = """
import sys, time
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh, svds
from dgcf.data import load
from dgcf.graph import item_graph
source, method, rank, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
graph = item_graph.ItemGraph.of(load(source).train)
indptr, indices, values = (part.numpy() for part in graph.by_user[:3])
R = csr_array((values.astype(np.float64), indices, indptr), shape=(graph.n_users, graph.n_items))
started = time.perf_counter()
if method.startswith("svd_lowrank"):
    item_graph.POWER_ITERATIONS = int(method.split()[-1])
    V = graph.leading_vectors(rank).numpy()
elif method == "ARPACK":
    gram = LinearOperator((graph.n_users,) * 2, matvec=lambda x: R @ (R.T @ x), dtype=np.float64)
    squares, U = eigsh(gram, k=rank, which="LA", v0=np.ones(graph.n_users), tol=1e-6)
    V = ((R.T @ U) / np.sqrt(squares))[:, ::-1]
else:
    V = svds(R, k=rank, solver="propack", rng=0)[2][::-1].T
result = {"seconds": time.perf_counter() - started}
np.savez(out, V=V.astype(np.float32), values=np.linalg.norm(R @ V, axis=0))
"""

METRICS = """
import sys
import numpy as np, torch
from dgcf.data import load
from dgcf.evaluate.evaluator import Evaluator
from dgcf.graph.item_graph import ItemGraph
from dgcf.models import entry
source, rank, vectors = sys.argv[1], int(sys.argv[2]), sys.argv[3]
V = torch.from_numpy(np.load(vectors)["V"])
ItemGraph.leading_vectors = lambda graph, rank: V
data, known = load(source), entry("bspm")
model = known.build(data.n_users, data.n_items, type(known.config)(rank=rank))
model.solve(data.train, 0)
means = Evaluator(data, split="test", ks=(20,)).evaluate(model.ranking(data.train)).means
result = {"recall": means["recall@20"], "ndcg": means["ndcg@20"]}
"""

METHODS = ("ARPACK", "svd_lowrank niter 4", "svd_lowrank niter 8", "PROPACK")
"""ARPACK first: the others are compared with it."""


def builds(source: str, device: str, neighbours: int, rounds: int) -> str:
    """Return the table of the builds, each beside its limit."""
    runs = [
        in_process(BUILD, source, device, str(RANK), str(neighbours), environment=THREADS if device == "cpu" else {})
        for _ in range(rounds)
    ]
    seconds, megabytes = median([run["seconds"] for run in runs]), max(run["peak_mb"] for run in runs)
    most, largest = LIMITS[device]
    rows = [
        ["seconds, median", f"{seconds:.1f}", f"{most:.0f}", _verdict(seconds, most)],
        ["seconds of each process", " ".join(f"{run['seconds']:.1f}" for run in runs), "", ""],
        ["peak MB of the process", f"{megabytes:.0f}", f"{largest:.0f}", _verdict(megabytes, largest)],
    ]
    if device == "cuda":
        rows.append(["peak MB of the GPU", f"{max(run['gpu_mb'] for run in runs):.0f}", "", ""])
    return markdown([f"BSPM, rank {RANK}, {neighbours} neighbours, {device}", "measured", "limit", ""], rows)


def _verdict(measured: float, limit: float) -> str:
    return "within" if measured <= limit else "ABOVE"


def libraries(source: str, methods: list[str]) -> str:
    """Return the table of the libraries: time, error, and the metrics of BSPM with their vectors."""
    import numpy as np

    rows, reference = [], None
    for method in methods:
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "vectors.npz")
            run: Mapping[str, Any] = in_process(VECTORS, source, method, str(RANK), out, environment=THREADS)
            values = np.load(out)["values"]
            reference = values if reference is None else reference
            told = in_process(METRICS, source, str(RANK), out, environment=THREADS)
        error = np.abs(values - reference).max()
        metrics = [f"{told[name]:.5f}" for name in ("recall", "ndcg")]
        rows.append([method, f"{run['seconds']:.1f}", f"{error:.1e}", *metrics, f"{run['peak_mb']:.0f}"])
        print(" ".join(rows[-1]), flush=True)
    return markdown(["vectors", "s", "largest error", "Recall@20", "NDCG@20", "peak MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(LIMITS), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=400)
    parser.add_argument("--data", default="lightgcn/gowalla")
    parser.add_argument("--vectors", nargs="*", choices=METHODS, help="compare these libraries; all if none is named")
    args = parser.parse_args()
    print(f"{hardware()}; {args.data}\n")
    if args.vectors is None:
        print(builds(args.data, args.device, args.neighbours, args.rounds))
    else:
        print("\n" + libraries(args.data, args.vectors or list(METHODS)))


if __name__ == "__main__":
    main()

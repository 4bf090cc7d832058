"""Measure recommendation at the size of Gowalla: exact top 20 against implicit, all users into Parquet, fold-in.

    python -m benchmarks.recommend --implicit PYTHON [--data deoscirec/gowalla] [--dim 64] [--rounds 3]

``PYTHON`` is the interpreter of an environment with implicit; without it, only dgcf is measured. Both rank the same
embeddings for the same users in batches, with seen items masked, on one thread, in separate processes that alternate.
Wall time depends on the load of the machine, so processor time is reported as well, and the ratio uses processor time.
The embeddings are the initial weights of a model after propagation: no side's time depends on what was learned.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import hardware, in_process, markdown, median
from dgcf.data import load
from dgcf.recommend import Recommender
from dgcf.recommend.capture import capture
from dgcf.train import build, resolve
from dgcf.train.trainer import ranked_embeddings

K, BATCH = 20, 1024

COMMON = """
import json, sys, time
import numpy as np
folder, users, k, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
"""

OURS = """
import dgcf
rec = dgcf.load(folder + "/saved.dgcf")
ids = rec.snapshot.users.texts[:users]
rec.recommend(ids[:32], k)
def run():
    return [rec.recommend(ids[start:start + batch], k)["item"] for start in range(0, users, batch)]
"""

IMPLICIT = """
import warnings
warnings.filterwarnings("ignore")
import scipy.sparse
from implicit.als import AlternatingLeastSquares
user_rows, item_rows = np.load(folder + "/users.npy"), np.load(folder + "/items.npy")
seen = scipy.sparse.load_npz(folder + "/seen.npz")
model = AlternatingLeastSquares(factors=user_rows.shape[1], num_threads=1)
model.user_factors, model.item_factors = user_rows, item_rows
model.recommend(np.arange(32), seen[:32], N=k)
def run():
    items = []
    for start in range(0, users, batch):
        part = np.arange(start, min(start + batch, users))
        items.append(model.recommend(part, seen[part], N=k, filter_already_liked_items=True)[0])
    return items
"""

TIMED = """
wall, processor = time.perf_counter(), time.process_time()
run()
print(json.dumps({"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}))
"""


ALL_USERS = """
import contextlib, os, sys, time
started = time.perf_counter()
from dgcf.cli import main
with contextlib.suppress(SystemExit):
    main()
# VmHWM counts this process only; getrusage would include the parent that it was forked from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
result = {"seconds": time.perf_counter() - started, "processor": time.process_time(), "peak": int(peak) / 1024,
          "file_mb": os.path.getsize(sys.argv[-1]) / 2**20}
"""


def prepare(name: str, dim: int, folder: Path) -> Recommender:
    """Return an untrained recommender, and write its embeddings and seen items as arrays."""
    dataset = load(name)
    recipe = resolve("dgcf", dataset=dataset.name, preset="paper", settings={"dim": dim, "layers": 3})
    model, propagation = build(dataset, recipe)
    ranking = ranked_embeddings(model, propagation, recipe.train)
    rec = Recommender.of(capture(model, propagation, ranking, dataset, recipe, {"seed": 0, "epochs": 0, "metrics": {}}))
    rec.save(folder / "saved.dgcf")
    import scipy.sparse

    np.save(folder / "users.npy", rec.snapshot.user_rows)
    np.save(folder / "items.npy", rec.snapshot.item_rows)
    scipy.sparse.save_npz(folder / "seen.npz", rec.snapshot.seen.to_scipy())
    return rec


def one_round(python: str, code: str, folder: Path, users: int) -> dict[str, float]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [python, "-c", COMMON + code + TIMED, str(folder), str(users), str(K), str(BATCH)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **one_thread})
    if process.returncode:
        raise SystemExit(f"a benchmark process failed:\n{process.stderr}")
    result: dict[str, float] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def compare(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return the users per second of each library, by wall and by processor time."""
    libraries = {"dgcf": (sys.executable, OURS)}
    if args.implicit:
        libraries["implicit"] = (args.implicit, IMPLICIT)
    times: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
    for _ in range(args.rounds):
        for name, (python, code) in libraries.items():
            times[name].append(one_round(python, code, folder, args.users))
    rows = []
    for name, rounds in times.items():
        wall, processor = (args.users / median([seconds[kind] for seconds in rounds]) for kind in ("wall", "processor"))
        rows.append({"name": name, "users/s, wall": wall, "users/s, processor": processor})
    return rows


def all_users(folder: Path) -> dict[str, Any]:
    """Measure ``dgcf recommend … --all`` in a separate process, including imports."""
    arguments = ("recommend", f"{folder}/saved.dgcf", "--all", "-k", str(K), "--out", f"{folder}/all.parquet")
    return in_process(ALL_USERS, *arguments)


def single_requests(rec: Recommender, n: int = 200) -> dict[str, float]:
    """Return the median milliseconds of single requests: fold-in alone, with its top 20, and an explanation."""
    snapshot = rec.snapshot
    users = np.flatnonzero(snapshot.train.user_degrees)[:: max(1, snapshot.n_users // n)][:n]
    likes = [[snapshot.items.texts[item] for item in snapshot.train[int(user)]] for user in users]
    rec.recommend_for(likes[0], K)
    requests = {
        "fold-in": lambda n: rec.folding.fold("user", snapshot.train[int(users[n])].astype(np.int64)),
        "fold-in and top 20": lambda n: rec.recommend_for(likes[n], K),
        "top 20 of a known user": lambda n: rec.recommend(snapshot.users.texts[int(users[n])], K),
        "explanation": lambda n: rec.explain(snapshot.users.texts[int(users[n])], snapshot.items.texts[0]),
    }
    times: dict[str, float] = {}
    for name, request in requests.items():
        milliseconds = []
        for number in range(len(users)):
            started = time.perf_counter()
            request(number)
            milliseconds.append(1000 * (time.perf_counter() - started))
        times[name] = median(milliseconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--implicit", metavar="PYTHON")
    parser.add_argument("--data", default="deoscirec/gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--users", type=int, default=6144)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rec = prepare(args.data, args.dim, folder)
        args.users = min(args.users, rec.snapshot.n_users)
        print(f"{rec.snapshot.n_users:,} users × {rec.snapshot.n_items:,} items, d {args.dim}, {hardware()}\n")
        rows = compare(args, folder)
        ours = rows[0]["users/s, processor"]
        table = [
            [
                row["name"],
                f"{row['users/s, wall']:,.0f}",
                f"{row['users/s, processor']:,.0f}",
                f"{ours / row['users/s, processor']:.2f}",
            ]
            for row in rows
        ]
        print(markdown(["top 20, one thread", "users/s, wall", "users/s, processor", "dgcf ÷ this"], table))
        whole = all_users(folder)
        print(f"\nall users into Parquet: {whole['seconds']:.1f} s, {whole['processor']:.1f} s of processor time")
        print(f"its peak memory: {whole['peak']:.0f} MB; the file: {whole['file_mb']:.1f} MB")
        for name, milliseconds in single_requests(rec).items():
            print(f"{name}: {milliseconds:.2f} ms (median)")


if __name__ == "__main__":
    main()

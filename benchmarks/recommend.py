"""Recommending at Gowalla's size: exact top 20 against implicit's, all users into Parquet, and fold-in.

    python -m benchmarks.recommend --implicit PYTHON [--data deoscirec/gowalla] [--dim 64] [--rounds 3]

``PYTHON`` is the interpreter of an environment that has implicit; without one, ours runs alone. Both rank the same
embeddings for the same users in batches, seen items hidden, on one thread, in processes of their own that alternate. On
a busy machine wall time is the neighbours'; so seconds of processor time are beside it, and the ratio is of those. The
weights are those that a model starts with, propagated: neither side's time depends on what was learned.
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
rec = dgcf.load(folder + "/kept.dgcf")
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
    found = []
    for start in range(0, users, batch):
        part = np.arange(start, min(start + batch, users))
        found.append(model.recommend(part, seen[part], N=k, filter_already_liked_items=True)[0])
    return found
"""

TIMED = """
wall, processor = time.perf_counter(), time.process_time()
run()
print(json.dumps({"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}))
"""


EVERYBODY = """
import contextlib, os, sys, time
began = time.perf_counter()
from dgcf.cli import main
with contextlib.suppress(SystemExit):
    main()
# The system's own count of this program: getrusage would also count the parent that it was forked from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
result = {"seconds": time.perf_counter() - began, "processor": time.process_time(), "peak": int(peak) / 1024,
          "file_mb": os.path.getsize(sys.argv[-1]) / 2**20}
"""


def prepare(name: str, dim: int, folder: Path) -> Recommender:
    """A recommender that nobody trained, and its parts for others to read."""
    dataset = load(name)
    recipe = resolve("dgcf", dataset=dataset.name, settings={"dim": dim, "layers": 3})
    model, propagation = build(dataset, recipe)
    found = ranked_embeddings(model, propagation, recipe.train)
    rec = Recommender.of(capture(model, propagation, found, dataset, recipe, {"seed": 0, "epochs": 0, "metrics": {}}))
    rec.save(folder / "kept.dgcf")
    import scipy.sparse

    np.save(folder / "users.npy", rec.snapshot.user_rows)
    np.save(folder / "items.npy", rec.snapshot.item_rows)
    scipy.sparse.save_npz(folder / "seen.npz", rec.snapshot.seen.to_scipy())
    return rec


def one_round(python: str, code: str, folder: Path, users: int) -> dict[str, float]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    words = [python, "-c", COMMON + code + TIMED, str(folder), str(users), str(K), str(BATCH)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **single})
    if done.returncode:
        raise SystemExit(f"a benchmark process failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def compare(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Users a second, by wall and by processor time."""
    contestants = {"dgcf": (sys.executable, OURS)}
    if asked.implicit:
        contestants["implicit"] = (asked.implicit, IMPLICIT)
    times: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for _ in range(asked.rounds):
        for name, (python, code) in contestants.items():
            times[name].append(one_round(python, code, folder, asked.users))
    rows = []
    for name, found in times.items():
        wall, processor = (asked.users / median([t[kind] for t in found]) for kind in ("wall", "processor"))
        rows.append({"name": name, "users a second, wall": wall, "users a second, processor": processor})
    return rows


def everybody(folder: Path) -> dict[str, Any]:
    """``dgcf recommend … --all`` in a process of its own, imports included."""
    words = ("recommend", f"{folder}/kept.dgcf", "--all", "-k", str(K), "--out", f"{folder}/all.parquet")
    return in_process(EVERYBODY, *words)


def single_answers(rec: Recommender, n: int = 200) -> dict[str, float]:
    """Milliseconds of one answer: a stranger's fold-in alone, with its top 20, and an explanation."""
    known = rec.snapshot
    users = np.flatnonzero(known.train.user_degrees)[:: max(1, known.n_users // n)][:n]
    likes = [[known.items.texts[item] for item in known.train[int(user)]] for user in users]
    rec.recommend_for(likes[0], K)
    answers = {
        "fold-in": lambda n: rec.folding.fold("user", known.train[int(users[n])].astype(np.int64)),
        "fold-in and top 20": lambda n: rec.recommend_for(likes[n], K),
        "top 20 of a known user": lambda n: rec.recommend(known.users.texts[int(users[n])], K),
        "explanation": lambda n: rec.explain(known.users.texts[int(users[n])], known.items.texts[0]),
    }
    times: dict[str, float] = {}
    for name, answer in answers.items():
        took = []
        for number in range(len(users)):
            began = time.perf_counter()
            answer(number)
            took.append(1000 * (time.perf_counter() - began))
        times[name] = median(took)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--implicit", metavar="PYTHON")
    parser.add_argument("--data", default="deoscirec/gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--users", type=int, default=6144)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rec = prepare(asked.data, asked.dim, folder)
        asked.users = min(asked.users, rec.snapshot.n_users)
        print(f"{rec.snapshot.n_users:,} users × {rec.snapshot.n_items:,} items, d {asked.dim}, {hardware()}\n")
        rows = compare(asked, folder)
        ours = rows[0]["users a second, processor"]
        table = [
            [
                row["name"],
                f"{row['users a second, wall']:,.0f}",
                f"{row['users a second, processor']:,.0f}",
                f"{ours / row['users a second, processor']:.2f}",
            ]
            for row in rows
        ]
        print(markdown(["top 20, one thread", "users/s, wall", "users/s, processor", "ours ÷ this"], table))
        whole = everybody(folder)
        print(f"\nall users into Parquet: {whole['seconds']:.1f} s, {whole['processor']:.1f} s of processor time")
        print(f"its peak of memory: {whole['peak']:.0f} MB; the file: {whole['file_mb']:.1f} MB")
        for name, milliseconds in single_answers(rec).items():
            print(f"{name}: {milliseconds:.2f} ms (median)")


if __name__ == "__main__":
    main()

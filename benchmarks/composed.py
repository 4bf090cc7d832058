"""Measure a composed ranking at the size of Gowalla: evaluation, one user, all users, and the artefact.

    python -m benchmarks.composed [--data deoscirec/gowalla] [--dim 64] [--neighbours 400] [--rounds 5]

The trained part has initial weights; the filter is that of the data (BSPM, rank 448). No time depends on what was
learned, except through the spread of the scores. ``LIMITS`` must hold on an idle machine. Evaluation with and without
the filter alternates, on all threads; the single user is measured on one thread in a process of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import hardware, in_process, markdown, median
from benchmarks.recommend import K, all_users
from dgcf.data import Dataset, load
from dgcf.evaluate.evaluator import Evaluator
from dgcf.recommend import Recommender
from dgcf.recommend.capture import capture
from dgcf.train import build, resolve
from dgcf.train.blend.fit import Blender
from dgcf.train.trainer import ranked_embeddings

LIMITS = {
    "evaluation, times that without": 2.5,
    "one user, ms": 3.0,
    "all users, s": 25.0,
    "all users, peak MB": 1229.0,
}
LIMITS |= {"artefact, MB": 200.0}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

ONE_USER = """
import sys, time
import dgcf
path, k, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rec = dgcf.load(path)
ids = rec.snapshot.users.texts[:: max(1, rec.snapshot.n_users // n)][:n]
rec.recommend(ids[0], k)
milliseconds = []
for one in ids:
    started = time.perf_counter()
    rec.recommend(one, k)
    milliseconds.append(1000 * (time.perf_counter() - started))
milliseconds.sort()
result = {"median": milliseconds[len(milliseconds) // 2], "p95": milliseconds[int(0.95 * len(milliseconds))]}
"""


def composed_recommender(dataset: Dataset, dim: int, neighbours: int) -> tuple[Any, Any, Recommender]:
    """Return the trained part, the composed ranking and its recommender, with initial weights."""
    settings = {"dim": dim, "layers": 3, "blend": "bspm(rank=448)", "blend_weights": "1"}
    recipe = resolve("dgcf", dataset=dataset, settings={**settings, "blend_neighbours": neighbours})
    model, propagation = build(dataset, recipe)
    alone = ranked_embeddings(model, propagation, recipe.train)
    composed = Blender(recipe.blend, dataset.train, recipe.train.metric).fit(alone).compose(alone, dataset.train)
    about = {"seed": 0, "epochs": 0, "metrics": {}}
    return alone, composed, Recommender.of(capture(model, propagation, composed, dataset, recipe, about))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--neighbours", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    dataset = load(args.data)
    alone, composed, rec = composed_recommender(dataset, args.dim, args.neighbours)
    evaluator = Evaluator(dataset, split="test", ks=(K,))
    seconds: dict[str, list[float]] = {"alone": [], "composed": []}
    for _ in range(args.rounds + 1):  # the first round is a warm-up
        for name, ranking in (("alone", alone), ("composed", composed)):
            started = time.perf_counter()
            evaluator.evaluate(ranking)
            seconds[name].append(time.perf_counter() - started)
    without, with_filter = (median(seconds[name][1:]) for name in ("alone", "composed"))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rec.save(folder / "saved.dgcf")
        one = in_process(ONE_USER, str(folder / "saved.dgcf"), str(K), "500", environment=ONE_THREAD)
        whole = all_users(folder)
        measured = {
            "evaluation, times that without": with_filter / without,
            "one user, ms": one["median"],
            "all users, s": whole["seconds"],
            "all users, peak MB": whole["peak"],
            "artefact, MB": (folder / "saved.dgcf").stat().st_size / 1e6,
        }
    size = f"{dataset.n_users:,} users × {dataset.n_items:,} items, d {args.dim}, {args.neighbours} neighbours"
    print(f"{size}, {hardware()}")
    print(f"evaluation: {without:.2f} s without, {with_filter:.2f} s with; one user: p95 {one['p95']:.2f} ms\n")
    rows = [
        [name, f"{value:.2f}", f"{LIMITS[name]:g}", "within" if value <= LIMITS[name] else "ABOVE"]
        for name, value in measured.items()
    ]
    print(markdown(["composed ranking", "measured", "limit", ""], rows))


if __name__ == "__main__":
    main()

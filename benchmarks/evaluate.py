"""Measure full-ranking evaluation at the size of Gowalla, against the usual loops in the same run.

    python benchmarks/evaluate.py [--users 29858] [--items 40981] [--threads 1] [--device cpu] [--json]

The baselines compute the same values (checked) from the same embeddings and masks. They score in batches, mask user by
user, order every row and look up the hits. `torch sort` and `numpy sort` sort in full. `torch topk` does not, and its
order of ties is unspecified, so it is not an exact evaluator. The baselines rank only the first `--baseline-users`
users, because sorting for all takes minutes. Times are medians per user after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from dgcf.data.pairs import Pairs
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.metrics import hit_matrix, ndcg
from dgcf.models import Embeddings

K, BATCH = 20, 256


def synthetic_pairs(n_users: int, n_items: int, mean: float, seed: int) -> Pairs:
    """Return random pairs with ``mean`` pairs per user; item popularity falls as 1/rank, as in real data."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_items + 1)
    users = np.repeat(np.arange(n_users), 1 + rng.poisson(mean - 1, n_users))
    return Pairs.from_indices(users, rng.choice(n_items, len(users), p=weight / weight.sum()), n_users, n_items)


def ndcg_in_batches(
    scorer: Embeddings, splits: SimpleNamespace, users: np.ndarray, order: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return the NDCG of each user from batches of scores, masked user by user, then ordered."""
    lists = []
    for start in range(0, len(users), BATCH):
        part = users[start : start + BATCH]
        scores = scorer.scores(torch.from_numpy(part))
        for row, user in enumerate(part):
            scores[row, torch.from_numpy(splits.train[user]).long()] = float("-inf")
        lists.append(order(scores))
    hits = hit_matrix(np.concatenate(lists), users, splits.test)
    return ndcg(hits, splits.test.user_degrees[users], K)


def torch_topk(scores: torch.Tensor) -> np.ndarray:
    return scores.topk(K, dim=1).indices.cpu().numpy()


def torch_sort(scores: torch.Tensor) -> np.ndarray:
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :K].cpu().numpy()


def numpy_sort(scores: torch.Tensor) -> np.ndarray:
    return np.argsort(-scores.cpu().numpy(), axis=1, kind="stable")[:, :K]


def timed(run: Callable[[], np.ndarray], repeats: int, device: str) -> tuple[float, np.ndarray]:
    """Return the median seconds per user of ``repeats`` runs after a warm-up, and the result of the last run."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = run()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / len(result))
    return statistics.median(seconds[1:]), result


def synthetic_model(train: Pairs, dim: int, device: str) -> Embeddings:
    """Return random embeddings whose last column is popularity, so that the lists resemble those of a model."""
    torch.manual_seed(0)
    popular = torch.from_numpy(np.log1p(train.item_degrees)).float()[:, None]
    items = torch.cat([torch.randn(train.n_items, dim - 1) * 0.1, popular], 1)
    users = torch.cat([torch.randn(train.n_users, dim - 1), torch.ones(train.n_users, 1)], 1)
    return Embeddings(users.to(device), items.to(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=29_858)
    parser.add_argument("--baseline-users", type=int, default=1_024)
    parser.add_argument("--items", type=int, default=40_981)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    train = synthetic_pairs(args.users, args.items, 24.0, seed=0)
    test = synthetic_pairs(args.users, args.items, 7.0, seed=1)
    splits = SimpleNamespace(train=train, validation=Pairs.empty(args.users, args.items), test=test)
    scorer = synthetic_model(train, args.dim, args.device)
    evaluator = Evaluator(splits, split="test", ks=(K,))
    baseline_users = evaluator.user_idx[: args.baseline_users]
    runs: dict[str, Callable[[], np.ndarray]] = {
        "dgcf": lambda: evaluator.evaluate(scorer).value(f"ndcg@{K}"),
        "torch topk": lambda: ndcg_in_batches(scorer, splits, baseline_users, torch_topk),
        "torch sort": lambda: ndcg_in_batches(scorer, splits, baseline_users, torch_sort),
        "numpy sort": lambda: ndcg_in_batches(scorer, splits, baseline_users, numpy_sort),
    }
    timings = {name: timed(run, args.repeats, args.device) for name, run in runs.items()}
    ours, result = timings["dgcf"]
    for name, (_, other) in timings.items():
        if abs(other.mean() - result[: len(other)].mean()) > 1e-6:
            raise SystemExit(f"{name} gives NDCG {other.mean()}, expected {result[: len(other)].mean()}")
    rows = [
        {"evaluator": name, "us_per_user": round(seconds * 1e6, 1), "ratio": round(seconds / ours, 2)}
        for name, (seconds, _) in timings.items()
    ]
    machine = torch.cuda.get_device_name() if args.device != "cpu" else platform.processor() or "cpu"
    description = {**vars(args), "hardware": machine, "torch": torch.__version__, "seconds": ours * len(result)}
    if args.json:
        print(json.dumps({**description, "results": rows}))
        return
    print(f"{args.users:,} users × {args.items:,} items, d {args.dim}, K {K}, {args.threads} thread(s), {machine}")
    for row in rows:
        print(f"{row['evaluator']:<12}{row['us_per_user']:>10.1f} µs/user{row['ratio']:>8.2f} ×")
    print(f"all users: {description['seconds']:.2f} s")


if __name__ == "__main__":
    main()

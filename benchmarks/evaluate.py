"""Full-ranking evaluation at Gowalla's size: the evaluator against the usual loops, in the same run.

    python benchmarks/evaluate.py [--users 29858] [--items 40981] [--threads 1] [--device cpu] [--json]

The rivals compute the same values (checked) from the same embeddings and masks: they score in batches, mask user by
user, order every row, and look the hits up. `torch sort` and `numpy sort` sort in full; `torch topk` does not, and
breaks ties as it likes, so it is no exact evaluator. The rivals rank only the first `--rival-users` users, since
sorting for all takes minutes. Times are medians after a warm-up, per user.
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


def made_up(n_users: int, n_items: int, mean: float, seed: int) -> Pairs:
    """Random pairs with Gowalla's mean number per user; popularity falls as 1/rank, as real items' does."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_items + 1)
    users = np.repeat(np.arange(n_users), 1 + rng.poisson(mean - 1, n_users))
    return Pairs.from_indices(users, rng.choice(n_items, len(users), p=weight / weight.sum()), n_users, n_items)


def in_batches(
    scorer: Embeddings, splits: SimpleNamespace, users: np.ndarray, order: Callable[..., np.ndarray]
) -> np.ndarray:
    """NDCG per user from batches of scores, masked user by user, then ordered."""
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
    """Median seconds per user of ``repeats`` runs after one to warm up, and what the last one gave."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = run()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / len(result))
    return statistics.median(seconds[1:]), result


def made_up_model(train: Pairs, dim: int, device: str) -> Embeddings:
    """Random embeddings whose last column is popularity, so that the lists look like a model's."""
    torch.manual_seed(0)
    popular = torch.from_numpy(np.log1p(train.item_degrees)).float()[:, None]
    items = torch.cat([torch.randn(train.n_items, dim - 1) * 0.1, popular], 1)
    users = torch.cat([torch.randn(train.n_users, dim - 1), torch.ones(train.n_users, 1)], 1)
    return Embeddings(users.to(device), items.to(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=29_858)
    parser.add_argument("--rival-users", type=int, default=1_024)
    parser.add_argument("--items", type=int, default=40_981)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)

    train = made_up(asked.users, asked.items, 24.0, seed=0)
    test = made_up(asked.users, asked.items, 7.0, seed=1)
    splits = SimpleNamespace(train=train, validation=Pairs.empty(asked.users, asked.items), test=test)
    scorer = made_up_model(train, asked.dim, asked.device)
    evaluator = Evaluator(splits, split="test", ks=(K,))
    some = evaluator.user_idx[: asked.rival_users]
    runs: dict[str, Callable[[], np.ndarray]] = {
        "dgcf": lambda: evaluator.evaluate(scorer).value(f"ndcg@{K}"),
        "torch topk": lambda: in_batches(scorer, splits, some, torch_topk),
        "torch sort": lambda: in_batches(scorer, splits, some, torch_sort),
        "numpy sort": lambda: in_batches(scorer, splits, some, numpy_sort),
    }
    told = {name: timed(run, asked.repeats, asked.device) for name, run in runs.items()}
    ours, result = told["dgcf"]
    for name, (_, other) in told.items():
        if abs(other.mean() - result[: len(other)].mean()) > 1e-6:
            raise SystemExit(f"{name} gives other numbers: {other.mean()} against {result[: len(other)].mean()}")
    rows = [
        {"evaluator": name, "us_per_user": round(seconds * 1e6, 1), "ratio": round(seconds / ours, 2)}
        for name, (seconds, _) in told.items()
    ]
    where = torch.cuda.get_device_name() if asked.device != "cpu" else platform.processor() or "cpu"
    about = {**vars(asked), "hardware": where, "torch": torch.__version__, "seconds": ours * len(result)}
    if asked.json:
        print(json.dumps({**about, "results": rows}))
        return
    print(f"{asked.users:,} users × {asked.items:,} items, d {asked.dim}, K {K}, {asked.threads} thread(s), {where}")
    for row in rows:
        print(f"{row['evaluator']:<12}{row['us_per_user']:>10.1f} µs/user{row['ratio']:>8.2f} ×")
    print(f"all users: {about['seconds']:.2f} s")


if __name__ == "__main__":
    main()

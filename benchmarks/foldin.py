"""Measure the quality of fold-in, against the trained ranking, training with the same users, and popularity.

    python -m benchmarks.foldin [deoscirec/ml-100k …] [--set epochs=200] [--device cpu] [--draws 5]

1. Train on all users. For 200 random users, fold in a new user with the same training items. Measure the overlap of the
   top 20 of the new user with the trained top 20 of the original user.
2. Train again without 120 users. Fold them in with their training items, and measure Recall@20 on their test items.
   Compare with the first model, which was trained with these users, and with the most popular items.

Training items are masked in all rankings. Both models are trained with the same settings; the epoch is selected on the
validation pairs of users in the training data. One draw of 120 users moves a ratio by ±.06, so there are several draws,
each with its own users and seed, and the means are compared.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.measure import hardware, markdown
from dgcf.config import parse_settings
from dgcf.data import Dataset, Pairs, load
from dgcf.evaluate.metrics import hit_matrix, recall
from dgcf.random import permutation
from dgcf.ranking.topk import EmbeddingIndex, top_k
from dgcf.recommend import Recommender

K, TRAINED, HELD_OUT = 20, 200, 120


def without(dataset: Dataset, users: np.ndarray) -> Dataset:
    """Return the dataset without the pairs of these users; their indices remain."""

    def kept(pairs: Pairs) -> Pairs:
        others = ~np.isin(pairs.user_idx, users)
        return Pairs.from_indices(pairs.user_idx[others], pairs.indices[others], pairs.n_users, pairs.n_items)

    return replace(dataset, train=kept(dataset.train), validation=kept(dataset.validation), test=kept(dataset.test))


def rows_of(pairs: Pairs, users: np.ndarray) -> Pairs:
    """Return the items of the given users, one row each."""
    rows = [pairs[user] for user in users.tolist()]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Pairs(indptr, np.concatenate(rows), pairs.n_items)


def top(rec: Recommender, rows: np.ndarray, hidden: Pairs) -> np.ndarray:
    return top_k(EmbeddingIndex(rec.snapshot.item_rows), rows, hidden, K).item_idx


def fold_in(rec: Recommender, train: Pairs, users: np.ndarray) -> tuple[np.ndarray, float]:
    """Return (n, dim) fold-ins with the users' training items, and the median milliseconds of one fold-in."""
    rec.folding.fold("user", train[int(users[0])].astype(np.int64))  # builds the structures that later fold-ins share
    rows, times = [], []
    for user in users.tolist():
        started = time.perf_counter()
        rows.append(rec.folding.fold("user", train[user].astype(np.int64)).ranked)
        times.append(time.perf_counter() - started)
    return np.stack(rows), 1000 * float(np.median(times))


def measure(name: str, model: str, settings: dict[str, Any], device: str, seed: int) -> dict[str, Any]:
    dataset = load(name)
    eligible = np.flatnonzero((dataset.train.user_degrees > 0) & (dataset.test.user_degrees > 0))
    eligible = eligible[permutation(seed, "benchmark/users", len(eligible))]
    trained, held_out = eligible[:TRAINED], eligible[-HELD_OUT:]

    def fit(data: Dataset) -> Recommender:
        return Recommender(model, preset="paper", seed=seed, device=device, **settings).fit(data)

    whole, part = fit(dataset), fit(without(dataset, held_out))
    seen = rows_of(dataset.train, trained)
    new_users, _ = fold_in(whole, dataset.train, trained)
    trained_lists, folded_lists = top(whole, whole.snapshot.user_rows[trained], seen), top(whole, new_users, seen)
    overlap = np.mean([len(np.intersect1d(*lists)) / K for lists in zip(trained_lists, folded_lists, strict=True)])

    hidden, relevant = rows_of(dataset.train, held_out), rows_of(dataset.test, held_out)
    new_users, milliseconds = fold_in(part, dataset.train, held_out)
    popular = part.snapshot.train.item_degrees.astype(np.float32)[:, None]
    lists = {
        "fold-in": top(part, new_users, hidden),
        "trained with them": top(whole, whole.snapshot.user_rows[held_out], hidden),
        "popularity": top_k(EmbeddingIndex(popular), np.ones((len(held_out), 1), np.float32), hidden, K).item_idx,
    }
    rows = np.arange(len(held_out))
    recalls = {
        method: float(recall(hit_matrix(items, rows, relevant), relevant.user_degrees, K).mean())
        for method, items in lists.items()
    }
    return {
        "data": name,
        "overlap": float(overlap),
        "recall@20": recalls,
        "milliseconds": milliseconds,
        "epochs": [rec.snapshot.about["epochs"] for rec in (whole, part)],
    }


def mean_of(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over draws, and the ratios of the means."""
    recalls = {
        method: float(np.mean([draw["recall@20"][method] for draw in draws])) for method in draws[0]["recall@20"]
    }
    return {
        "data": draws[0]["data"],
        "overlap": float(np.mean([draw["overlap"] for draw in draws])),
        "recall@20": recalls,
        "fold-in / trained": recalls["fold-in"] / recalls["trained with them"],
        "fold-in / popularity": recalls["fold-in"] / recalls["popularity"],
        "milliseconds": float(np.median([draw["milliseconds"] for draw in draws])),
        "epochs": [epochs for draw in draws for epochs in draw["epochs"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["deoscirec/ml-100k"])
    parser.add_argument("--model", default="dgcf")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = parse_settings(args.settings)
    results = [
        mean_of([measure(name, args.model, settings, args.device, seed) for seed in range(args.draws)])
        for name in args.data
    ]
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() and args.device != "cpu" else hardware()
    if args.json:
        print(json.dumps({"model": args.model, "settings": settings, "draws": args.draws, "results": results}))
        return
    print(f"{args.model}, preset paper, {' '.join(args.settings)}, {args.draws} draws, {machine}\n")
    header = ["data", "overlap", "fold-in", "trained", "popularity", "÷ trained", "÷ popularity", "ms", "epochs"]
    rows = [
        [
            result["data"],
            f"{result['overlap']:.3f}",
            *(f"{value:.4f}" for value in result["recall@20"].values()),
            f"{result['fold-in / trained']:.3f}",
            f"{result['fold-in / popularity']:.2f}",
            f"{result['milliseconds']:.2f}",
            f"{min(result['epochs'])}–{max(result['epochs'])}",
        ]
        for result in results
    ]
    print(markdown(header, rows))


if __name__ == "__main__":
    main()

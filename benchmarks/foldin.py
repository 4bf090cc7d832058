"""How good fold-in is: against the trained ranking, against training with the same users, and against popularity.

    python -m benchmarks.foldin [deoscirec/ml-100k …] [--set epochs=200] [--device cpu] [--draws 5]

1. Train on all users. For 200 random ones, fold a stranger with their training items in: how many of the stranger's
   top 20 are in the user's own trained top 20?
2. Train again without 120 users. Fold them in with their training items, and measure Recall@20 on their test items;
   beside it that of the first model, which was trained with them, and that of the most popular items.

Training items are hidden in all rankings. Both models are trained with the same settings; the epoch is picked on
validation pairs of users that the model knows. 120 users are few: one draw of them moves a ratio by ±.06, so there are
several draws, each with its own users and seed, and the means are compared.
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
    """The dataset as if these users had never been there; their indices stay, without a pair."""

    def kept(pairs: Pairs) -> Pairs:
        others = ~np.isin(pairs.user_idx, users)
        return Pairs.from_indices(pairs.user_idx[others], pairs.indices[others], pairs.n_users, pairs.n_items)

    return replace(dataset, train=kept(dataset.train), validation=kept(dataset.validation), test=kept(dataset.test))


def rows_of(pairs: Pairs, users: np.ndarray) -> Pairs:
    """The items of some users, one row each."""
    rows = [pairs[user] for user in users.tolist()]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Pairs(indptr, np.concatenate(rows), pairs.n_items)


def top(rec: Recommender, rows: np.ndarray, hidden: Pairs) -> np.ndarray:
    return top_k(EmbeddingIndex(rec.snapshot.item_rows), rows, hidden, K).item_idx


def folded(rec: Recommender, train: Pairs, users: np.ndarray) -> tuple[np.ndarray, float]:
    """(n, dim) strangers with the users' training items, and the median milliseconds that one takes."""
    rec.folding.fold("user", train[int(users[0])].astype(np.int64))  # builds what all later ones share
    rows, times = [], []
    for user in users.tolist():
        began = time.perf_counter()
        rows.append(rec.folding.fold("user", train[user].astype(np.int64)).ranked)
        times.append(time.perf_counter() - began)
    return np.stack(rows), 1000 * float(np.median(times))


def measure(name: str, model: str, settings: dict[str, Any], device: str, seed: int) -> dict[str, Any]:
    dataset = load(name)
    able = np.flatnonzero((dataset.train.user_degrees > 0) & (dataset.test.user_degrees > 0))
    able = able[permutation(seed, "benchmark/users", len(able))]
    trained, held_out = able[:TRAINED], able[-HELD_OUT:]

    def fit(data: Dataset) -> Recommender:
        return Recommender(model, preset="paper", seed=seed, device=device, **settings).fit(data)

    whole, part = fit(dataset), fit(without(dataset, held_out))
    seen = rows_of(dataset.train, trained)
    strangers, _ = folded(whole, dataset.train, trained)
    own, theirs = top(whole, whole.snapshot.user_rows[trained], seen), top(whole, strangers, seen)
    overlap = np.mean([len(np.intersect1d(*lists)) / K for lists in zip(own, theirs, strict=True)])

    hidden, relevant = rows_of(dataset.train, held_out), rows_of(dataset.test, held_out)
    strangers, milliseconds = folded(part, dataset.train, held_out)
    popular = part.snapshot.train.item_degrees.astype(np.float32)[:, None]
    lists = {
        "fold-in": top(part, strangers, hidden),
        "trained with them": top(whole, whole.snapshot.user_rows[held_out], hidden),
        "popularity": top_k(EmbeddingIndex(popular), np.ones((len(held_out), 1), np.float32), hidden, K).item_idx,
    }
    everyone = np.arange(len(held_out))
    recalls = {
        how: float(recall(hit_matrix(found, everyone, relevant), relevant.user_degrees, K).mean())
        for how, found in lists.items()
    }
    return {
        "data": name,
        "overlap": float(overlap),
        "recall@20": recalls,
        "milliseconds": milliseconds,
        "epochs": [rec.snapshot.about["epochs"] for rec in (whole, part)],
    }


def mean_of(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """The means over draws, and the ratios of the means."""
    recalls = {how: float(np.mean([draw["recall@20"][how] for draw in draws])) for how in draws[0]["recall@20"]}
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
    asked = parser.parse_args()
    settings = parse_settings(asked.settings)
    results = [
        mean_of([measure(name, asked.model, settings, asked.device, seed) for seed in range(asked.draws)])
        for name in asked.data
    ]
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() and asked.device != "cpu" else hardware()
    if asked.json:
        print(json.dumps({"model": asked.model, "settings": settings, "draws": asked.draws, "results": results}))
        return
    print(f"{asked.model}, preset paper, {' '.join(asked.settings)}, {asked.draws} draws, {machine}\n")
    header = ["data", "overlap", "fold-in", "trained", "popularity", "÷ trained", "÷ popularity", "ms", "epochs"]
    rows = [
        [
            found["data"],
            f"{found['overlap']:.3f}",
            *(f"{value:.4f}" for value in found["recall@20"].values()),
            f"{found['fold-in / trained']:.3f}",
            f"{found['fold-in / popularity']:.2f}",
            f"{found['milliseconds']:.2f}",
            f"{min(found['epochs'])}–{max(found['epochs'])}",
        ]
        for found in results
    ]
    print(markdown(header, rows))


if __name__ == "__main__":
    main()

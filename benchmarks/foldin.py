"""Measure the quality of fold-in, against the trained ranking, training with the same users, and popularity.

    python -m benchmarks.foldin [deoscirec/ml-100k …] [--preset paper] [--set epochs=200] [--device cpu] [--draws 5]

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
from dgcf.evaluate.metrics import Metric, hit_matrix, recall
from dgcf.random import permutation
from dgcf.ranking.topk import EmbeddingIndex, one_query, top_k
from dgcf.recommend import Recommender

K, TRAINED, HELD_OUT = 20, 200, 120


def without(dataset: Dataset, users: np.ndarray) -> Dataset:
    """Return the dataset without the pairs of these users; their indices remain."""

    def kept(pairs: Pairs) -> Pairs:
        others = ~np.isin(pairs.user_idx, users)
        return Pairs.from_indices(pairs.user_idx[others], pairs.indices[others], pairs.n_users, pairs.n_items)

    return replace(dataset, train=kept(dataset.train), validation=kept(dataset.validation), test=kept(dataset.test))


def drawn_users(dataset: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 200 random users, and 120 to train without; all have training and test items."""
    eligible = np.flatnonzero((dataset.train.user_degrees > 0) & (dataset.test.user_degrees > 0))
    eligible = eligible[permutation(seed, "benchmark/users", len(eligible))]
    return eligible[:TRAINED], eligible[-HELD_OUT:]


def fit_both(unfitted: Recommender, dataset: Dataset, held_out: np.ndarray) -> tuple[Recommender, Recommender]:
    """Return the recommender trained on all users, and trained without the held-out ones."""
    whole, part = (Recommender(**unfitted.get_params()) for _ in range(2))
    return whole.fit(dataset), part.fit(without(dataset, held_out))


def trained_lists(rec: Recommender, users: np.ndarray, hidden: Pairs) -> np.ndarray:
    """Return the top 20 of users of the training data, (n, 20)."""
    ranking = rec.snapshot.ranking
    return top_k(ranking.index(), ranking.queries(users), hidden, K).item_idx


def folded_lists(rec: Recommender, items: Pairs) -> tuple[np.ndarray, float]:
    """Return the top 20 of new users with a row of ``items`` each, (n, 20), and the median milliseconds of a fold-in.

    The items that a new user has are not ranked, as in ``recommend_for``.
    """
    index, users = rec.snapshot.ranking.index(), rec._prepared.users
    users.query(items[0].astype(np.int64), None)  # builds the structures that later fold-ins share
    lists, times = [], []
    for user in range(items.n_users):
        own = items[user].astype(np.int64)
        started = time.perf_counter()
        query = users.query(own, None)
        times.append(time.perf_counter() - started)
        lists.append(top_k(index, query, one_query(own, items.n_items), K).item_idx[0])
    return np.stack(lists), 1000 * float(np.median(times))


def held_out_lists(
    whole: Recommender, part: Recommender, train: Pairs, held_out: np.ndarray
) -> tuple[dict[str, np.ndarray], float]:
    """Return the top 20 of the held-out users by fold-in and by training, and the milliseconds of a fold-in."""
    hidden = train.take(held_out)
    folded, milliseconds = folded_lists(part, hidden)
    return {"fold-in": folded, "trained with them": trained_lists(whole, held_out, hidden)}, milliseconds


def mean_metric(metric: Metric, lists: np.ndarray, relevant: Pairs) -> float:
    """Return the mean of a metric at 20 over lists, whose relevant items are the rows of ``relevant``."""
    hits = hit_matrix(lists, np.arange(len(lists)), relevant)
    return float(metric(hits, relevant.user_degrees, K).mean())


def measure(name: str, unfitted: Recommender, seed: int) -> dict[str, Any]:
    """Return the results of one draw of users."""
    dataset = load(name)
    trained, held_out = drawn_users(dataset, seed)
    whole, part = fit_both(unfitted, dataset, held_out)

    seen = dataset.train.take(trained)
    pairs = zip(trained_lists(whole, trained, seen), folded_lists(whole, seen)[0], strict=True)
    overlap = np.mean([len(np.intersect1d(*lists)) / K for lists in pairs])

    lists, milliseconds = held_out_lists(whole, part, dataset.train, held_out)
    hidden, relevant = dataset.train.take(held_out), dataset.test.take(held_out)
    popular = part.snapshot.train.item_degrees.astype(np.float32)[:, None]
    everybody = np.ones((len(held_out), 1), np.float32)
    lists["popularity"] = top_k(EmbeddingIndex(popular), everybody, hidden, K).item_idx
    return {
        "data": name,
        "overlap": float(overlap),
        "recall@20": {method: mean_metric(recall, items, relevant) for method, items in lists.items()},
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
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = parse_settings(args.settings)

    def draw(name: str, seed: int) -> dict[str, Any]:
        unfitted = Recommender(args.model, preset=args.preset, seed=seed, device=args.device, **settings)
        return measure(name, unfitted, seed)

    results = [mean_of([draw(name, seed) for seed in range(args.draws)]) for name in args.data]
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() and args.device != "cpu" else hardware()
    if args.json:
        about = {"model": args.model, "preset": args.preset, "settings": settings, "draws": args.draws}
        print(json.dumps({**about, "results": results}))
        return
    print(f"{args.model}, preset {args.preset}, {' '.join(args.settings)}, {args.draws} draws, {machine}\n")
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

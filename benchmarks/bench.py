"""Check for slow-downs: compare dgcf with plain implementations, as ratios of processor time.

    python -m benchmarks.bench [--scale 1.0] [--rounds 5] [--record]

Data is synthetic, everything runs on one thread, the two sides alternate, and the result is the median of their ratios.
It is therefore nearly independent of load and hardware. The command fails if a ratio falls 20 % below the one in
``recorded.json``; ``--record`` writes the ratios of this run there. Baselines that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.evaluate import K, ndcg_in_batches, synthetic_model, synthetic_pairs, torch_topk
from benchmarks.measure import hardware, markdown, median
from dgcf.data.interactions import RatingFilter
from dgcf.data.pairs import Pairs
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.splits import Split
from dgcf.evaluate.evaluator import Evaluator
from dgcf.graph import Propagation, build_propagation
from dgcf.models import entry
from dgcf.ranking.topk import EmbeddingIndex, top_k
from dgcf.train import TrainConfig, Trainer
from dgcf.train.loop import TrainingLoop
from dgcf.train.losses import sampled_softmax

RECORDED = Path(__file__).with_name("recorded.json")
SLACK = 0.8
"""The fraction of a recorded ratio below which a benchmark fails."""
USERS, ITEMS, PER_USER = 4_600, 1_850, 32.0  # about the size of ML1M in the authors' split
DIM, LAYERS, BATCH = 64, 3, 2048
SHARED, TEMPERATURE = 1024, 0.15
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Run = Callable[[], object]


@dataclass(frozen=True)
class Comparison:
    """The same work done by dgcf and by a baseline."""

    name: str
    baseline_name: str
    ours: Run
    baseline: Run

    def ratio(self, rounds: int) -> float:
        """Return the baseline's processor time divided by ours: the median over rounds, after one warm-up round."""
        ratios = [_processor_seconds(self.baseline) / _processor_seconds(self.ours) for _ in range(rounds + 1)]
        return median(ratios[1:])


def _processor_seconds(run: Run) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def comparisons(scale: float, folder: Path) -> Iterator[Comparison]:
    """Yield the comparisons whose baselines are installed; ``scale`` is the size of the synthetic data."""
    pairs = synthetic_pairs(max(50, int(USERS * scale)), max(50, int(ITEMS * scale)), PER_USER, seed=0)
    plain = PlainLightGCN(pairs)
    light = build_propagation(pairs.to_scipy(), entry("lightgcn").config.spec())
    x = torch.randn(light.n_nodes, DIM)
    repeats = range(20)
    yield Comparison(
        "sparse product",
        "torch CSR",
        lambda: [light.apply(x) for _ in repeats],
        lambda: [plain.matrix @ x for _ in repeats],
    )
    yield Comparison("LightGCN, an epoch", "torch CSR and autograd", epoch_of("lightgcn", light, pairs), plain.epoch)
    deep = build_propagation(pairs.to_scipy(), entry("dgcf").config.spec())
    yield Comparison("DGCF with drop-edge, an epoch", "its LightGCN", epoch_of("dgcf", deep, pairs, 0.1), plain.epoch)
    yield softmax_loss(max(50, int(BATCH * scale)))
    yield evaluation(pairs)
    if find_spec("implicit"):
        yield recommendation(pairs)
    if find_spec("pandas"):
        yield csv_reading(int(1_000_000 * scale), folder)


def epoch_of(name: str, propagation: Propagation, pairs: Pairs, edge_dropout: float = 0.0) -> Run:
    """Return a function that trains one more epoch with dgcf."""
    config = replace(entry(name).config, dim=DIM, layers=LAYERS)
    model = entry(name).build(pairs.n_users, pairs.n_items, config)
    settings = TrainConfig(batch_size=BATCH, l2=1e-4, epochs=10**6, edge_dropout=edge_dropout)
    return TrainingLoop([Trainer(model, propagation, pairs, settings)]).train_epoch


class PlainLightGCN:
    """A straightforward LightGCN in torch: a CSR tensor, autograd, uniform negatives, Adam."""

    def __init__(self, pairs: Pairs) -> None:
        self.users, self.items = torch.from_numpy(pairs.user_idx), torch.from_numpy(pairs.indices.astype(np.int64))
        self.n_users, self.n_items = pairs.n_users, pairs.n_items
        n = self.n_users + self.n_items
        user_to_item = torch.stack([self.users, self.items + self.n_users])
        edges = torch.cat([user_to_item, user_to_item.flip(0)], dim=1)
        scale = torch.bincount(edges[0], minlength=n).clamp(min=1).float().rsqrt()
        values = scale[edges[0]] * scale[edges[1]]
        self.matrix = torch.sparse_coo_tensor(edges, values, (n, n)).coalesce().to_sparse_csr()
        self.layer0 = torch.nn.Parameter(torch.randn(n, DIM) * 0.1)
        self.optimizer = torch.optim.Adam([self.layer0], lr=1e-3)

    def epoch(self) -> None:
        for batch in torch.randperm(len(self.users)).split(BATCH):
            self.optimizer.zero_grad()
            negatives = torch.randint(self.n_items, (len(batch),))
            self.loss(self.users[batch], self.items[batch], negatives).backward()
            self.optimizer.step()

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        layers = [self.layer0]
        for _ in range(LAYERS):
            layers.append(self.matrix @ layers[-1])
        final = torch.stack(layers).mean(dim=0)
        rows = [users, positives + self.n_users, negatives + self.n_users]
        u, i, j = (final[row] for row in rows)
        bpr = torch.nn.functional.softplus((u * j).sum(1) - (u * i).sum(1)).mean()
        return bpr + 1e-4 * sum(self.layer0[row].square().sum() for row in rows) / 2 / len(users)


def softmax_loss(size: int) -> Comparison:
    """Return the comparison of the softmax loss of a batch and its gradients."""
    users, positives, negatives = (torch.randn(rows, DIM).requires_grad_() for rows in (size, size, SHARED))
    hits = torch.rand(size, SHARED) < 0.02

    def plain() -> Tensor:
        u, i, j = (normalize(rows, dim=1) for rows in (users, positives, negatives))
        scores = (u @ j.T / TEMPERATURE).masked_fill(hits, -torch.inf)
        positive = (u * i).sum(dim=1, keepdim=True) / TEMPERATURE
        return (torch.logsumexp(torch.cat([positive, scores], dim=1), dim=1) - positive.squeeze(1)).mean()

    def ours() -> Tensor:
        return sampled_softmax(users, positives, negatives, TEMPERATURE, hits)

    rows, repeats = (users, positives, negatives), range(10)
    return Comparison(
        "softmax loss and gradients",
        "autograd",
        lambda: [torch.autograd.grad(ours(), rows) for _ in repeats],
        lambda: [torch.autograd.grad(plain(), rows) for _ in repeats],
    )


def evaluation(pairs: Pairs) -> Comparison:
    """Return the comparison of ranking all items for all users."""
    test = synthetic_pairs(pairs.n_users, pairs.n_items, 7.0, seed=1)
    splits = SimpleNamespace(train=pairs, validation=Pairs.empty(pairs.n_users, pairs.n_items), test=test)
    scorer = synthetic_model(pairs, DIM, "cpu")
    evaluator = Evaluator(splits, split="test", ks=(K,))
    return Comparison(
        "full-ranking evaluation",
        "torch.topk in batches",
        lambda: evaluator.evaluate(scorer),
        lambda: ndcg_in_batches(scorer, splits, evaluator.user_idx, torch_topk),
    )


def recommendation(pairs: Pairs) -> Comparison:
    """Return the comparison of the top 20 of all users, with seen items masked."""
    from implicit.als import AlternatingLeastSquares

    model = synthetic_model(pairs, DIM, "cpu")
    users, items = model.users.numpy(), model.items.numpy()
    implicit = AlternatingLeastSquares(factors=DIM, num_threads=1)
    implicit.user_factors, implicit.item_factors = users, items
    index, all_users, seen = EmbeddingIndex(items), np.arange(pairs.n_users), pairs.to_scipy().astype(np.float32)
    return Comparison(
        "recommending, exact",
        "implicit",
        lambda: top_k(index, users, pairs, K),
        lambda: implicit.recommend(all_users, seen, N=K, filter_already_liked_items=True),
    )


def csv_reading(rows: int, folder: Path) -> Comparison:
    """Return the comparison of reading a CSV file: filter ratings, drop repeated pairs, map ids to numbers."""
    import pandas as pd

    rng = np.random.default_rng(0)
    user, item = (rng.pareto(1.2, rows) * 3000 % 50_000).astype(int), (rng.pareto(1.0, rows) * 800 % 10_000).astype(int)
    frame = pd.DataFrame({"user_id": user, "item_id": item, "rating": rng.integers(1, 11, rows) / 2})
    frame = frame.assign(user_id="user-" + frame.user_id.astype(str), item_id="B00" + frame.item_id.astype(str))
    path = folder / "rows.csv"
    frame.to_csv(path, index=False)

    def baseline() -> None:
        rows = pd.read_csv(path)
        rows = rows[rows.rating >= 3.0].drop_duplicates(["user_id", "item_id"])
        pd.factorize(rows.user_id), pd.factorize(rows.item_id)

    preparation = Preparation(RatingFilter(3.0), split=Split("none"))
    return Comparison("reading a CSV file", "pandas", lambda: prepare(path, preparation), baseline)


def slow_downs(ratios: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return one sentence for each ratio that fell below its record."""
    return [
        f"{name}: {ratio:.2f} times as fast as the baseline, but {recorded[name]:.2f} is on record; find the slow-down."
        for name, ratio in ratios.items()
        if ratio < SLACK * recorded.get(name, 0.0)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the synthetic data; 1 is about ML1M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recorded", type=Path, default=RECORDED, help="file of recorded ratios")
    parser.add_argument("--record", action="store_true", help="record the ratios of this run")
    args = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):  # the libraries read them when they load
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.bench", *sys.argv[1:]], os.environ | ONE_THREAD)
    warnings.filterwarnings("ignore", message="Sparse")  # torch's CSR tensors are in beta, and unchecked
    recorded = json.loads(args.recorded.read_text()) if args.recorded.exists() else {}
    ratios, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for comparison in comparisons(args.scale, Path(folder)):
            ratios[comparison.name] = ratio = comparison.ratio(args.rounds)
            before = f"{recorded[comparison.name]:.2f}" if comparison.name in recorded else "none"
            rows.append([comparison.name, comparison.baseline_name, f"{ratio:.2f}", before])
    print(f"one thread, {hardware()}, torch {torch.__version__}; median of {args.rounds} ratios of processor time")
    print(markdown(["benchmark", "baseline", "times as fast", "on record"], rows))
    if args.record:
        args.recorded.write_text(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}, indent=2) + "\n")
    elif sentences := slow_downs(ratios, recorded):
        sys.exit("\n".join(sentences))


if __name__ == "__main__":
    main()

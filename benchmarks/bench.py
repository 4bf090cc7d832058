"""Whether we are still as fast as we were: ours beside a plain implementation, as ratios of processor time.

    python -m benchmarks.bench [--scale 1.0] [--rounds 5] [--record]

Data is made up, everything runs on one thread, the two sides alternate, and the median of their ratios counts: so it
says the same on a busy machine and on most hardware. A ratio that falls 20 % below the one in ``recorded.json`` fails;
``--record`` writes the ratios of this run there. Rivals that are not installed are left out.
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

from benchmarks.evaluate import K, in_batches, made_up, made_up_model, torch_topk
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
from dgcf.train.loop import SideBySide
from dgcf.train.losses import sampled_softmax

RECORDED = Path(__file__).with_name("recorded.json")
SLACK = 0.8
"""The share of a recorded ratio that must still be reached."""
USERS, ITEMS, PER_USER = 4_600, 1_850, 32.0  # about ML1M in the authors' split
DIM, LAYERS, BATCH = 64, 3, 2048
SHARED, TEMPERATURE = 1024, 0.15
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Run = Callable[[], object]


@dataclass(frozen=True)
class Contest:
    """Two ways to do the same work."""

    name: str
    rival: str
    ours: Run
    theirs: Run

    def ratio(self, rounds: int) -> float:
        """How many times our processor time theirs is: the median over rounds, after one to warm up."""
        found = [_processor(self.theirs) / _processor(self.ours) for _ in range(rounds + 1)]
        return median(found[1:])


def _processor(run: Run) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def contests(scale: float, folder: Path) -> Iterator[Contest]:
    """All that can be held here, one after the other; ``scale`` is how large the made-up data is."""
    pairs = made_up(max(50, int(USERS * scale)), max(50, int(ITEMS * scale)), PER_USER, seed=0)
    plain = PlainLightGCN(pairs)
    light = build_propagation(pairs.to_scipy(), entry("lightgcn").config.spec())
    x = torch.randn(light.n_nodes, DIM)
    many = range(20)
    yield Contest(
        "sparse product",
        "torch CSR",
        lambda: [light.apply(x) for _ in many],
        lambda: [plain.matrix @ x for _ in many],
    )
    yield Contest("LightGCN, an epoch", "torch CSR and autograd", epoch_of("lightgcn", light, pairs), plain.epoch)
    deep = build_propagation(pairs.to_scipy(), entry("dgcf").config.spec())
    yield Contest("DGCF with drop-edge, an epoch", "its LightGCN", epoch_of("dgcf", deep, pairs, 0.1), plain.epoch)
    yield softmax(max(50, int(BATCH * scale)))
    yield evaluation(pairs)
    if find_spec("implicit"):
        yield recommending(pairs)
    if find_spec("pandas"):
        yield reading(int(1_000_000 * scale), folder)


def epoch_of(name: str, propagation: Propagation, pairs: Pairs, edge_dropout: float = 0.0) -> Run:
    """One epoch more of our training."""
    config = replace(entry(name).config, dim=DIM, layers=LAYERS)
    model = entry(name).build(pairs.n_users, pairs.n_items, config)
    settings = TrainConfig(batch_size=BATCH, l2=1e-4, epochs=10**6, edge_dropout=edge_dropout)
    return SideBySide([Trainer(model, propagation, pairs, settings)]).train_epoch


class PlainLightGCN:
    """LightGCN as one writes it down in torch: a CSR tensor, autograd, uniform negatives, Adam."""

    def __init__(self, pairs: Pairs) -> None:
        self.users, self.items = torch.from_numpy(pairs.user_idx), torch.from_numpy(pairs.indices.astype(np.int64))
        self.n_users, self.n_items = pairs.n_users, pairs.n_items
        n = self.n_users + self.n_items
        one_way = torch.stack([self.users, self.items + self.n_users])
        edges = torch.cat([one_way, one_way.flip(0)], dim=1)
        scale = torch.bincount(edges[0], minlength=n).clamp(min=1).float().rsqrt()
        values = scale[edges[0]] * scale[edges[1]]
        self.matrix = torch.sparse_coo_tensor(edges, values, (n, n)).coalesce().to_sparse_csr()
        self.layer0 = torch.nn.Parameter(torch.randn(n, DIM) * 0.1)
        self.optimizer = torch.optim.Adam([self.layer0], lr=1e-3)

    def epoch(self) -> None:
        for chosen in torch.randperm(len(self.users)).split(BATCH):
            self.optimizer.zero_grad()
            negatives = torch.randint(self.n_items, (len(chosen),))
            self.loss(self.users[chosen], self.items[chosen], negatives).backward()
            self.optimizer.step()

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        layers = [self.layer0]
        for _ in range(LAYERS):
            layers.append(self.matrix @ layers[-1])
        final = torch.stack(layers).mean(dim=0)
        rows = [users, positives + self.n_users, negatives + self.n_users]
        u, i, j = (final[row] for row in rows)
        ranked = torch.nn.functional.softplus((u * j).sum(1) - (u * i).sum(1)).mean()
        return ranked + 1e-4 * sum(self.layer0[row].square().sum() for row in rows) / 2 / len(users)


def softmax(size: int) -> Contest:
    """The softmax loss of a batch and its gradients."""
    users, positives, negatives = (torch.randn(rows, DIM).requires_grad_() for rows in (size, size, SHARED))
    hits = torch.rand(size, SHARED) < 0.02

    def plain() -> Tensor:
        u, i, j = (normalize(rows, dim=1) for rows in (users, positives, negatives))
        scores = (u @ j.T / TEMPERATURE).masked_fill(hits, -torch.inf)
        positive = (u * i).sum(dim=1, keepdim=True) / TEMPERATURE
        return (torch.logsumexp(torch.cat([positive, scores], dim=1), dim=1) - positive.squeeze(1)).mean()

    def ours() -> Tensor:
        return sampled_softmax(users, positives, negatives, TEMPERATURE, hits)

    rows, many = (users, positives, negatives), range(10)
    return Contest(
        "softmax loss and gradients",
        "autograd",
        lambda: [torch.autograd.grad(ours(), rows) for _ in many],
        lambda: [torch.autograd.grad(plain(), rows) for _ in many],
    )


def evaluation(pairs: Pairs) -> Contest:
    """All items ranked for all users."""
    test = made_up(pairs.n_users, pairs.n_items, 7.0, seed=1)
    splits = SimpleNamespace(train=pairs, validation=Pairs.empty(pairs.n_users, pairs.n_items), test=test)
    scorer = made_up_model(pairs, DIM, "cpu")
    evaluator = Evaluator(splits, split="test", ks=(K,))
    return Contest(
        "full-ranking evaluation",
        "torch.topk in batches",
        lambda: evaluator.evaluate(scorer),
        lambda: in_batches(scorer, splits, evaluator.user_idx, torch_topk),
    )


def recommending(pairs: Pairs) -> Contest:
    """The top 20 of all users, what they have hidden."""
    from implicit.als import AlternatingLeastSquares

    made = made_up_model(pairs, DIM, "cpu")
    users, items = made.users.numpy(), made.items.numpy()
    rival = AlternatingLeastSquares(factors=DIM, num_threads=1)
    rival.user_factors, rival.item_factors = users, items
    catalogue, everybody, seen = EmbeddingIndex(items), np.arange(pairs.n_users), pairs.to_scipy().astype(np.float32)
    return Contest(
        "recommending, exact",
        "implicit",
        lambda: top_k(catalogue, users, pairs, K),
        lambda: rival.recommend(everybody, seen, N=K, filter_already_liked_items=True),
    )


def reading(rows: int, folder: Path) -> Contest:
    """A CSV file of ratings: the good ones, repeats dropped, ids as numbers."""
    import pandas as pd

    rng = np.random.default_rng(0)
    user, item = (rng.pareto(1.2, rows) * 3000 % 50_000).astype(int), (rng.pareto(1.0, rows) * 800 % 10_000).astype(int)
    frame = pd.DataFrame({"user_id": user, "item_id": item, "rating": rng.integers(1, 11, rows) / 2})
    frame = frame.assign(user_id="user-" + frame.user_id.astype(str), item_id="B00" + frame.item_id.astype(str))
    path = folder / "rows.csv"
    frame.to_csv(path, index=False)

    def theirs() -> None:
        rows = pd.read_csv(path)
        rows = rows[rows.rating >= 3.0].drop_duplicates(["user_id", "item_id"])
        pd.factorize(rows.user_id), pd.factorize(rows.item_id)

    how = Preparation(RatingFilter(3.0), split=Split("none"))
    return Contest("reading a CSV file", "pandas", lambda: prepare(path, how), theirs)


def fallen(found: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """A sentence for each ratio that is not what it was."""
    return [
        f"{name}: {ratio:.2f} times as fast as its rival, and {recorded[name]:.2f} is on record; what made it slower?"
        for name, ratio in found.items()
        if ratio < SLACK * recorded.get(name, 0.0)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the made-up data; 1 is about ML1M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recorded", type=Path, default=RECORDED, help="where the ratios are on record")
    parser.add_argument("--record", action="store_true", help="put the ratios of this run on record")
    asked = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):  # they are read when the libraries load
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.bench", *sys.argv[1:]], os.environ | ONE_THREAD)
    warnings.filterwarnings("ignore", message="Sparse")  # that torch's CSR tensors are in beta, and unchecked
    recorded = json.loads(asked.recorded.read_text()) if asked.recorded.exists() else {}
    found, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for contest in contests(asked.scale, Path(folder)):
            found[contest.name] = ratio = contest.ratio(asked.rounds)
            before = f"{recorded[contest.name]:.2f}" if contest.name in recorded else "none"
            rows.append([contest.name, contest.rival, f"{ratio:.2f}", before])
    print(f"one thread, {hardware()}, torch {torch.__version__}; median of {asked.rounds} ratios of processor time")
    print(markdown(["ours", "the rival", "times as fast", "on record"], rows))
    if asked.record:
        asked.recorded.write_text(json.dumps({name: round(ratio, 2) for name, ratio in found.items()}, indent=2) + "\n")
    elif sentences := fallen(found, recorded):
        sys.exit("\n".join(sentences))


if __name__ == "__main__":
    main()

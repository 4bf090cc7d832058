"""A CUDA device: epochs of DGCF and LightGCN, PyG's LightGCN in the same run, the sparse product against its bytes.

    PYTHONPATH=src python3 -m benchmarks.gpu FOLDER [--out gpu.md]

FOLDER holds prepared datasets (``dgcf data prepare deoscirec/NAME --out FOLDER/NAME``). Needs NumPy, SciPy, torch and
Triton alone; PyG is measured where it is installed. Medians after warm-up; ours and PyG alternate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from benchmarks.measure import markdown
from dgcf.data.dataset import Dataset
from dgcf.evaluate.evaluator import Evaluator
from dgcf.graph import build_propagation
from dgcf.graph.gpu import GpuMatrix
from dgcf.models import Embeddings
from dgcf.models.base import GraphModel
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.train.config import TrainConfig
from dgcf.train.sidebyside import SideBySide
from dgcf.train.trainer import Trainer

EPSILON = {"ml-100k": 0.006, "ml-1m": 0.001, "amazon-movies-tv": 0.003, "gowalla": 0.004}
PAPER_SECONDS = {"ml-100k": 3.4, "ml-1m": 22.0, "amazon-movies-tv": 62.1, "gowalla": 100.6}
ROUNDS = 5


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def our_epoch(dataset: Dataset, model: GraphModel, how: TrainConfig) -> Callable[[], object]:
    """A function that trains one more epoch, sampling included, everything warmed up."""
    spec = model.config.spec()
    propagation = build_propagation(dataset.train.to_scipy(), spec).to(device="cuda")
    trainer = Trainer(model, propagation, dataset.train, how, seed=0, device="cuda")
    alone = SideBySide([trainer])
    alone.train_epoch()
    return alone.train_epoch


def pyg_epoch(dataset: Dataset, dim: int, layers: int, batch: int) -> Callable[[], object]:
    """PyG's LightGCN as its own example trains it: shuffled pairs, uniform negatives, BPR, Adam, a sparse CSR graph."""
    from torch_geometric.nn import LightGCN as PygLightGCN

    n_users, n_items = dataset.n_users, dataset.n_items
    users = torch.from_numpy(dataset.train.user_idx).cuda()
    items = torch.from_numpy(dataset.train.indices).long().cuda() + n_users
    both = torch.cat([torch.stack([users, items]), torch.stack([items, users])], dim=1)
    shape = (n_users + n_items, n_users + n_items)
    graph = torch.sparse_coo_tensor(both, torch.ones(both.shape[1], device="cuda"), shape).to_sparse_csr()
    model = PygLightGCN(n_users + n_items, dim, layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> None:
        for chosen in torch.randperm(len(users), device="cuda").split(batch):
            negatives = torch.randint(n_users, n_users + n_items, (len(chosen),), device="cuda")
            pairs = torch.stack([users[chosen].repeat(2), torch.cat([items[chosen], negatives])])
            optimizer.zero_grad()
            positive, negative = model(graph, pairs).chunk(2)
            loss = model.recommendation_loss(positive, negative, node_id=pairs.unique())
            loss.backward()
            optimizer.step()

    epoch()
    return epoch


def paper_epochs(folder: Path) -> str:
    rows = []
    for name, dim, batch in (
        ("ml-100k", 64, 512),
        ("ml-1m", 64, 1024),
        ("amazon-movies-tv", 128, 1024),
        ("gowalla", 128, 1024),
    ):
        dataset = Dataset.load(folder / name)
        found = []
        for storage in ("float32", "bfloat16"):
            config = DGCFConfig(dim=dim, layers=4, epsilon=EPSILON[name])
            how = TrainConfig(batch_size=batch, edge_dropout=0.1, l2=1e-2, storage=storage)  # type: ignore[arg-type]
            epoch = our_epoch(dataset, DGCF(dataset.n_users, dataset.n_items, config), how)
            found.append(statistics.median(seconds(epoch) for _ in range(ROUNDS)))
        times = f"{PAPER_SECONDS[name] / found[0]:.0f}"
        rows.append([name, str(dim), f"{PAPER_SECONDS[name]}", f"{found[0]:.4f}", f"{found[1]:.4f}", times])
    header = [
        "dataset",
        "d",
        "paper (GTX 1080 Ti), s",
        "float32, s",
        "bfloat16 storage, s",
        "times faster than the paper",
    ]
    return markdown(header, rows)


def against_pyg(folder: Path) -> str:
    rows = []
    for name in ("ml-1m", "gowalla"):
        dataset = Dataset.load(folder / name)
        shape = (dataset.n_users, dataset.n_items)
        how = TrainConfig(batch_size=2048)
        runs = {
            "PyG LightGCN (CSR)": pyg_epoch(dataset, 64, 3, 2048),
            "dgcf LightGCN": our_epoch(dataset, LightGCN(*shape, LightGCNConfig(dim=64, layers=3)), how),
            "dgcf DGCF, drop-edge .1": our_epoch(
                dataset,
                DGCF(*shape, DGCFConfig(dim=64, layers=3, epsilon=EPSILON[name])),
                TrainConfig(batch_size=2048, edge_dropout=0.1),
            ),
        }
        found: dict[str, list[float]] = {label: [] for label in runs}
        for _ in range(ROUNDS):
            for label, epoch in runs.items():
                found[label].append(seconds(epoch))
        base = statistics.median(found["PyG LightGCN (CSR)"])
        for label, values in found.items():
            middle = statistics.median(values)
            rows.append([name, label, f"{middle:.4f}", f"{base / middle:.1f}"])
    return markdown(["dataset", "model, 3 layers, d 64, batch 2048", "s/epoch", "times faster than PyG"], rows)


def product_against_bytes(folder: Path) -> str:
    """``M x`` on Gowalla's filtered graph, d 128: the bytes that must move, and what the memory gives.

    Counted per stored entry: one row of x (512 B in float32), its index, value and draw (12 B). The rows come from the
    L2 cache for the most part, so the rate may exceed that of the HBM. ``index_select`` gathers the same rows and
    writes them out: what the same product costs when the sum is not taken on the way.
    """
    dataset = Dataset.load(folder / "gowalla")
    propagation = build_propagation(dataset.train.to_scipy(), DGCFConfig(epsilon=0.004).spec()).to(device="cuda")
    matrix = GpuMatrix(propagation.operator.matrix)
    keys = torch.tensor([12345, 67891], dtype=torch.int32, device="cuda")
    entries, rows = len(matrix.matrix.indices), []
    big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    copy = triton.testing.do_bench(lambda: big.clone(), return_mode="median")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(propagation.n_nodes, 128, device="cuda").to(dtype)
        out = torch.empty_like(x)
        index = matrix.matrix.indices.long()
        gather = triton.testing.do_bench(lambda x=x, index=index: x.index_select(0, index), return_mode="median")
        product = triton.testing.do_bench(
            lambda x=x, out=out: matrix.product(x, out, keys=keys, limit=int(0.1 * 2**32)), return_mode="median"
        )
        moved = entries * (128 * x.element_size() + 12)
        ceiling = entries * 128 * x.element_size() * 2 / gather / 1e9
        rate = moved / product / 1e9
        line = [str(dtype).removeprefix("torch."), f"{entries:,}", f"{moved / 1e9:.2f}", f"{product * 1000:.0f}"]
        rows.append([*line, f"{rate:.2f}", f"{2 * (1 << 30) / copy / 1e9:.2f}", f"{ceiling:.2f}"])
    header = ["storage", "entries", "GB counted", "µs", "TB/s", "HBM copy, TB/s", "gather and write, TB/s"]
    return markdown(header, rows)


def evaluation(folder: Path) -> str:
    dataset = Dataset.load(folder / "gowalla")
    users, items = torch.randn(dataset.n_users, 64, device="cuda"), torch.randn(dataset.n_items, 64, device="cuda")
    evaluator = Evaluator(dataset, split="test", ks=(20,))
    evaluator.evaluate(Embeddings(users, items))
    middle = statistics.median(
        seconds(lambda: evaluator.evaluate(Embeddings(users, items)).means) for _ in range(ROUNDS)
    )
    return f"Full ranking of Gowalla, all {len(evaluator.user_idx):,} users, K 20, d 64: {middle:.3f} s."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    name = torch.cuda.get_device_name()
    head = f"{name}, torch {torch.__version__}, Triton {triton.__version__}; medians of {ROUNDS} epochs after one"
    parts = [head, paper_epochs(asked.folder)]
    try:
        import torch_geometric

        parts += [f"PyG {torch_geometric.__version__}:", against_pyg(asked.folder)]
    except ImportError:
        parts.append("PyG is not installed here.")
    parts += [product_against_bytes(asked.folder), evaluation(asked.folder)]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()

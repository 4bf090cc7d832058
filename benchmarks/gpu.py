"""Measure training on a GPU: epochs of DGCF and LightGCN, PyG's LightGCN in the same run, and the sparse product.

    PYTHONPATH=src python3 -m benchmarks.gpu FOLDER [--out gpu.md]

FOLDER holds prepared datasets (``dgcf data prepare deoscirec/NAME --out FOLDER/NAME``). Needs NumPy, SciPy, torch and
Triton only; PyG is measured if it is installed. Figures are medians after warm-up; dgcf and PyG alternate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

from benchmarks.measure import markdown
from dgcf.data.dataset import Dataset
from dgcf.evaluate.evaluator import Evaluator
from dgcf.graph import EdgeDrop, build_propagation
from dgcf.graph.kernels.cuda.sparse import GpuMatrix
from dgcf.models import Embeddings
from dgcf.models.base import GraphModel
from dgcf.models.dgcf import DGCF, DGCFConfig
from dgcf.models.lightgcn import LightGCN, LightGCNConfig
from dgcf.train.config import TrainConfig
from dgcf.train.loop import TrainingLoop
from dgcf.train.trainer import Trainer

EPSILON = {"ml-100k": 0.006, "ml-1m": 0.001, "amazon-movies-tv": 0.003, "gowalla": 0.004}
PAPER_SECONDS = {"ml-100k": 3.4, "ml-1m": 22.0, "amazon-movies-tv": 62.1, "gowalla": 100.6}
ROUNDS = 5


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def our_epoch(dataset: Dataset, model: GraphModel, config: TrainConfig) -> Callable[[], object]:
    """Return a function that trains one more epoch, including sampling, after a warm-up epoch."""
    spec = model.config.spec()
    propagation = build_propagation(dataset.train.to_scipy(), spec).to(device="cuda")
    trainer = Trainer(model, propagation, dataset.train, config, seed=0, device="cuda")
    loop = TrainingLoop([trainer])
    loop.train_epoch()
    return loop.train_epoch


def pyg_epoch(dataset: Dataset, dim: int, layers: int, batch: int, *, csr: bool) -> Callable[[], object]:
    """Return an epoch of PyG's LightGCN as in its own example: shuffled pairs, uniform negatives, BPR, Adam.

    The graph is the edge list of the example or, with ``csr``, a sparse CSR tensor.
    """
    from torch_geometric.nn import LightGCN as PygLightGCN

    n_users, n_items = dataset.n_users, dataset.n_items
    users = torch.from_numpy(dataset.train.user_idx).cuda()
    items = torch.from_numpy(dataset.train.indices).long().cuda() + n_users
    edges = torch.cat([torch.stack([users, items]), torch.stack([items, users])], dim=1)
    shape = (n_users + n_items, n_users + n_items)
    ones = torch.ones(edges.shape[1], device="cuda")
    graph = torch.sparse_coo_tensor(edges, ones, shape).to_sparse_csr() if csr else edges
    model = PygLightGCN(n_users + n_items, dim, layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> None:
        for part in torch.randperm(len(users), device="cuda").split(batch):
            negatives = torch.randint(n_users, n_users + n_items, (len(part),), device="cuda")
            pairs = torch.stack([users[part].repeat(2), torch.cat([items[part], negatives])])
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
        medians = []
        for storage in ("float32", "bfloat16"):
            config = DGCFConfig(dim=dim, layers=4, epsilon=EPSILON[name])
            training = TrainConfig(batch_size=batch, edge_dropout=0.1, l2=1e-2, storage=storage)  # type: ignore[arg-type]
            epoch = our_epoch(dataset, DGCF(dataset.n_users, dataset.n_items, config), training)
            medians.append(statistics.median(seconds(epoch) for _ in range(ROUNDS)))
        speed_up = f"{PAPER_SECONDS[name] / medians[0]:.0f}"
        rows.append([name, str(dim), f"{PAPER_SECONDS[name]}", f"{medians[0]:.4f}", f"{medians[1]:.4f}", speed_up])
    header = [
        "dataset",
        "d",
        "paper (GTX 1080 Ti), s",
        "float32, s",
        "bfloat16 storage, s",
        "speed-up over the paper",
    ]
    return markdown(header, rows)


def against_pyg(folder: Path) -> str:
    rows = []
    for name in ("ml-1m", "gowalla"):
        dataset = Dataset.load(folder / name)
        shape = (dataset.n_users, dataset.n_items)
        training = TrainConfig(batch_size=2048)
        runs = {
            "PyG LightGCN, edge list": pyg_epoch(dataset, 64, 3, 2048, csr=False),
            "PyG LightGCN, CSR": pyg_epoch(dataset, 64, 3, 2048, csr=True),
            "dgcf LightGCN": our_epoch(dataset, LightGCN(*shape, LightGCNConfig(dim=64, layers=3)), training),
            "dgcf DGCF, drop-edge .1": our_epoch(
                dataset,
                DGCF(*shape, DGCFConfig(dim=64, layers=3, epsilon=EPSILON[name])),
                TrainConfig(batch_size=2048, edge_dropout=0.1),
            ),
        }
        times: dict[str, list[float]] = {label: [] for label in runs}
        for _ in range(ROUNDS):
            for label, epoch in runs.items():
                times[label].append(seconds(epoch))
        edges, csr = (statistics.median(times[f"PyG LightGCN, {form}"]) for form in ("edge list", "CSR"))
        for label, values in times.items():
            median = statistics.median(values)
            rows.append([name, label, f"{median:.4f}", f"{edges / median:.1f}", f"{csr / median:.1f}"])
    header = ["dataset", "model, 3 layers, d 64, batch 2048", "s/epoch", "speed-up over PyG, edge list"]
    return markdown([*header, "speed-up over PyG, CSR"], rows)


@triton.jit
def _read(source, sums, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read one block and store its sum, so that the compiler cannot remove the reads."""
    first = (tl.program_id(0).to(tl.int64) * BLOCK) % n
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(source + first + tl.arange(0, BLOCK)), axis=0))


def read_rate(resident: int, moved: int) -> float:
    """Return the rate in TB/s of reading ``moved`` bytes in total, repeatedly from a buffer of ``resident`` bytes."""
    block = 2048
    n = resident // 4 // block * block
    programs = moved // 4 // block
    source, sums = torch.ones(n, device="cuda"), torch.empty(programs, device="cuda")
    milliseconds = triton.testing.do_bench(
        lambda: _read[(programs,)](source, sums, n, BLOCK=block), return_mode="median"
    )
    return programs * block * 4 / milliseconds / 1e9


def product_against_bytes(folder: Path) -> str:
    """Compare ``M x`` on Gowalla's filtered graph, d 128, a tenth of the entries dropped, with its memory bound.

    L2 traffic: one row of x (d numbers) for each kept entry; index, value and hash (12 B) for each entry; each row of
    the result. HBM traffic, with otherwise empty caches: x, the entries and the result once. The bound is the larger of
    the two divided by their measured rates, and the fraction is the bound divided by the measured time. (L1 hits do not
    go through L2, so the fraction may exceed 1.)
    """
    dataset = Dataset.load(folder / "gowalla")
    propagation = build_propagation(dataset.train.to_scipy(), DGCFConfig(epsilon=0.004).spec()).to(device="cuda")
    matrix = GpuMatrix(propagation.stored)
    drop = EdgeDrop(0.1, 0, 0, words=torch.tensor([12345, 67891], dtype=torch.int32, device="cuda"))
    entries, nodes = len(matrix.matrix.indices), propagation.n_nodes
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(1, nodes, 128, device="cuda").to(dtype)
        out = torch.empty_like(x)
        milliseconds = triton.testing.do_bench(
            lambda x=x, out=out: matrix.product(x, out, drop=drop), return_mode="median"
        )
        row = 128 * x.element_size()
        through_l2 = int(0.9 * entries) * row + 12 * entries + nodes * row
        from_hbm = 2 * nodes * row + 12 * entries
        l2, hbm = read_rate(nodes * row, through_l2), read_rate(8 << 30, 8 << 30)
        bound = max(through_l2 / l2, from_hbm / hbm) / 1e6  # µs
        rows.append(
            [
                str(dtype).removeprefix("torch."),
                f"{entries:,}",
                f"{through_l2 / 1e9:.2f}",
                f"{from_hbm / 1e9:.2f}",
                f"{l2:.2f}",
                f"{hbm:.2f}",
                f"{bound:.0f}",
                f"{milliseconds * 1000:.0f}",
                f"{bound / milliseconds / 1000:.2f}",
            ]
        )
    header = ["storage", "entries", "GB through L2", "GB of HBM", "L2 read, TB/s", "HBM read, TB/s", "bound, µs"]
    return markdown([*header, "measured, µs", "fraction"], rows)


def many_seeds(folder: Path) -> str:
    """Compare ten seeds of DGCF on ML-100K side by side with one seed: seconds per epoch, equality of the weights."""
    dataset = Dataset.load(folder / "ml-100k")
    config = DGCFConfig(dim=64, layers=4, epsilon=EPSILON["ml-100k"])
    training = TrainConfig(batch_size=512, edge_dropout=0.1, l2=1e-2)
    propagation = build_propagation(dataset.train.to_scipy(), config.spec()).to(device="cuda")

    def loop_over(seeds: range) -> TrainingLoop:
        shape = (dataset.n_users, dataset.n_items)
        return TrainingLoop(
            [
                Trainer(DGCF(*shape, config, seed), propagation, dataset.train, training, seed=seed, device="cuda")
                for seed in seeds
            ]
        )

    loops = {"one seed": loop_over(range(1)), "ten side by side": loop_over(range(10))}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(4 * ROUNDS):
        for name, loop in loops.items():
            times[name].append(seconds(loop.train_epoch))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    rows = [[name, f"{time:.4f}", f"{time / medians['one seed']:.2f}"] for name, time in medians.items()]
    alone, together = (loops[name].trainers[0].model.layer0 for name in loops)
    same = "equal to the bit" if torch.equal(alone, together) else "DIFFERENT"
    table = markdown(["DGCF on ML-100K, 4 layers, d 64, batch 512", "s/epoch", "relative to one seed"], rows)
    return f"{table}\n\nThe weights of seed 0 after {4 * ROUNDS} epochs, alone and among ten, are {same}."


def evaluation(folder: Path) -> str:
    dataset = Dataset.load(folder / "gowalla")
    users, items = torch.randn(dataset.n_users, 64, device="cuda"), torch.randn(dataset.n_items, 64, device="cuda")
    evaluator = Evaluator(dataset, split="test", ks=(20,))
    evaluator.evaluate(Embeddings(users, items))
    median = statistics.median(
        seconds(lambda: evaluator.evaluate(Embeddings(users, items)).means) for _ in range(ROUNDS)
    )
    return f"Full ranking of Gowalla, all {len(evaluator.user_idx):,} users, K 20, d 64: {median:.3f} s."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    name = torch.cuda.get_device_name()
    versions = f"torch {torch.__version__}, Triton {triton.__version__}"
    head = f"{name}, {versions}; medians of {ROUNDS} epochs after one warm-up epoch"
    parts = [head, paper_epochs(args.folder)]
    try:
        import torch_geometric

        parts += [f"PyG {torch_geometric.__version__}:", against_pyg(args.folder)]
    except ImportError:
        parts.append("PyG is not installed.")
    parts += [many_seeds(args.folder), product_against_bytes(args.folder), evaluation(args.folder)]
    parts.append(f"Peak of GPU memory over the whole run: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB.")
    text = "\n\n".join(parts) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()

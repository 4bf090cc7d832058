"""Measure one epoch of LightGCN against RecBole and PyG, and one of DGCF: d 64, batch 2048, 3 layers.

    python -m benchmarks.train --recbole PYTHON --pyg PYTHON [--data ml-100k|deoscirec/ml-1m] [--threads 2]
                               [--rounds 5] [--epochs 3]

Each peer runs in its own environment with the same torch: ``PYTHON`` is the interpreter, and ``peers/`` lists the
packages to install. Each round is a separate process, and the libraries alternate. An epoch includes drawing the
negatives, forward, backward and Adam, as each library defines it. PyG leaves the loop to the user. Here it is the loop
of PyG's example, in a form favourable to PyG: the graph is normalised once and stored as CSR, and negatives may be
positives. DGCF has the paper's filter for the dataset, without and with its drop-edge of 0.1. Peak memory is that of
the process alone. The threads of dgcf sleep while waiting, as in the command line; those of the peers spin, which is
torch's default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import hardware, markdown, median
from dgcf.data import load
from dgcf.random import permutation
from dgcf.train.presets import DGCF_BY_DATASET, family_of

OURS = """
import sys, time
import numpy as np, torch
torch.set_num_threads(int(sys.argv[2]))
from dgcf.data.pairs import Pairs
from dgcf.graph import build_propagation
from dgcf.models import entry
from dgcf.train import TrainConfig, Trainer
from dgcf.train.loop import TrainingLoop
from dataclasses import replace
users, items = np.load(sys.argv[1] + "/train.npy")
pairs = Pairs.from_indices(users, items, users.max() + 1, items.max() + 1)
model_entry = entry("{model}")
config = replace(model_entry.config, dim=64, layers=3, **{settings})
model = model_entry.build(pairs.n_users, pairs.n_items, config)
trainer = Trainer(model, build_propagation(pairs.to_scipy(), config.spec()), pairs,
                  TrainConfig(batch_size=2048, l2=1e-4, epochs=10**6, edge_dropout={drop}))
loop = TrainingLoop([trainer])
def epoch():
    assert loop.train_epoch()
"""

RECBOLE = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(int(sys.argv[2]))
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.general_recommender import LightGCN
from recbole.trainer import Trainer
from recbole.utils import init_seed
sys.argv, folder = sys.argv[:1], sys.argv[1]
config = Config(model="LightGCN", dataset="ml", config_dict={
    "data_path": folder, "benchmark_filename": ["train", "valid", "test"],
    "load_col": {"inter": ["user_id", "item_id"]}, "embedding_size": 64, "n_layers": 3, "reg_weight": 1e-4,
    "train_batch_size": 2048, "use_gpu": False, "show_progress": False, "state": "CRITICAL",
    "checkpoint_dir": folder})
init_seed(0, True)
dataset = create_dataset(config)
train_data, _, _ = data_preparation(config, dataset)
trainer = Trainer(config, LightGCN(config, train_data.dataset))
number = 0
def epoch():
    global number
    trainer._train_epoch(train_data, number)
    number += 1
"""

PYG = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np, torch
torch.set_num_threads(int(sys.argv[2]))
from torch_geometric.nn import LightGCN
from torch_geometric.nn.conv.gcn_conv import gcn_norm
users, items = torch.from_numpy(np.load(sys.argv[1] + "/train.npy"))
n_users, n_items = int(users.max()) + 1, int(items.max()) + 1
edge = torch.stack([users, items + n_users])
both = torch.cat([edge, edge.flip(0)], dim=1)
both, weight = gcn_norm(both, None, n_users + n_items, add_self_loops=False)
adj = torch.sparse_coo_tensor(both, weight, (n_users + n_items,) * 2).coalesce().to_sparse_csr()
model = LightGCN(n_users + n_items, 64, 3, normalize=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
def epoch():
    for index in torch.randperm(edge.shape[1]).split(2048):
        positive = edge[:, index]
        negative = torch.stack([positive[0], torch.randint(n_users, n_users + n_items, (len(index),))])
        optimizer.zero_grad()
        high, low = model(adj, torch.cat([positive, negative], dim=1)).chunk(2)
        nodes = torch.cat([positive, negative], dim=1).unique()
        model.recommendation_loss(high, low, node_id=nodes, lambda_reg=1e-4).backward()
        optimizer.step()
"""

TIMED = """
import json
epoch()
seconds = []
for _ in range(int({epochs})):
    started = time.perf_counter()
    epoch()
    seconds.append(time.perf_counter() - started)
# VmHWM counts this process only; getrusage would include the parent that it was forked from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps({{"seconds": sorted(seconds)[len(seconds) // 2], "peak_mb": int(peak) / 1024}}))
"""


def write_data(name: str, folder: Path) -> None:
    """Write the training pairs (80 % of raw ratings) as an array and as RecBole's files."""
    dataset = load(name)
    pairs = dataset.train
    if "/" not in name:
        pairs = pairs.union(dataset.validation, dataset.test)
    order = permutation(0, "benchmark/split", len(pairs))
    users, items = pairs.user_idx[order], pairs.indices[order].astype(np.int64)
    cut = len(order) if "/" in name else len(order) * 8 // 10
    np.save(folder / "train.npy", np.stack([users[:cut], items[:cut]]))
    (folder / "ml").mkdir()
    for part, rows in (("train", slice(0, cut)), ("valid", slice(0, 100)), ("test", slice(100, 200))):
        lines = [f"{user}\t{item}" for user, item in zip(users[rows], items[rows], strict=True)]
        (folder / "ml" / f"ml.{part}.inter").write_text("\n".join(["user_id:token\titem_id:token", *lines]))


def one_round(python: str, code: str, folder: Path, threads: int, epochs: int) -> dict[str, float]:
    """Return the median seconds of an epoch after a warm-up epoch, and the peak memory, of a new process."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if python == sys.executable:
        limits["OMP_WAIT_POLICY"] = "passive"
    process = subprocess.run(
        [python, "-c", code + TIMED.format(epochs=epochs), str(folder), str(threads)],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, **limits},
        cwd=folder if python != sys.executable else None,
    )
    if process.returncode:
        raise SystemExit(f"a benchmark process failed:\n{process.stderr}")
    result: dict[str, float] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def versions(python: str) -> str:
    """Return the versions of the measured packages in an environment."""
    code = (
        "from importlib.metadata import distributions\n"
        "names = {'torch', 'recbole', 'torch-geometric', 'dgcf'}\n"
        "versions = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in distributions()}\n"
        "print(', '.join(f'{name} {versions[name]}' for name in sorted(names & set(versions))))"
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recbole", help="interpreter of an environment with recbole 1.2.1")
    parser.add_argument("--pyg", help="interpreter of an environment with torch_geometric")
    parser.add_argument("--data", default="ml-100k", help="name of a dataset")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    paper_filter = {"epsilon": DGCF_BY_DATASET[family_of(args.data)]["epsilon"]}
    libraries = {
        "dgcf: LightGCN": (sys.executable, OURS.format(model="lightgcn", settings={}, drop=0.0)),
        "dgcf: DGCF": (sys.executable, OURS.format(model="dgcf", settings=paper_filter, drop=0.0)),
        "dgcf: DGCF, drop-edge .1": (sys.executable, OURS.format(model="dgcf", settings=paper_filter, drop=0.1)),
        "RecBole: LightGCN": (args.recbole, RECBOLE),
        "PyG: LightGCN (CSR)": (args.pyg, PYG),
    }
    available = {name: (python, code) for name, (python, code) in libraries.items() if python}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in available}
    with tempfile.TemporaryDirectory() as temporary:
        write_data(args.data, Path(temporary))
        for _ in range(args.rounds):
            for name, (python, code) in available.items():
                measured[name].append(one_round(python, code, Path(temporary), args.threads, args.epochs))
    seconds = {name: median([values["seconds"] for values in rounds]) for name, rounds in measured.items()}
    peaks = {name: max(values["peak_mb"] for values in rounds) for name, rounds in measured.items()}
    ours = [time for name, time in seconds.items() if name.startswith("dgcf")]
    rows = [
        [name, f"{time:.3f}", *(f"{time / reference:.1f}" for reference in ours), f"{peaks[name]:.0f}"]
        for name, time in seconds.items()
    ]
    print(f"{args.data}, {args.threads} thread(s); {hardware()}; median of {args.rounds} × {args.epochs} epochs")
    print("; ".join(dict.fromkeys(versions(python) for python, _ in available.values())))
    header = ["", "s/epoch", "times our LightGCN", "times our DGCF", "times our DGCF with drop-edge", "peak MB"]
    print(markdown(header, rows))


if __name__ == "__main__":
    main()

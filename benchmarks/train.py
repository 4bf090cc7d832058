"""One epoch of LightGCN, ours against RecBole's and PyG's, and our DGCF beside them: d 64, batch 2048, 3 layers.

    python -m benchmarks.train --recbole PYTHON --pyg PYTHON [--data ml-100k|deoscirec/ml-1m] [--threads 2]
                               [--rounds 5] [--epochs 3]

Each peer runs in its own environment (``PYTHON`` is that environment's interpreter, with the same torch; ``peers/`` has
what to install there), each round in a process of its own; the contestants alternate. An epoch is what each of them
calls one: drawing the negatives, forward, backward and Adam. In PyG the loop is the user's: here it is the one of its
example, favourably to it with a graph that is normalised once and kept as CSR, and with negatives that may be
positives. DGCF has the paper's filter for the dataset, without and with its drop-edge of 0.1. Peak memory is the
process's own.
Ours waits for its threads asleep, as the command line does; the peers wait as they come (torch's threads spin).
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
from dgcf.train.loop import SideBySide
from dataclasses import replace
users, items = np.load(sys.argv[1] + "/train.npy")
pairs = Pairs.from_indices(users, items, users.max() + 1, items.max() + 1)
found = entry("{model}")
config = replace(found.config, dim=64, layers=3, **{more})
model = found.build(pairs.n_users, pairs.n_items, config)
trainer = Trainer(model, build_propagation(pairs.to_scipy(), config.spec()), pairs,
                  TrainConfig(batch_size=2048, l2=1e-4, epochs=10**6, edge_dropout={drop}))
alone = SideBySide([trainer])
def epoch():
    assert alone.train_epoch()
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
        good, bad = model(adj, torch.cat([positive, negative], dim=1)).chunk(2)
        nodes = torch.cat([positive, negative], dim=1).unique()
        model.recommendation_loss(good, bad, node_id=nodes, lambda_reg=1e-4).backward()
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
# The system's own count of this program: getrusage would also count the parent that it was forked from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps({{"seconds": sorted(seconds)[len(seconds) // 2], "peak_mb": int(peak) / 1024}}))
"""


def write_data(name: str, folder: Path) -> None:
    """The training pairs (of raw ratings, 80 % of them) as an array and as RecBole's files."""
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
    """Median seconds of an epoch after one to warm up, and the peak memory, of a new process."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if python == sys.executable:
        limits["OMP_WAIT_POLICY"] = "passive"
    done = subprocess.run(
        [python, "-c", code + TIMED.format(epochs=epochs), str(folder), str(threads)],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, **limits},
        cwd=folder if python != sys.executable else None,
    )
    if done.returncode:
        raise SystemExit(f"a benchmark process failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def versions(python: str) -> str:
    """What an environment brings to the contest."""
    code = (
        "from importlib.metadata import distributions\n"
        "names = {'torch', 'recbole', 'torch-geometric', 'dgcf'}\n"
        "found = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in distributions()}\n"
        "print(', '.join(f'{name} {found[name]}' for name in sorted(names & set(found))))"
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recbole", help="the interpreter of an environment with recbole 1.2.1")
    parser.add_argument("--pyg", help="the interpreter of an environment with torch_geometric")
    parser.add_argument("--data", default="ml-100k", help="a dataset's name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    filtered = {"epsilon": DGCF_BY_DATASET[family_of(asked.data)]["epsilon"]}
    contestants = {
        "dgcf: LightGCN": (sys.executable, OURS.format(model="lightgcn", more={}, drop=0.0)),
        "dgcf: DGCF": (sys.executable, OURS.format(model="dgcf", more=filtered, drop=0.0)),
        "dgcf: DGCF, drop-edge .1": (sys.executable, OURS.format(model="dgcf", more=filtered, drop=0.1)),
        "RecBole: LightGCN": (asked.recbole, RECBOLE),
        "PyG: LightGCN (CSR)": (asked.pyg, PYG),
    }
    present = {name: (python, code) for name, (python, code) in contestants.items() if python}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in present}
    with tempfile.TemporaryDirectory() as temporary:
        write_data(asked.data, Path(temporary))
        for _ in range(asked.rounds):
            for name, (python, code) in present.items():
                found[name].append(one_round(python, code, Path(temporary), asked.threads, asked.epochs))
    seconds = {name: median([one["seconds"] for one in rounds]) for name, rounds in found.items()}
    peaks = {name: max(one["peak_mb"] for one in rounds) for name, rounds in found.items()}
    ours = [time for name, time in seconds.items() if name.startswith("dgcf")]
    rows = [
        [name, f"{time:.3f}", *(f"{time / own:.1f}" for own in ours), f"{peaks[name]:.0f}"]
        for name, time in seconds.items()
    ]
    print(f"{asked.data}, {asked.threads} thread(s); {hardware()}; median of {asked.rounds} × {asked.epochs} epochs")
    print("; ".join(dict.fromkeys(versions(python) for python, _ in present.values())))
    header = ["", "s/epoch", "times our LightGCN", "times our DGCF", "times our DGCF with drop-edge", "peak MB"]
    print(markdown(header, rows))


if __name__ == "__main__":
    main()

"""One epoch of LightGCN on ML-100K 80/20, ours against RecBole's and PyG's: d 64, batch 2048, 3 layers, one thread.

    python -m benchmarks.train --recbole PYTHON --pyg PYTHON [--rounds 3] [--epochs 5]

Each peer runs in its own environment (``PYTHON`` is that environment's interpreter, with the same torch), each round
in a process of its own; the contestants alternate. An epoch is what each of them calls one: drawing the negatives,
forward, backward and Adam. In PyG the loop is the user's: here it is the one of its example, favourably to it with a
graph that is normalised once and kept as CSR, and with negatives that may be positives.
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

OURS = """
import sys, time
import numpy as np, torch
torch.set_num_threads(1)
from dgcf.data.pairs import Pairs
from dgcf.graph import build_propagation
from dgcf.models import LightGCN, LightGCNConfig
from dgcf.train import TrainConfig, Trainer
users, items = np.load(sys.argv[1] + "/train.npy")
pairs = Pairs.from_indices(users, items, users.max() + 1, items.max() + 1)
config = LightGCNConfig(dim=64, layers=3)
model = LightGCN(pairs.n_users, pairs.n_items, config)
trainer = Trainer(model, build_propagation(pairs.to_scipy(), config.spec()), pairs,
                  TrainConfig(batch_size=2048, l2=1e-4, epochs=10**6))
def epoch():
    assert trainer._train_epoch()
"""

RECBOLE = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
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
torch.set_num_threads(1)
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
print(json.dumps({{"seconds": sorted(seconds)[len(seconds) // 2], "torch": torch.__version__}}))
"""


def write_data(folder: Path) -> None:
    """80 % of the raw ratings as training pairs, as an array and as RecBole's files."""
    raw = load("ml-100k")
    pairs = raw.train.union(raw.validation, raw.test)
    order = permutation(0, "benchmark/split", len(pairs))
    users, items = pairs.user_idx[order], pairs.indices[order].astype(np.int64)
    cut = len(order) * 8 // 10
    np.save(folder / "train.npy", np.stack([users[:cut], items[:cut]]))
    (folder / "ml").mkdir()
    for name, part in (("train", slice(0, cut)), ("valid", slice(cut, cut + 100)), ("test", slice(cut + 100, None))):
        lines = [f"{user}\t{item}" for user, item in zip(users[part], items[part], strict=True)]
        (folder / "ml" / f"ml.{name}.inter").write_text("\n".join(["user_id:token\titem_id:token", *lines]))


def epoch_seconds(python: str, code: str, folder: Path, epochs: int) -> float:
    done = subprocess.run(
        [python, "-c", code + TIMED.format(epochs=epochs), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        cwd=folder if python != sys.executable else None,
    )
    if done.returncode:
        raise SystemExit(f"a benchmark process failed:\n{done.stderr}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recbole", help="the interpreter of an environment with recbole 1.2.1")
    parser.add_argument("--pyg", help="the interpreter of an environment with torch_geometric")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    words = parser.parse_args()
    contestants = {"dgcf": (sys.executable, OURS), "RecBole": (words.recbole, RECBOLE), "PyG (CSR)": (words.pyg, PYG)}
    present = {name: (python, code) for name, (python, code) in contestants.items() if python}
    seconds: dict[str, list[float]] = {name: [] for name in present}
    with tempfile.TemporaryDirectory() as temporary:
        write_data(Path(temporary))
        for _ in range(words.rounds):
            for name, (python, code) in present.items():
                seconds[name].append(epoch_seconds(python, code, Path(temporary), words.epochs))
    ours = median(seconds["dgcf"])
    rows = [[name, f"{median(times):.3f}", f"{median(times) / ours:.1f}"] for name, times in seconds.items()]
    print(f"{hardware()}; median of {words.rounds} rounds of {words.epochs} epochs")
    print(markdown(["LightGCN", "s/epoch", "times ours"], rows))


if __name__ == "__main__":
    main()

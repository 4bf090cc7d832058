"""Measure a training step shared by several processes, against one process, and what they exchange.

    python -m benchmarks.processes [--data deoscirec/ml-1m] [--processes 1 2 4] [--steps 60] [--dim 64] [--json]

Every process has one thread. The group sizes alternate in each round, so that a busy moment meets all of them; the
median of the rounds is shown. The bytes are those of the formulas in docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import hardware, markdown, median
from dgcf.data import load
from dgcf.models.base import GraphModel
from dgcf.train import resolve
from dgcf.train.api import build
from dgcf.train.engines.pick import pick_engine
from dgcf.train.shards import Group, sharding_of
from dgcf.train.shards.base import MODES, Mode
from dgcf.train.shards.world import ALONE, World, joined
from dgcf.train.trainer import Trainer


def main() -> None:
    args = _arguments()
    if args.worker:
        _work(args)
        return
    cells = [(mode, size) for size in args.processes for mode in (MODES if size > 1 else MODES[:1])]
    seconds: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    for _ in range(args.rounds):
        for mode, size in cells:
            seconds[mode, size].append(_run(args, mode, size))
    base = median(seconds[MODES[0], 1])
    rows = [
        [str(size), "–" if size == 1 else mode, f"{1000 * median(times):.1f}", f"{base / median(times):.2f}"]
        for (mode, size), times in seconds.items()
    ]
    if args.json:
        print(json.dumps([{"processes": size, "mode": mode, "seconds": t} for (mode, size), t in seconds.items()]))
        return
    print(f"{args.data}, d {args.dim}, batches of {args.batch_size}, {args.steps} steps a round; {hardware()}\n")
    print(markdown(["processes", "shard", "ms a step", "speed-up"], rows))


def _run(args: argparse.Namespace, mode: str, size: int) -> float:
    """Return the seconds of a step with a group of processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        command += ["-m", "benchmarks.processes", *sys.argv[1:], "--worker", str(out), "--mode", mode]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
        return float(out.read_text())


def _work(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dataset = load(args.data)
    settings: dict[str, Any] = {"dim": args.dim, "batch_size": args.batch_size, "blend": "none"}
    recipe = resolve("dgcf", dataset=dataset.name, preset="paper", settings=settings)
    with joined(lambda number: torch.device("cpu")) as world:
        seconds = _seconds(dataset, recipe, world, args.mode, args.steps)
        if world.first:
            Path(args.worker).write_text(str(seconds))


def _seconds(dataset: Any, recipe: Any, world: World, mode: Mode, steps: int) -> float:
    """Return the median of three parts of the steps, in seconds a step, after a warm-up."""
    model, propagation = build(dataset, recipe)
    assert isinstance(model, GraphModel)
    shared = world if isinstance(world, Group) and world.size > 1 else ALONE
    sharding = sharding_of(shared, mode, model, propagation)
    trainer = Trainer(model, propagation, dataset.train, recipe.train, sharding=sharding)
    engine = pick_engine([trainer])
    engine.begin_epoch(1, 0)
    batches, number, times = trainer.sampler.batches_per_epoch, 0, []
    for part in range(4):
        world.any(False)
        started = time.perf_counter()
        for _ in range(steps // 3):
            engine.step(number % batches)
            number += 1
        world.any(False)
        if part:
            times.append((time.perf_counter() - started) / (steps // 3))
    return median(times)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/ml-1m")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="columns", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Replay 30 days of a dated log: fold-in only, warm start (``dgcf update``) and full retraining, day by day.

    python -m benchmarks.replay {ml-1m,drifting} [--first-day DAY] [--days 30] [--retrain-every 3] [--only WAY]
    python -m benchmarks.replay --render          # all take --out FILE, the records

The model is trained before the first day, by ``dgcf train --on everything``. Each day adds its rows:

- fold-in: the trained model with all rows since, none of its weights changed (``dgcf update --epochs 0``)
- warm start: yesterday's model and today's rows, a chain over all days (``dgcf update --held-out 0``)
- retrained: all rows, on all pairs, with the epochs and item weights that validation chose before the first day: the
  last stage of ``dgcf train --on everything``, without the cost of the first. Every ``--retrain-every`` days.

Quality is measured on the new pairs of the next ``AHEAD`` days, of users with a pair so far, all known pairs masked.
Cost is the processor time of one thread, from reading the rows to the saved run, so that other processes do not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.drifting import DAY, START, TimedLog, drifting
from benchmarks.measure import hardware
from dgcf.data import Dataset, Pairs, load
from dgcf.data.catalog import fetch
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.evaluate.evaluator import Evaluator
from dgcf.experiments import stages
from dgcf.experiments.train import Options, start_runs
from dgcf.experiments.update import update
from dgcf.recommend import load as load_recommender
from dgcf.recommend.update import How
from dgcf.train import Observer
from dgcf.train.plan import Plan

RESULTS = Path("results/replay.jsonl")
AHEAD = 7
QUIET = Options("cpu", "train", 1e9, (), lambda: nullcontext(Observer()), lambda message: None)
Record = dict[str, Any]
CHAINS = {"warm": How(held_out=0.0)}
WAYS = ("fold-in", *CHAINS, "retrained")


def movielens() -> tuple[TimedLog, int]:
    """Return all ratings of MovieLens 1M by time, and the first day of the replay, in seconds."""
    path = fetch("ml-1m", lambda message: None, lambda done, total: None)["ratings"]
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    users, items, times = (np.array([row[column] for row in rows]) for column in (0, 1, 3))
    order = np.argsort(times.astype(np.int64), kind="stable")
    return TimedLog(users[order], items[order], times.astype(np.int64)[order]), _midnight("2000-07-01")


def generated() -> tuple[TimedLog, int]:
    """Return the drifting log, and the first day of the replay, in seconds."""
    return drifting(), START + 100 * DAY


LOGS: dict[str, Callable[[], tuple[TimedLog, int]]] = {"ml-1m": movielens, "drifting": generated}


def _midnight(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp())


@dataclass(frozen=True)
class _Splits:
    train: Pairs
    validation: Pairs
    test: Pairs


def quality(run: Path, known: TimedLog, ahead: TimedLog) -> dict[str, Any]:
    """Return the metrics of a run on the pairs ``ahead`` that are not known, of known users."""
    snapshot = load_recommender(run).snapshot

    def pairs(log: TimedLog) -> Pairs:
        found = [
            (snapshot.users.index_of(user), snapshot.items.index_of(item))
            for user, item in zip(log.users.tolist(), log.items.tolist(), strict=True)
            if user in snapshot.users and item in snapshot.items
        ]
        users, items = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return Pairs.from_indices(users, items, snapshot.n_users, snapshot.n_items)

    train = pairs(known)
    splits = _Splits(train, Pairs.empty(snapshot.n_users, snapshot.n_items), pairs(ahead).without(train))
    measured = Evaluator(splits, split="test", ks=[20]).evaluate(snapshot.ranking)
    means = {name: float(measured.means[name]) for name in ("ndcg@20", "recall@20")}
    return {**means, "users": measured.users_evaluated}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and its processor time in seconds."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def read(log: TimedLog, path: Path, split: Split) -> Dataset:
    """Return the dataset of a log, written to a file and read again."""
    return load(log.write(path), Preparation(split=split, keep_times=True))


def replay(
    name: str,
    first: int | None,
    days: int,
    every: int,
    ways: Collection[str],
    folder: Path,
    write: Callable[[Record], None],
) -> None:
    """Replay ``days`` days, and write a record for each day and each of the ``ways`` to refresh."""
    log, start = LOGS[name]()
    start = start if first is None else first
    base, began = log.between(0, start), int(log.time[0])
    data = read(base, folder / "base.csv", Split("random", (0.9, 0.1, 0.0)))
    plan = Plan("dgcf", on="everything")
    summary, seconds = timed(
        lambda: stages.start(data, plan, [0], folder / "base", str(data.save(folder / "data")), QUIET)[0]
    )
    chosen = {key: summary["settings"][key] for key in ("epochs", "blend", "blend_weights")}
    about = {"log": name, "pairs_before": len(base), "chosen": chosen, "hardware": hardware()}
    write({"kind": "base", **about, "seconds": seconds, "days_before": (start - began) // DAY})
    chains = {way: how for way, how in CHAINS.items() if way in ways}
    last = dict.fromkeys(chains, folder / "base")
    for day in range(days):
        now, end = start + day * DAY, start + (day + 1) * DAY
        today, known, ahead = log.between(now, end), log.between(0, end), log.between(end, end + AHEAD * DAY)
        since = log.between(start, end).write(folder / "since.csv")
        rows = today.write(folder / "today.csv")
        target = {way: folder / f"{way}-{day}" for way in ("fold-in", *chains, "retrained")}
        common = {"kind": "day", "log": name, "day": day, "new_rows": len(today), "pairs": len(known)}

        def record(way: str, spent: float, more: Record, ahead: TimedLog = ahead, known: TimedLog = known) -> None:
            write({**common, "way": way, "seconds": spent, **quality(target[way], known, ahead), **more})  # noqa: B023

        if "fold-in" in ways:
            _, spent = timed(lambda: update(folder / "base", since, target["fold-in"], QUIET, How(epochs=0)))  # noqa: B023
            record("fold-in", spent, {})
        for way, how in chains.items():
            answer, spent = timed(lambda: update(last[way], rows, target[way], QUIET, how))  # noqa: B023
            counts = {key: answer[key] for key in ("new_users", "new_items", "held_out")}
            epochs = {"epochs": answer["update"]["epochs"], "best": answer["update"]["best_epoch"]}
            record(way, spent, {**counts, **epochs})
            last[way] = target[way]
        if "retrained" in ways and every and day % every == every - 1:
            _, spent = timed(lambda: retrain(known, chosen, folder, target["retrained"]))  # noqa: B023
            record("retrained", spent, {"epochs": chosen["epochs"]})


def retrain(known: TimedLog, chosen: Record, folder: Path, target: Path) -> None:
    """Train from scratch on all pairs."""
    data = read(known, folder / "known.csv", Split("none"))
    dataset, recipe = Plan("dgcf", settings=chosen, on="everything").last_stage(data)
    start_runs(dataset, recipe, [0], target, str(folder / "known.csv"), QUIET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", choices=list(LOGS))
    parser.add_argument("--first-day", help="a date, or a number of days from the first event")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--retrain-every", type=int, default=3)
    parser.add_argument("--only", choices=WAYS, help="measure one way alone; its lists are those of a run with all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    if args.render:
        from benchmarks.replay_report import render

        render(args.out)
        return
    torch.set_num_threads(1)
    first = None
    if args.first_day is not None:
        days = args.first_day.isdecimal()
        first = START + int(args.first_day) * DAY if days else _midnight(args.first_day)

    def write(record: Record) -> None:
        print(json.dumps(record), flush=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        ways = WAYS if args.only is None else (args.only,)
        replay(args.log, first, args.days, args.retrain_every, ways, Path(folder), write)


if __name__ == "__main__":
    main()

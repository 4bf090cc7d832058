"""Replay ten days of a drifting log through two real services: one refreshes its model every night, one never does.

    python -m benchmarks.refresh [--seeds 3] [--days 10] [--out FILE]
    python -m benchmarks.refresh --render

Both services start with the same model, which is trained on 60 days, and get the same events of each day, with their
times. At the beginning of a day, before its events are posted, each service is asked over HTTP for the lists of all
users who have a new item that day. Both fold the events in as they come; the refresh is ``POST /v1/admin/refresh``
after the events of the day.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from tests.serve.service import ADMIN, Service, tokens_file

from benchmarks.drifting import DAY, START, TimedLog, drifting
from benchmarks.measure import hardware, markdown
from dgcf.client import Client
from dgcf.data import load
from dgcf.data.pairs import Pairs
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.evaluate.metrics import METRICS, hit_matrix
from dgcf.recommend import Recommender

RESULTS, PAGE, PICTURE = Path("results/refresh.jsonl"), Path("docs/serving.md"), Path("docs/images/refresh.svg")
BEGIN, END = "<!-- generated: refresh -->", "<!-- end: refresh -->"
USERS, ITEMS, PER_DAY, BEFORE = 1200, 600, 150, 60
"""The size of the log, and the days before the replay."""
K, TOGETHER, BATCH = 20, 200, 1000
WAYS = {"refreshed": "refresh every night", "fixed": "events alone, no refresh"}
Record = dict[str, Any]


def replay(seed: int, days: int, folder: Path, write: Callable[[Record], None]) -> None:
    """Replay the days of the log of a seed, and write a record for each day and way."""
    log = drifting(USERS, ITEMS, BEFORE + days + 1, PER_DAY, seed=seed)
    base = log.between(0, START + BEFORE * DAY)
    data = load(base.write(folder / "base.csv"), Preparation(split=Split("random", (0.9, 0.1, 0.0)), keep_times=True))
    began = time.perf_counter()
    Recommender("dgcf", seed=seed, device="cpu").fit(data, on="everything").save(folder / "base.dgcf")
    about = {"pairs_before": len(base), "training_seconds": time.perf_counter() - began, "hardware": hardware()}
    write({"kind": "base", "seed": seed, **about})
    with ExitStack() as stack:
        services = {way: stack.enter_context(_service(folder, way)) for way in WAYS}
        clients = {way: stack.enter_context(service.client(ADMIN, timeout=120)) for way, service in services.items()}
        for day in range(days + 1):
            today = log.between(START + (BEFORE + day) * DAY, START + (BEFORE + day + 1) * DAY)
            known = set(log.between(0, START + (BEFORE + day) * DAY).users.tolist())
            for way, client in clients.items():
                record = {"kind": "day", "seed": seed, "day": day, "way": way, "events": len(today)}
                record |= quality(client, today, known)
                post(client, today)
                if way == "refreshed":
                    record["refresh"] = refresh(client)
                write(record)


def _service(folder: Path, way: str) -> Service:
    own = folder / way
    own.mkdir()
    return Service(folder / "base.dgcf", own / "data", "--tokens", str(tokens_file(own, "admin")))


def quality(client: Client, today: TimedLog, known: set[str]) -> Record:
    """Return the metrics of the lists on the events of today, of users who had an event before."""
    users = sorted(set(today.users.tolist()) & known)
    items = {item: place for place, item in enumerate(sorted(set(today.items.tolist())))}
    place = {user: row for row, user in enumerate(users)}
    rows = [
        (place[user], items[item])
        for user, item in zip(today.users.tolist(), today.items.tolist(), strict=True)
        if user in place
    ]
    pairs = np.array(rows, dtype=np.int64)
    relevant = Pairs.from_indices(pairs[:, 0], pairs[:, 1], len(users), len(items))
    ranked = np.full((len(users), K), -1, dtype=np.int64)
    versions = set()
    for start in range(0, len(users), TOGETHER):
        answer = client.recommend_users(users[start : start + TOGETHER], k=K)
        versions.add(answer["model"])
        for row, one in enumerate(answer["users"], start):
            best = [items.get(str(entry["item"]), -1) for entry in one["recommendations"]]
            ranked[row, : len(best)] = best
    hits = hit_matrix(ranked, np.arange(len(users)), relevant)
    means = {name: float(METRICS[name](hits, relevant.user_degrees, K).mean()) for name in ("ndcg", "recall")}
    return {f"{name}@{K}": value for name, value in means.items()} | {"users": len(users), "model": max(versions)}


def post(client: Client, today: TimedLog) -> None:
    """Store the events of a day."""
    rows = zip(today.users.tolist(), today.items.tolist(), today.time.tolist(), strict=True)
    events = [{"user": user, "item": item, "time": float(at), "key": f"{user} {item}"} for user, item, at in rows]
    for start in range(0, len(events), BATCH):
        client.send_events(events[start : start + BATCH])  # type: ignore[arg-type]


def refresh(client: Client) -> Record:
    """Refresh the model, wait until it is served, and return what came of it."""
    began = time.perf_counter()
    client.refresh()
    while (state := client.refresh_state())["state"] == "running":
        time.sleep(0.2)
    seconds = time.perf_counter() - began
    last = state["last"]
    assert last is not None
    while last["version"] is not None and client.model()["version"] != last["version"]:
        time.sleep(0.1)
    return {"seconds": seconds, "result": last["result"], "detail": last["detail"]}


# -- the report -------------------------------------------------------------------------------------------------------


def table(records: Sequence[Record]) -> str:
    """Return the means over the seeds for each day after a refresh, and over all of these days."""
    days = sorted({record["day"] for record in records if record["kind"] == "day"} - {0})
    lines = [_line(records, str(day), [day]) for day in days]
    header = ["day", *(f"NDCG@{K}, {name}" for name in WAYS.values()), "difference", "refresh, s"]
    return markdown(header, [*lines, _line(records, "all", days)])


def _line(records: Sequence[Record], name: str, days: Sequence[int]) -> list[str]:
    values = {way: _values(records, way, days) for way in WAYS}
    first, second = values["refreshed"], values["fixed"]
    error = np.std(first - second, ddof=1) / np.sqrt(len(first)) if len(first) > 1 else np.nan
    relative, spread = (first - second).mean() / second.mean(), error / second.mean()
    before = [record for record in records if record.get("way") == "refreshed" and record["day"] + 1 in days]
    seconds = np.mean([record["refresh"]["seconds"] for record in before])
    return [name, f"{first.mean():.4f}", f"{second.mean():.4f}", f"{relative:+.1%} ± {spread:.1%}", f"{seconds:.1f}"]


def _values(records: Sequence[Record], way: str, days: Sequence[int]) -> Any:
    return np.array([r[f"ndcg@{K}"] for r in records if r.get("way") == way and r["day"] in days])


def picture(records: Sequence[Record], path: Path) -> None:
    """Draw the quality of both ways by day, the mean over the seeds."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dgcf"
    from matplotlib import pyplot as plt

    days = sorted({record["day"] for record in records if record["kind"] == "day"})
    figure, axis = plt.subplots(figsize=(6, 3.5))
    for way, name in WAYS.items():
        axis.plot(days, [_values(records, way, [day]).mean() for day in days], marker="o", label=name)
    axis.set_xlabel("day")
    axis.set_ylabel(f"NDCG@{K} of the day")
    axis.legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def render(results: Path) -> None:
    """Write the picture, and the table into the page."""
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    picture(records, PICTURE)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(records)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    if args.render:
        render(args.out)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def write(record: Record) -> None:
        print(json.dumps(record), flush=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            replay(seed, args.days, Path(folder), write)


if __name__ == "__main__":
    main()

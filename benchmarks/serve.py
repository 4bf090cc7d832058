"""Load the service with a composed model of Gowalla's size, beside a plain FastAPI service over implicit's ALS.

    python -m benchmarks.serve [--seconds 15] [--rounds 3] [--connections 32] [--soak MINUTES] [--load 0.7] [--arms]

Needs ``wrk``, the extras ``serve`` and ``ials``, and the data. One worker, k 20; wrk runs on the same machine with one
thread. The services alternate in each round, and only one of them runs at a time. Users and items are drawn at random,
so an answer is rarely repeated. The embeddings are initial weights: no time depends on what was learned. ``--soak``
loads the service for two minutes at its full rate and then for MINUTES at a share of it, and prints the slope of the
memory of all its processes. ``--arms`` measures a service with two arms of the same model, and one with a shadow,
against one without, in place of all that; these services wait while another one is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.composed import composed_recommender
from benchmarks.measure import hardware, markdown, median
from dgcf.data import load
from dgcf.recommend import Recommender, artifact

LOADS = Path(__file__).parent / "loads"
PEER = Path(__file__).parent / "peers" / "als_service.py"
TOKENS = {scope: f"benchmark-{scope}-token-{os.getpid():08d}" for scope in ("read", "write", "admin")}
ADMIN = f"Authorization: Bearer {TOKENS['admin']}"
PAUSE = 17.0
"""Milliseconds that a connection of a paced load waits after each answer: about 1,600 requests a second with 32."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main() -> None:
    args = _arguments()
    dataset = load(args.data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, _, rec = composed_recommender(dataset, args.dim, 400)
        _save_two(rec, folder)
        _write_peer(rec, folder)
        size = f"{dataset.n_users:,} users × {dataset.n_items:,} items, d {args.dim}, 400 neighbours"
        del rec, dataset
        if args.arms:
            _arms(folder, args)
            return
        print(f"{size}; one worker, k 20, {args.connections} connections; {hardware()}\n", flush=True)
        measured: dict[str, list[dict[str, float]]] = {}
        for number in range(args.rounds):
            for label, result in [*_ours(folder, args, number), *_peer(folder, args, number)]:
                measured.setdefault(label, []).append(result)
        print(
            markdown(["load", "a second", "p50, ms", "p99, ms", "failed"], [_row(*pair) for pair in measured.items()])
        )
        known, peer = (measured[label] for label in ("dgcf: known users", "ALS and FastAPI: known users"))
        ratio = median([one["rate"] / other["rate"] for one, other in zip(known, peer, strict=True)])
        print(f"\nknown users, dgcf ÷ ALS: {ratio:.2f}")
        if args.soak:
            _soak(folder, args, median([one["rate"] for one in known]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="deoscirec/gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--arms", action="store_true")
    args = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed; install Debian's package wrk.")
    return args


def _row(label: str, rounds: list[dict[str, float]]) -> list[str]:
    middle = {name: median([one[name] for one in rounds]) for name in ("rate", "p50", "p99")}
    failed = sum(one["statuses"] + one["sockets"] for one in rounds)
    return [label, f"{middle['rate']:,.0f}", f"{middle['p50']:.1f}", f"{middle['p99']:.1f}", f"{failed:.0f}"]


# -- the services -----------------------------------------------------------------------------------------------------


def _write_peer(rec: Any, folder: Path) -> None:
    """Write ids, factors and seen items for the peer; both services rank embeddings of the same size."""
    snapshot = rec.snapshot
    np.save(folder / "users.npy", snapshot.user_rows)
    np.save(folder / "items.npy", snapshot.item_rows)
    scipy.sparse.save_npz(folder / "seen.npz", snapshot.seen.to_scipy())
    (folder / "users.txt").write_text("\n".join(snapshot.users.texts) + "\n")
    (folder / "items.txt").write_text("\n".join(snapshot.items.texts) + "\n")


@contextlib.contextmanager
def _service(folder: Path, *words: str) -> Iterator[tuple[str, int]]:
    """Start ``dgcf serve``; yield its address and the id of its first process."""
    variables = {f"DGCF_{scope.upper()}_TOKEN": token for scope, token in TOKENS.items() if scope != "read"}
    data = tempfile.mkdtemp(dir=folder)
    command = [
        sys.executable,
        "-m",
        "dgcf",
        "serve",
        str(folder / "model.dgcf"),
        "--port",
        "0",
        "--data",
        data,
        "--json",
        *words,
    ]
    with _process(command, variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("dgcf serve did not start")
        yield json.loads(line)["url"], process.pid


@contextlib.contextmanager
def _als(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _process([sys.executable, str(PEER), str(folder), str(port)], {}):
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/openapi.json", timeout=1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise SystemExit("the peer did not start") from None
                time.sleep(0.2)
        yield url


@contextlib.contextmanager
def _process(command: list[str], variables: dict[str, str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **ONE_THREAD, **variables}
    process = subprocess.Popen(command, env=environment, text=True, stderr=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# -- the loads --------------------------------------------------------------------------------------------------------


def _ours(folder: Path, args: argparse.Namespace, number: int) -> Iterator[tuple[str, dict[str, float]]]:
    with _service(folder) as (url, _):
        _wrk("known", url, "/v1/recommend/", folder, args, seconds=2)  # a warm-up
        yield "dgcf: known users", _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 1)
        yield "dgcf: new users, 3 items", _wrk("new", url, "/v1/recommend", folder, args, seed=number + 1)
        yield (
            "dgcf: known users, paced",
            _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 7, pause=PAUSE),
        )
        with _reloads(folder, url):
            during = _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 9, pause=PAUSE)
            yield "dgcf: known users, paced, during reloads", during
            yield (
                "dgcf: known users, during reloads",
                _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 11),
            )
        stored = _wrk("events", url, "/v1/events", folder, args, seed=number + 1)
        yield "dgcf: durable events, 10 a request", {**stored, "rate": 10 * stored["rate"]}
        yield "dgcf: known users with events", _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 5)


def _peer(folder: Path, args: argparse.Namespace, number: int) -> Iterator[tuple[str, dict[str, float]]]:
    with _als(folder) as url:
        _wrk("known", url, "/recommend/", folder, args, seconds=2)
        yield "ALS and FastAPI: known users", _wrk("known", url, "/recommend/", folder, args, seed=number + 1)
        yield "ALS and FastAPI: new users, 3 items", _wrk("new", url, "/recommend", folder, args, seed=number + 1)


def _wrk(
    script: str,
    url: str,
    path: str,
    folder: Path,
    args: argparse.Namespace,
    *,
    seconds: float | None = None,
    seed: int = 0,
    pause: float = 0.0,
) -> dict[str, float]:
    """Return requests a second and percentiles of the latency in ms of one load."""
    variables = {
        "LOAD_USERS": str(folder / "users.txt"),
        "LOAD_ITEMS": str(folder / "items.txt"),
        "LOAD_REPORT": str(LOADS / "report.lua"),
        "LOAD_PATH": path,
        "LOAD_SEED": str(seed),
        "LOAD_PAUSE": f"{pause:.0f}",
        "LOAD_KEY": f"{os.getpid()}-{seed}-{time.monotonic_ns()}",
    }
    command = ["wrk", "-t1", f"-c{args.connections}", f"-d{seconds or args.seconds:.0f}s", "--latency"]
    command += ["-H", f"Authorization: Bearer {TOKENS['write']}", "-s", str(LOADS / f"{script}.lua"), url]
    found = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True).stdout
    result = json.loads(next(line for line in found.splitlines() if line.startswith("{")))
    return {**result, "rate": result["requests"] / result["seconds"]}


@contextlib.contextmanager
def _reloads(folder: Path, url: str) -> Iterator[None]:
    """Replace the model by another one of the same size, and reload it, every two seconds."""
    ended = threading.Event()
    failures: list[str] = []

    def run() -> None:
        number = 0
        while not ended.wait(2):
            number += 1
            _put_in_place(folder, ("other.dgcf", "first.dgcf")[number % 2])
            request = urllib.request.Request(f"{url}/v1/admin/reload", b"", dict([ADMIN.split(": ")]), method="POST")
            try:
                urllib.request.urlopen(request, timeout=60).close()
            except OSError as problem:
                failures.append(str(problem))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _put_in_place(folder, "first.dgcf")
    if failures:
        raise SystemExit(f"a reload failed: {failures[0]}")


def _put_in_place(folder: Path, name: str) -> None:
    """Let ``model.dgcf`` be a link to the file of this name."""
    beside = folder / "next.dgcf"
    beside.symlink_to(name)
    beside.replace(folder / "model.dgcf")


def _save_two(rec: Recommender, folder: Path) -> None:
    """Save the model, and again with another seed in its description, so that its checksum differs."""
    rec.save(folder / "first.dgcf")
    other = dataclasses.replace(rec.snapshot, about={**rec.snapshot.about, "seed": 1})
    artifact.save(other, folder / "other.dgcf")
    _put_in_place(folder, "first.dgcf")


# -- arms -------------------------------------------------------------------------------------------------------------


def _arms(folder: Path, args: argparse.Namespace) -> None:
    """Print what arms and shadows cost, as ratios to a service of one model in the same round."""
    model = folder / "model.dgcf"
    variants: dict[str, list[str]] = {
        "one model": [],
        "two arms": ["--arm", f"b={model}", "--experiment", "benchmark"],
        "a shadow for 10 %": ["--shadow", f"c={model}"],
    }
    ratios: dict[str, list[dict[str, float]]] = {label: [] for label in variants}
    names = ("rate", "p50", "p99", "us")
    with contextlib.ExitStack() as stack:
        services = {label: stack.enter_context(_service(folder, *words)) for label, words in variants.items()}
        started = {label: _memory(pid) for label, (_, pid) in services.items()}
        for number in range(args.rounds):
            order = [*variants] if number % 2 else [*variants][::-1]
            results: dict[str, dict[str, float]] = {}
            for label in order:
                url, pid = services[label]
                before = _processor(pid)
                result = _wrk("known", url, "/v1/recommend/", folder, args, seed=number + 1)
                results[label] = {**result, "us": (_processor(pid) - before) / result["requests"] * 1e6}
            base = results["one model"]
            for label, result in results.items():
                ratios[label].append({name: result[name] / base[name] for name in names})
            shown = (f"{label} {result['p99']:.1f} ms, {result['us']:.0f} µs" for label, result in results.items())
            print(f"round {number}, p99 and processor time of a request: {'; '.join(shown)}", flush=True)
        rows = [
            [
                label,
                *(f"{median([one[name] for one in rounds]):.2f}" for name in names),
                f"{(started[label] - started['one model']) / 2**20:+.0f}",
            ]
            for label, rounds in ratios.items()
        ]
    print(markdown(["service", "rate", "p50", "p99", "processor time of a request", "memory, MB"], rows))


def _processor(pid: int) -> float:
    """Return the processor seconds of the workers of a service."""
    ticks = 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# -- the soak ---------------------------------------------------------------------------------------------------------


def _soak(folder: Path, args: argparse.Namespace, rate: float) -> None:
    """Hold a share of the rate, and print the slope of the memory of all processes of the service."""
    with _service(folder) as (url, pid):
        _wrk("known", url, "/v1/recommend/", folder, args, seconds=120)  # fills the kept lists
        pause = 1000 * args.connections / (args.load * rate)
        samples: list[tuple[float, float]] = []
        ended = threading.Event()

        def sample() -> None:
            started = time.monotonic()
            while not ended.wait(5):
                samples.append((time.monotonic() - started, _memory(pid)))

        thread = threading.Thread(target=sample)
        thread.start()
        result = _wrk("known", url, "/v1/recommend/", folder, args, seconds=60 * args.soak, seed=77, pause=pause)
        ended.set()
        thread.join()
    minutes, megabytes = np.array(samples).T / [[60], [2**20]]
    slope = np.polyfit(minutes, megabytes, 1)[0]
    failed = result["statuses"] + result["sockets"]
    print(
        f"\nsoak of {args.soak:g} minutes: {result['rate']:,.0f} requests a second, {result['rate'] / rate:.0%} of the "
        f"rate above; p99 {result['p99']:.1f} ms, {failed:.0f} failed"
    )
    print(f"memory: {megabytes[0]:.0f} MB at first, {megabytes[-1]:.0f} MB at last, slope {slope:+.3f} MB a minute")


def _memory(pid: int) -> float:
    """Return the resident bytes, without shared pages counted twice, of a process and its children."""
    pids, total = [pid], 0.0
    for parent in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
            pss = next(
                line for line in Path(f"/proc/{parent}/smaps_rollup").read_text().splitlines() if line[:4] == "Pss:"
            )
            total += 1024 * float(pss.split()[1])
    return total


if __name__ == "__main__":
    main()

"""Kill real ``dgcf`` processes at chosen system calls: ``python -m tests.fuzz.kills --count 200 --seed 0``.

strace sends SIGKILL when a process enters the N-th of its calls that change files. After a kill the target must be the
complete old or new one. The same command, started again, must end with the result of an undisturbed run and leave no
other files.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.jobs import BASE, JOBS, Job, Words, write_pairs

PROJECT = Path(__file__).resolve().parents[2]
BY_PATH = ("openat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "link")
BY_HANDLE = ("write", "pwrite64", "writev", "fsync", "fdatasync", "ftruncate")
SECONDS = 300


@dataclass(frozen=True)
class Call:
    """The ``count``-th call of one kind in a thread."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}"

    @classmethod
    def parse(cls, text: str) -> Call:
        kind, _, count = text.partition(":")
        return cls(kind, int(count))


class Bench:
    """A folder to run commands in, always in ``work``, so that the recorded paths are the same."""

    def __init__(self, root: Path) -> None:
        self.work, self.log = root / "work", root / "strace.txt"
        self.saved = root / "saved"
        self.saved.mkdir()
        for name in ("cache", "temporary", "matplotlib"):
            (root / name).mkdir()
        self.environment = os.environ | {
            "PYTHONPATH": str(PROJECT / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "DGCF_CACHE": str(root / "cache"),
            "TMPDIR": str(root / "temporary"),
            "MPLCONFIGDIR": str(root / "matplotlib"),
        }

    def run(self, words: Words, *tracing: str) -> subprocess.CompletedProcess[str]:
        command = [*tracing, sys.executable, "-m", "dgcf", *words]
        return subprocess.run(
            command, cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def succeed(self, words: Words) -> None:
        done = self.run(words)
        if done.returncode:
            raise RuntimeError(f"dgcf {' '.join(words)} failed: {done.stderr}")

    def kill(self, words: Words, call: Call) -> bool:
        """Run a command up to a call; return whether it was killed there."""
        options = ("-f", "-qq", "-o", os.devnull, "-e", f"trace={call.kind}")  # no --seccomp-bpf: it loses the signal
        injection = f"inject={call.kind}:signal=KILL:when={call.count}"
        return self.run(words, "strace", *options, "-e", injection).returncode < 0

    def calls(self, words: Words) -> list[Call]:
        """Run a command to its end; return its calls that change files in ``work``."""
        options = ("-f", "--seccomp-bpf", "-qq", "-y", "-o", str(self.log))
        done = self.run(words, "strace", *options, "-e", f"trace={','.join(BY_PATH + BY_HANDLE)}")
        if done.returncode:
            raise RuntimeError(f"dgcf {' '.join(words)} failed under strace: {done.stderr}")
        counts: Counter[tuple[str, str]] = Counter()
        changing = []
        for thread, kind, arguments in re.findall(r"^(\d+) +(\w+)\((.*)$", self.log.read_text(), re.MULTILINE):
            counts[thread, kind] += 1
            if self._changes(kind, arguments):
                changing.append(Call(kind, counts[thread, kind]))
        return changing

    def _changes(self, kind: str, arguments: str) -> bool:
        if kind in BY_HANDLE:
            return f"<{self.work}" in arguments.partition(">")[0]
        inside = str(self.work) in arguments or '"/' not in arguments
        return inside and (kind != "openat" or "O_CREAT" in arguments)

    def keep(self, name: str) -> None:
        shutil.copytree(self.work, self.saved / name)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.saved / name, self.work)

    def names(self) -> set[str]:
        return {str(path.relative_to(self.work)) for path in self.work.rglob("*")}


class Jobs:
    """The jobs on a bench, each measured once before it is killed."""

    def __init__(self, root: Path) -> None:
        self.bench = Bench(root)
        self.measured: dict[str, Measured] = {}

    def restore_base(self, length: int) -> None:
        """Restore the tables and the results of the first ``length`` commands of ``BASE``, each run once."""
        name = f"base-{length}"
        if not (self.bench.saved / name).exists():
            if length:
                self.restore_base(length - 1)
                self.bench.succeed(BASE[length - 1])
            else:
                self.bench.work.mkdir()
                write_pairs(self.bench.work)
            self.bench.keep(name)
        self.bench.restore(name)

    def measure(self, name: str) -> Measured:
        """Run a job undisturbed, once; return its calls and the states before and after it."""
        if name not in self.measured:
            job, bench = JOBS[name], self.bench
            self.restore_base(job.base)
            if job.before and job.interrupted:
                renames = [call for call in bench.calls(job.before) if call.kind == "rename"]
                self.restore_base(job.base)
                bench.kill(job.before, renames[len(renames) // 2])
            elif job.before:
                bench.succeed(job.before)
            bench.keep(name)
            old = job.state(bench.work)
            calls = bench.calls(job.words)
            self.measured[name] = Measured(name, job, calls, old, job.state(bench.work), bench.names())
        return self.measured[name]

    def strike(self, name: str, call: Call) -> tuple[bool, list[str]]:
        """Kill a job at a call and start it again; return whether it was killed there, and the problems."""
        measured, bench = self.measure(name), self.bench
        bench.restore(name)
        killed = bench.kill(measured.job.words, call)
        problems = [f"after the kill, {problem}" for problem in measured.wrong_after_kill(bench.work)]
        problems += [f"after the restart, {problem}" for problem in measured.wrong_after_restart(bench)]
        return killed, problems


@dataclass(frozen=True)
class Measured:
    """A job with its calls, the states before (``old``) and after it (``new``), and the names of all files after it."""

    name: str
    job: Job
    calls: list[Call]
    old: str | None
    new: str | None
    names: set[str]

    def draw(self, chance: random.Random) -> Call:
        """Return a random call, of a random kind."""
        kind = chance.choice(sorted({call.kind for call in self.calls}))
        return chance.choice([call for call in self.calls if call.kind == kind])

    def wrong_after_kill(self, work: Path) -> list[str]:
        try:
            state = self.job.state(work)
        except Exception as problem:
            return [f"{self.job.target} cannot be read: {problem}"]
        if state is None and self.old is not None:
            return [f"{self.job.target} is gone"]
        if not self.job.gradual and state not in (self.old, self.new):
            return [f"{self.job.target} is neither the old one nor the new one"]
        return []

    def wrong_after_restart(self, bench: Bench) -> list[str]:
        try:
            ready = not self.job.gradual and self.old is None and self.job.state(bench.work) == self.new
            done = bench.run(self.job.words)
            if done.returncode and self.job.again:
                done = bench.run(self.job.again)
            if done.returncode and not ready:  # an existing target may be refused
                return [f"the command failed: {done.stderr.strip()[-300:]}"]
            problems = [] if self.job.state(bench.work) == self.new else [f"{self.job.target} is another one"]
        except Exception as problem:
            return [f"{self.job.target} cannot be read: {problem}"]
        left, missing = bench.names() - self.names, self.names - bench.names()
        problems += [f"{name} is left over" for name in sorted(left) if str(Path(name).parent) not in left]
        return problems + [f"{name} is missing" for name in sorted(missing)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kills", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="how many kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", action="append", choices=JOBS, help="only this job; repeatable")
    parser.add_argument("--at", type=Call.parse, help="one kill at this call, as KIND:N")
    chosen = parser.parse_args()
    jobs, chance = chosen.job or list(JOBS), random.Random(chosen.seed)
    with tempfile.TemporaryDirectory(prefix="dgcf-kills-") as root:
        targets, kills, failures, began = Jobs(Path(root)), 0, 0, time.monotonic()
        for number in range(1 if chosen.at else chosen.count):
            name = jobs[number % len(jobs)]
            call = chosen.at or targets.measure(name).draw(chance)
            killed, problems = targets.strike(name, call)
            kills += killed
            failures += bool(problems)
            for problem in problems:
                print(f"{name}: {problem}")
            if problems or not killed:
                how = "failed" if problems else "ended before the call"
                print(f"{name}: {how}: python -m tests.fuzz.kills --job {name} --at {call}", flush=True)
    print(f"seconds: {time.monotonic() - began:.0f}")
    print(f"kills: {kills}, failures: {failures}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

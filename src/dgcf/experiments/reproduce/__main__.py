"""``python3 -m dgcf.experiments.reproduce ID``: what ``dgcf reproduce`` does, with torch and SciPy alone.

Several processes with the same command share the work: each takes what no other has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dgcf.errors import DgcfError
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.runner import Runner, Watcher, describe


class Lines(Watcher):
    """A line of text for everything that happens."""

    def began(self, todo: int, known: int) -> None:
        self.note(f"cells: {known} recorded, {todo} to compute")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def finished(self, line: Mapping[str, Any]) -> None:
        self.note(describe(line))

    def taken_over(self, line: Mapping[str, Any], origin: str) -> None:
        self.note(describe(line, origin))


def main(words: list[str] | None = None) -> int:
    """Run it; 0 where every cell is recorded now, 1 where some are missing or something is wrong."""
    parser = argparse.ArgumentParser(prog="python3 -m dgcf.experiments.reproduce", description=__doc__)
    parser.add_argument("experiment", metavar="ID")
    parser.add_argument("--data", type=Path, help="a folder of datasets that `dgcf reproduce ID --prepare` wrote")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the results are kept")
    parser.add_argument("--recipes", type=Path, default=Path("recipes"), help="where the recipes are")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seeds", type=int, help="the first so many seeds only")
    parser.add_argument("--only", help="only cells whose key has this in it (* is anything, ^ its beginning)")
    parser.add_argument("--limit-seconds", type=float, help="begin nothing that would probably end later")
    given = parser.parse_args(words)
    try:
        runner = Runner(Recipes.read(given.recipes), Store(given.results), given.data, given.device)
        tally = runner.run(
            given.experiment, seeds=given.seeds, only=given.only, limit=given.limit_seconds, watcher=Lines()
        )
    except DgcfError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what is finished is kept, and the same command goes on from there.", file=sys.stderr)
        return 130
    print(json.dumps(tally.to_dict(), ensure_ascii=False))
    return 1 if tally.missing else 0


if __name__ == "__main__":
    sys.exit(main())

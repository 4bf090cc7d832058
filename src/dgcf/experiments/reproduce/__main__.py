"""``python3 -m dgcf.experiments.reproduce ID``: run ``dgcf reproduce`` with torch and SciPy alone.

Several processes with the same command share the work.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dgcf.errors import DgcfError
from dgcf.experiments.progress import ProgressLines
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.runner import Runner


def main(args: list[str] | None = None) -> int:
    """Run an experiment; return 0 if every cell is recorded, 1 if cells are missing or an error occurred."""
    parser = argparse.ArgumentParser(prog="python3 -m dgcf.experiments.reproduce", description=__doc__)
    parser.add_argument("experiment", metavar="ID")
    parser.add_argument("--data", type=Path, help="a folder of datasets that `dgcf reproduce ID --prepare` wrote")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of results")
    parser.add_argument("--recipes", type=Path, default=Path("recipes"), help="the folder of recipes")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seeds", type=int, help="only the first N seeds", metavar="N")
    parser.add_argument("--only", help="only cells with this in their key (* matches anything, ^ its start)")
    parser.add_argument("--limit-seconds", type=float, help="start nothing that would probably end later")
    options = parser.parse_args(args)
    progress = ProgressLines("cells", lambda text: print(text, file=sys.stderr, flush=True))
    try:
        runner = Runner(Recipes.read(options.recipes), Store(options.results), options.data, options.device)
        tally = runner.run(
            options.experiment, seeds=options.seeds, only=options.only, limit=options.limit_seconds, progress=progress
        )
    except DgcfError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; finished cells are recorded, and the same command resumes the work.", file=sys.stderr)
        return 130
    print(json.dumps(vars(tally), ensure_ascii=False))
    return 1 if tally.missing else 0


if __name__ == "__main__":
    sys.exit(main())

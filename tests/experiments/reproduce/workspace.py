"""A workspace for tests of the reproduction: small recipes on a planted dataset, and the runner as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.data.synthetic import planted
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.runner import Runner

QUICK = "epochs = 4, evaluate_every = 2, dim = 8, batch_size = 256, epsilon = 0.02"
RECIPES = {
    "first": f"""
title = "The first"
[[grid]]
data = ["small"]
models = ["dgcf"]
settings = ["paper"]
set = {{ {QUICK} }}
sweep = {{ layers = [1, 2] }}
[[grid]]
kind = "statistics"
data = ["small"]
""",
    "second": f"""
title = "The second, with more measures of the same training"
[[grid]]
data = ["small"]
models = ["dgcf"]
settings = ["paper"]
measures = ["curve", "groups", "gates", "gate-histogram", "pattern", "smoothness"]
set = {{ {QUICK} }}
sweep = {{ layers = [2] }}
""",
    "third": """
title = "Settings that are not decided yet"
[[grid]]
data = ["small"]
models = ["lightgcn"]
settings = ["tuned"]
""",
}


@dataclass(frozen=True)
class Workspace:
    """A folder with recipes, prepared data and results."""

    root: Path

    @property
    def store(self) -> Store:
        return Store(self.root / "results")

    @property
    def recipes(self) -> Recipes:
        return Recipes.read(self.root / "recipes")

    @property
    def runner(self) -> Runner:
        return Runner(self.recipes, self.store, self.root / "data", "cpu")

    def write(self, name: str, text: str) -> None:
        (self.root / "recipes" / "reproduce" / f"{name}.toml").write_text(text, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``python -m dgcf.experiments.reproduce`` on this workspace."""
        return subprocess.Popen(
            [sys.executable, "-m", "dgcf.experiments.reproduce", *words, *self.words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def words(self) -> list[str]:
        folders = {"--data": "data", "--results": "results", "--recipes": "recipes"}
        return [word for option, name in folders.items() for word in (option, str(self.root / name))] + [
            *("--device", "cpu")
        ]

    def lines(self, experiment: str) -> list[dict[str, Any]]:
        """Return the raw lines of a results file."""
        return [json.loads(line) for line in self.store.path(experiment).read_text().splitlines()]


def make_workspace(root: Path, **recipes: str) -> Workspace:
    """Write the small dataset and the recipes of this module, or others, below ``root``."""
    dataset = planted(120, 60)
    dataset.save(root / "data" / "small")
    workspace = Workspace(root)
    (root / "recipes" / "reproduce").mkdir(parents=True)
    about = 'title = "Small"\nknown = "planted"\nfamily = "small"\nseeds = 2'
    workspace.write("data", f'[small]\n{about}\nfingerprints = ["{dataset.fingerprint}"]\n')
    for name, text in (recipes or RECIPES).items():
        workspace.write(name, text)
    return workspace


def trial_grid(models: str, loop: str, candidates: str, *, decides: str = "tuned", more: str = "") -> str:
    """Return a grid of trials on the small dataset for a recipe; the arguments are TOML."""
    return f"""
[[grid]]
kind = "trial"
decides = "{decides}"
data = ["small"]
models = {models}
settings = ["paper"]
{more}
set = {{ {loop} }}
candidates = {candidates}
"""

"""Run by torchrun in the tests: train a list of cases with all processes, and each alone in the first one.

torchrun --nproc-per-node n -m tests.train.together CASES.json RESULTS.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dgcf.evaluate.validation import validator
from dgcf.models.base import GraphModel
from dgcf.train import SeedJob, resolve, train_together
from dgcf.train.api import build
from dgcf.train.shards import ALONE, Group, World
from dgcf.train.shards.rows import Rows
from dgcf.train.shards.world import joined
from tests.train.planted_tastes import planted_tastes


def main(cases: Path, results: Path) -> None:
    torch.set_num_threads(1)
    answers = []
    with joined(lambda number: torch.device("cpu")) as world:
        assert isinstance(world, Group)
        for case in json.loads(cases.read_text()):
            shared = train(case, world)
            if world.first:
                answers.append(difference(shared, train(case, ALONE)))
        assert not world.any(share_held(world) > 1 / world.size + 0.05)
    if answers:
        results.write_text(json.dumps(answers))


def train(case: Mapping[str, Any], world: World) -> Any:
    """Return the result of a training by the processes of a group, or of one alone."""
    dataset = planted_tastes()
    settings = {"epochs": 4, "evaluate_every": 2, "dim": 22, "batch_size": 128, "blend": "none", **case["settings"]}
    recipe = resolve(case["model"], dataset="planted", preset="paper", settings=settings)
    validate = validator(dataset, recipe.train.metric)
    return train_together(
        dataset, recipe, [SeedJob(3)], device="cpu", validate=validate, world=world, mode=case["mode"]
    )[0]


def share_held(world: Group) -> float:
    """Return the share of a training's parameters, moments and graph that a process holds of its rows."""
    dataset = planted_tastes(900, 600)
    recipe = resolve("dgcf", dataset="planted", preset="paper", settings={"dim": 64, "blend": "none"})
    model, propagation = build(dataset, recipe)
    assert isinstance(model, GraphModel)
    assert propagation is not None
    M = propagation.stored
    whole = 3 * sum(parameter.nbytes for parameter in model.parameters())
    whole += M.offsets.nbytes + M.indices.nbytes + M.values.nbytes
    rows = Rows(world, propagation)
    rows.take(model, propagation)
    rows.matrix.release(draws=False)
    return rows.held_bytes(model) / whole


def difference(shared: Any, alone: Any) -> dict[str, float]:
    """Return the largest differences of the embeddings and of the weights, and that of the best validation value."""
    pairs = zip(shared.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    ours, expected = shared.ranking, alone.ranking
    metric = planted_metric(ours) - planted_metric(expected)
    return {
        "users": float((ours.users - expected.users).abs().max()),
        "items": float((ours.items - expected.items).abs().max()),
        "weights": max(float((a - b).abs().max()) for a, b in pairs),
        "metric": abs(metric),
        "epochs": abs(shared.best_epoch - alone.best_epoch),
    }


def planted_metric(ranking: Any) -> float:
    return float(validator(planted_tastes(), "recall@20")(ranking)["recall@20"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

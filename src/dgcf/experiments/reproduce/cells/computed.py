"""The cells that are computed and not trained: counts of datasets and edges, walks, seconds an epoch, paired tests."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.data.dataset import Dataset
from dgcf.data.statistics import statistics as count
from dgcf.errors import ArtifactError
from dgcf.evaluate.bootstrap import bootstrap_intervals
from dgcf.evaluate.significance import effect_size, sign_flip_test, t_test, users_and_seeds_test
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.recipe import Cell
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.training import Curve
from dgcf.graph import cross_hop, interaction_matrix
from dgcf.graph.theory.oscillation import PAPER_CLAIMS, WalkReport, oscillation
from dgcf.models import GraphModel
from dgcf.train import TrainConfig, build, pick_device
from dgcf.train.trainer import Trainer

TIMED_EPOCHS = 6
STEPS = 40


def statistics_of(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """The row of the paper's Table 3, and the flaws that stand beside it."""
    found = count(dataset)
    names = ("users", "items", "density", "train", "validation", "test", "duplicates", "leaks", "popularity")
    return {name: getattr(found, name) for name in names}


def edges_of(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """How many cross-hop edges ε leaves beside the direct ones."""
    cross = cross_hop(interaction_matrix(dataset.train), cell.varied["epsilon"])
    ratio = cross.ratio if cross.edges else None
    return {"direct_edges": cross.direct_edges, "cross_edges": cross.edges, "ratio": ratio}


def walks_of(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """The paper's four statements in numbers: walks on every matrix, their limits, gaps and bounds."""
    report = oscillation(dataset.train, steps=STEPS)
    return {
        "epsilon": report.epsilon,
        "components": len(report.components),
        "isolated": report.isolated,
        "walks": {name: _walk(name, walk) for name, walk in report.walks.items()},
        "symmetric": {
            "gaps": _short(report.symmetric_gaps),
            "within_bound": bool((report.symmetric_gaps <= report.symmetric_bounds * (1 + 1e-12)).all()),
        },
    }


def _walk(name: str, walk: WalkReport) -> dict[str, Any]:
    return {
        "two_limits": walk.two_sided,
        "claim": PAPER_CLAIMS[name],
        "first_gap": float(walk.gaps[0]),
        "gap_limit": walk.gap_limit,
        "gap_limit_exact": walk.gap_limit_exact,
        "limit_error": walk.limit_error,
        "condition": walk.condition if walk.two_sided else None,
        "decay_per_step": walk.decay_per_step,
        "flip_per_step": walk.flip_per_step,
        "bound": float(walk.bounds[0]),
        "within_bound": walk.within_bound,
        "steps": walk.steps,
        "settled": walk.settled,
        "gaps": _short(walk.gaps),
    }


def _short(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def epochs_of(cell: Cell, dataset: Dataset, device: str) -> dict[str, Any]:
    """Seconds an epoch of training, validation not counted: the median of a few epochs after the first."""
    recipe = cell.recipe
    assert recipe is not None
    place = pick_device(device)
    model, propagation = build(dataset, recipe, device=place)
    assert isinstance(model, GraphModel)
    curve = Curve()
    config = TrainConfig(**{**vars(recipe.train), "epochs": TIMED_EPOCHS})
    Trainer(model, propagation, dataset.train, config, device=place, observer=curve).fit()
    timed = curve.seconds[1:]
    return {"seconds_per_epoch": statistics.median(timed), "epochs_timed": len(timed)}


# -- paired tests -----------------------------------------------------------------------------------------------------


def comparison_of(cell: Cell, store: Store) -> dict[str, Any] | None:
    """DGCF against the cell's model over the same users, seeds averaged; None where users' values are not at hand.

    Train items are masked.
    """
    kept = [[store.users(fingerprint) for fingerprint in side] for side in cell.compared]
    if not all(kept) or any(one is None for side in kept for one in side):
        return None
    found: dict[str, Any] = {"seeds": [len(side) for side in kept]}
    for metric in METRICS:
        name = f"train {metric}"
        if len({len(one.get(name, ())) for side in kept for one in side if one is not None} | {0}) != 2:
            raise ArtifactError(
                f"the values of users that {cell.key} compares lack {name!r} or are not of the same users; "
                f"delete them from {store.folder}, and train again."
            )
        first, second = (np.stack([one[name] for one in side if one is not None]).astype(np.float64) for side in kept)
        found[metric] = paired(first, second)
    return found


def paired(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """(seeds, users) values of the reference and of another model: second − first, with every test of it."""
    difference = second.mean(0) - first.mean(0)
    low, high = bootstrap_intervals(difference[:, None], seed=0)[0]
    several = min(len(first), len(second)) > 1
    return {
        "users": len(difference),
        "difference": float(difference.mean()),
        "interval": [float(low), float(high)],
        "effect_size": effect_size(difference),
        "p_t": t_test(difference),
        "p_permutation": float(sign_flip_test(difference[:, None], seed=0)[0]),
        "p_seeds": users_and_seeds_test(difference, first.mean(1).tolist(), second.mean(1).tolist())
        if several
        else None,
    }

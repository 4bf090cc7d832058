"""Results of a trained model: its curve, its test metrics under both masks, and the measures of single figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.evaluator import MASKS, Evaluator
from dgcf.experiments.reproduce.stats.smoothness import smoothness
from dgcf.graph import adjacency, cross_hop, interaction_matrix, laplacian
from dgcf.models import gate_correlation
from dgcf.models.gates import gate_values
from dgcf.train import EpochReport, Observer, Trained

K = 20
METRICS = (f"recall@{K}", f"ndcg@{K}")
PATCH = 30
BINS = 24


class Curve(Observer):
    """The loss and the seconds of every epoch, and the metric of every validated one."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []
        self.seconds: list[float] = []
        self.validated: dict[int, float] = {}
        self.best: dict[str, float] = {}

    def epoch_ended(self, report: EpochReport) -> None:
        self.losses.append(report.loss)
        self.seconds.append(report.seconds)
        if report.metric in report.validation:
            self.validated[report.epoch] = report.validation[report.metric]
            if report.best_epoch == report.epoch:
                self.best = dict(report.validation)

    def to_dict(self) -> dict[str, Any]:
        """Return the validated epochs as JSON; all epochs if none was validated."""
        shown = list(self.validated) or list(range(1, len(self.losses) + 1))
        losses = [self.losses[epoch - 1] for epoch in shown]
        return {
            "epochs": shown,
            "loss": [None if loss is None else round(loss, 6) for loss in losses],
            "validation": [round(value, 6) for value in self.validated.values()],
        }


def training_record(trained: Trained, curve: Curve, side_by_side: int) -> dict[str, Any]:
    """Return how a training went and its best validation, as JSON; ``side_by_side`` trainings shared its seconds."""
    metrics = {*METRICS, trained.recipe.train.metric}
    per_epoch = statistics.median(curve.seconds)  # the first epochs prepare what later ones reuse
    validation = trained.validation or curve.best
    composed = {} if trained.blending is None else {"blending": trained.blending.to_dict()}
    return {
        "seconds": round(trained.seconds / side_by_side, 3),
        "seconds_per_epoch": round(per_epoch / side_by_side, 6),
        "side_by_side": side_by_side,
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "reason": trained.reason,
        "validation": {name: round(value, 8) for name, value in validation.items() if name in metrics},
        **composed,
    }


class Examiner:
    """Tests and measures models on one dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.evaluators = {mask: Evaluator(dataset, split="test", mask=mask, ks=(K,)) for mask in MASKS}

    def examine(
        self, trained: Trained, curve: Curve, names: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the test metrics with the measures ``names`` as JSON, and the values of each user for paired tests."""
        tests = {mask: evaluator.evaluate(trained.ranking) for mask, evaluator in self.evaluators.items()}
        finished = Finished(trained, curve, self.dataset, tests)
        rounded = {mask: {name: round(value, 8) for name, value in test.means.items()} for mask, test in tests.items()}
        record = {
            "test": rounded,
            "n_users": tests["train"].users_evaluated,
            "measures": {name: MEASURES[name](finished) for name in names},
        }
        values = {
            f"{mask} {name}": test.value(name).astype(np.float32) for mask, test in tests.items() for name in METRICS
        }
        return record, {"user_idx": tests["train"].user_idx.astype(np.int32), **values}


# -- measures of single figures ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A finished training, with everything that a measure may use."""

    trained: Trained
    curve: Curve
    dataset: Dataset
    tests: Mapping[str, Evaluation]


def groups(finished: Finished) -> list[dict[str, Any]]:
    """Return test metrics of four groups of users with about equally many interactions, train items masked."""
    user_groups = finished.tests["train"].groups(n_groups=4, count="all")
    return [
        {name: value for name, value in group.to_dict().items() if "@" not in name or name in METRICS}
        for group in user_groups
    ]


def gates(finished: Finished) -> dict[str, Any]:
    """Return ρ of 1/α and log degree for each layer."""
    _alpha(finished.trained)
    return dict(gate_correlation(finished.trained.model, finished.dataset.train))


def gate_histogram(finished: Finished) -> dict[str, Any]:
    """Return a histogram of users and of items over log degree and 1/α of the last layer."""
    closed, train = 1.0 / _alpha(finished.trained)[-1], finished.dataset.train
    users, items = np.split(closed, [train.n_users])
    return {"users": _histogram(users, train.user_degrees), "items": _histogram(items, train.item_degrees)}


def _histogram(closed: NDArray[np.float64], degrees: NDArray[np.int64]) -> dict[str, Any]:
    seen = degrees > 0
    x, y = np.log(degrees[seen]), closed[seen]
    ranges = [[float(axis.min()), float(axis.max() or 1.0)] for axis in (x, y)]
    counts, *_ = np.histogram2d(x, y, bins=BINS, range=ranges)
    return {"log_degree": ranges[0], "inverse_alpha": ranges[1], "counts": counts.astype(int).tolist()}


def pattern(finished: Finished) -> dict[str, Any]:
    """Return a 30 × 30 patch of ``Ω(L + Lc)`` for each layer, divided by its greatest value.

    The paper does not say which patch. Ours: the 15 users and the 15 items with the most training pairs (the lower
    index where equal), users first, where the matrix is densest. Row i of ``Ω M`` is α_i times row i of M.
    """
    trained, dataset = finished.trained, finished.dataset
    spec = trained.recipe.model.spec()
    assert spec is not None, "a model with gates propagates"
    R = interaction_matrix(dataset.train)
    matrix = csr_array(laplacian(adjacency(R)) + cross_hop(R, spec.epsilon).matrix)
    half = PATCH // 2
    users = np.argsort(-dataset.train.user_degrees, kind="stable")[:half]
    items = np.argsort(-dataset.train.item_degrees, kind="stable")[:half] + dataset.n_users
    nodes = np.concatenate([users, items])
    patch = matrix[nodes][:, nodes].toarray()
    layers = [gates[nodes][:, None] * patch for gates in _alpha(trained)]
    return {"rule": "15 users and 15 items of most training pairs", "layers": [_scaled(layer) for layer in layers]}


def _scaled(patch: NDArray[np.float64]) -> list[list[float]]:
    scaled = patch / (patch.max() or 1.0)
    return [[round(value, 4) for value in row] for row in scaled.tolist()]


def smoothness_record(finished: Finished) -> dict[str, Any]:
    """Return the smoothness of the final embeddings of users and of items."""
    trained = finished.trained
    if (embeddings := trained.ranking.embeddings) is None:
        raise ConfigError(f"{trained.recipe.name} has no embeddings to measure smoothness of; leave the measure out.")
    users, items = (side.astype(np.float64) for side in (embeddings.users, embeddings.items))
    return smoothness(csr_array(finished.dataset.train.to_scipy(), dtype=np.float64), users, items)


def _alpha(trained: Trained) -> NDArray[np.float64]:
    """Return the gates α, (layers, N)."""
    alpha = gate_values(trained.model)
    if alpha is None:
        raise ConfigError(f"{trained.recipe.name} has no gates; measure dgcf, dgcf-la or dgcf-sl.")
    return alpha


MEASURES: Mapping[str, Callable[[Finished], Any]] = {
    "curve": lambda finished: finished.curve.to_dict(),
    "groups": groups,
    "gates": gates,
    "gate-histogram": gate_histogram,
    "pattern": pattern,
    "smoothness": smoothness_record,
}

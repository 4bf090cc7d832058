"""What is recorded of a trained model: test under both maskings, and what single figures ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from dgcf.experiments.reproduce.training import Outcome
from dgcf.graph import adjacency, cross_hop, interaction_matrix, laplacian
from dgcf.models import Embeddings, gate_correlation
from dgcf.models.gates import gate_values
from dgcf.train import Trained

K = 20
METRICS = (f"recall@{K}", f"ndcg@{K}")
PATCH = 30
BINS = 24


@dataclass(frozen=True)
class Examiner:
    """Measures models on the test split of one dataset."""

    dataset: Dataset
    evaluators: Mapping[str, Evaluator]

    @classmethod
    def of(cls, dataset: Dataset) -> Examiner:
        return cls(dataset, {mask: Evaluator(dataset, split="test", mask=mask, ks=(K,)) for mask in MASKS})

    def tested(self, trained: Trained) -> dict[str, Evaluation]:
        """The test split under each mask."""
        return {mask: evaluator.evaluate(trained.ranking) for mask, evaluator in self.evaluators.items()}


def means_by_mask(tested: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """The means of each metric by mask."""
    return {mask: {name: round(value, 8) for name, value in one.means.items()} for mask, one in tested.items()}


def user_values(tested: Mapping[str, Evaluation]) -> dict[str, NDArray[Any]]:
    """The values of each user as they are kept for paired tests."""
    first = next(iter(tested.values()))
    values = {f"{mask} {name}": one.value(name).astype(np.float32) for mask, one in tested.items() for name in METRICS}
    return {"user_idx": first.user_idx.astype(np.int32), **values}


# -- what single figures ask for --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A training that is over, with all that can be measured of it."""

    outcome: Outcome
    dataset: Dataset
    tested: Mapping[str, Evaluation]

    @property
    def trained(self) -> Trained:
        return self.outcome.trained


def curve(finished: Finished) -> dict[str, Any]:
    """Loss and validation by epoch."""
    return finished.outcome.curve.to_dict()


def groups(finished: Finished) -> list[dict[str, Any]]:
    """Users in four groups of about equally many interactions, all splits counted, train items masked."""
    found = finished.tested["train"].groups(n_groups=4, count="all")
    return [
        {name: value for name, value in group.to_dict().items() if "@" not in name or name in METRICS}
        for group in found
    ]


def gates(finished: Finished) -> dict[str, Any]:
    """ρ of 1/α and log degree for each layer."""
    _alpha(finished.trained)
    return dict(gate_correlation(finished.trained.model, finished.dataset.train))


def gate_histogram(finished: Finished) -> dict[str, Any]:
    """How many nodes lie where in the plane of log degree and 1/α of the last layer, both scaled to 0 … 1, by side."""
    alpha, dataset = _alpha(finished.trained)[-1], finished.dataset
    sides = {
        "users": (alpha[: dataset.n_users], dataset.train.user_degrees),
        "items": (alpha[dataset.n_users :], dataset.train.item_degrees),
    }
    return {side: _histogram(1.0 / gates, degrees) for side, (gates, degrees) in sides.items()}


def _histogram(closed: NDArray[np.float64], degrees: NDArray[np.int64]) -> dict[str, Any]:
    seen = degrees > 0
    x, y = np.log(degrees[seen]), closed[seen]
    edges = [np.linspace(axis.min(), axis.max() or 1.0, BINS + 1) for axis in (x, y)]
    counts, *_ = np.histogram2d(x, y, bins=BINS, range=[[e[0], e[-1]] for e in edges])
    return {
        "log_degree": [float(edges[0][0]), float(edges[0][-1])],
        "inverse_alpha": [float(edges[1][0]), float(edges[1][-1])],
        "counts": counts.astype(int).tolist(),
    }


def pattern(finished: Finished) -> dict[str, Any]:
    """A 30 × 30 patch of ``Ω(L + Lc)`` for each layer, each divided by its greatest value.

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
    return {"rule": "15 users and 15 items of most training pairs", "layers": [_scaled(one) for one in layers]}


def _scaled(patch: NDArray[np.float64]) -> list[list[float]]:
    scaled = patch / (patch.max() or 1.0)
    return [[round(value, 4) for value in row] for row in scaled.tolist()]


def smoothness_record(finished: Finished) -> dict[str, Any]:
    """The smoothness of the final embeddings of users and of items."""
    trained = finished.trained
    if not isinstance(trained.ranking, Embeddings):
        raise ConfigError(f"smoothness is of embeddings, and {trained.recipe.name} has none; leave the measure out.")
    users, items = (side.double().cpu().numpy() for side in (trained.ranking.users, trained.ranking.items))
    return smoothness(csr_array(finished.dataset.train.to_scipy(), dtype=np.float64), users, items)


def _alpha(trained: Trained) -> NDArray[np.float64]:
    """Return the gates α, (layers, N)."""
    alpha = gate_values(trained.model)
    if alpha is None:
        raise ConfigError(f"{trained.recipe.name} has no gates to look at; measure dgcf, dgcf-la or dgcf-sl.")
    return alpha


ASKED: Mapping[str, Callable[[Finished], Any]] = {
    "curve": curve,
    "groups": groups,
    "gates": gates,
    "gate-histogram": gate_histogram,
    "pattern": pattern,
    "smoothness": smoothness_record,
}

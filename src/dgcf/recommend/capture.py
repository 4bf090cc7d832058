"""From a trained model to a snapshot: the bridge from the train room, and why opening a run needs torch.

The layers are propagated once more and kept. A model whose ranked rows are not the read-out of such layers (another
architecture) still gives a snapshot that ranks, without what fold-in and explanations need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from dgcf.data import Dataset
from dgcf.data import load as load_data
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel, Model
from dgcf.models.ials import IALS
from dgcf.ranking.arrays import Rows
from dgcf.ranking.rankings import ItemWeights, Ranking
from dgcf.ranking.weights import WeightMatrix
from dgcf.recommend.snapshot import Embedded, GraphRule, Layers, LeastSquares, Snapshot
from dgcf.train import Recipe, Run, Trained
from dgcf.train import load as load_run
from dgcf.version import __version__

if TYPE_CHECKING:
    from dgcf.text import Notify

_LOOKED_AT = 4096


def from_trained(trained: Trained, dataset: Dataset, seed: int, metrics: Mapping[str, Any] | None = None) -> Snapshot:
    """The best epoch of a training that has just ended."""
    about = {"seed": seed, "epochs": trained.best_epoch, "metrics": dict(metrics or {})}
    return capture(trained.model, trained.propagation, trained.ranking, dataset, trained.recipe, about)


def from_run(run: Run, data: Any = None, notify: Notify | None = None) -> Snapshot:
    """The best epoch of a run folder, with the dataset that it was trained on."""
    dataset = load_data(run.about["dataset"]["source"] if data is None else data, notify=notify)
    model, propagation, ranking = load_run(run, dataset)
    epoch = int(run.best().about["epoch"])
    metrics = next((line for line in run.metrics() if line["epoch"] == epoch), {})
    about = {"seed": run.seed, "epochs": epoch, "metrics": metrics}
    return capture(model, propagation, ranking, dataset, run.recipe, about)


def capture(
    model: Model,
    propagation: Propagation | None,
    ranking: Ranking,
    dataset: Dataset,
    recipe: Recipe,
    about: Mapping[str, Any],
) -> Snapshot:
    """Everything that later modules need of a model, as NumPy arrays."""
    # Layers side by side are no sum of layers, so nothing is claimed of them below, whatever is said here.
    readout: Literal["mean", "last"] = "last" if recipe.model.readout == "last" else "mean"
    cosine = recipe.train.objective.cosine
    snapshot = Snapshot(
        about={
            "model": recipe.name,
            "preset": recipe.preset,
            "settings": recipe.settings(),
            **about,
            "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
            "dgcf": __version__,
        },
        users=dataset.users,
        items=dataset.items,
        train=dataset.train,
        seen=dataset.train.union(dataset.validation, dataset.test),
        ranking=_ranking(ranking),
        rule=_rule(propagation),
        readout=readout,
        cosine=cosine,
        least_squares=_least_squares(model),
    )
    if not isinstance(model, GraphModel) or (propagation is not None and snapshot.rule is None):
        return snapshot
    layers = _layers(model, propagation)
    return replace(snapshot, load_layers=lambda: layers) if _reads_back(snapshot, layers) else snapshot


def _ranking(found: Ranking) -> Embedded | WeightMatrix:
    return found.weights if isinstance(found, ItemWeights) else Embedded(_array(found.users), _array(found.items))


def _least_squares(model: Model) -> LeastSquares | None:
    return LeastSquares(model.config.alpha, model.config.regularization) if isinstance(model, IALS) else None


def _rule(propagation: Propagation | None) -> GraphRule | None:
    """How rows of M follow from the pairs; None without a graph, and for a graph that fold-in does not know."""
    if propagation is None or propagation.spec.renormalised or propagation.spec.spectral is not None:
        return None
    spec = asdict(propagation.spec)
    del spec["epsilon"], spec["cross"], spec["renormalised"], spec["spectral"]
    return GraphRule(cross=propagation.spec.cross != "none", epsilon=propagation.epsilon, **spec)


@torch.no_grad()
def _layers(model: GraphModel, propagation: Propagation | None) -> Layers:
    """E⁽⁰⁾ … E⁽ᴸ⁾ and the gates of a model that has no more than these."""
    gates = getattr(model, "gates", None)
    depth = 0 if propagation is None else getattr(getattr(model, "config", None), "layers", 0)
    x = model.ego()
    kept = np.empty((depth + 1, *x.shape), dtype=np.float32)  # filled in place: at scale this is most of the memory
    kept[0] = _array(x)
    for layer in range(depth):
        assert propagation is not None
        x = propagation.apply(x if gates is None else gates(layer, x))
        kept[layer + 1] = _array(x)
    logits = getattr(gates, "logits", None)
    return Layers(kept, None if logits is None else _array(logits))


def _reads_back(snapshot: Snapshot, layers: Layers) -> bool:
    """Whether the ranked rows are ``Σ_l w_l E⁽ˡ⁾`` (and normalised, for cosines), looking at some thousand nodes."""
    step = 1 + layers.embeddings.shape[1] // _LOOKED_AT
    for ranked, first in ((snapshot.user_rows, 0), (snapshot.item_rows, snapshot.n_users)):
        some = layers.embeddings[:, first : first + len(ranked) : step]
        rows = np.einsum("l,lnd->nd", snapshot.layer_weights(layers.depth), some)
        if snapshot.cosine:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        if rows.shape != ranked[::step].shape or not np.allclose(rows, ranked[::step], rtol=1e-3, atol=1e-5):
            return False
    return True


def _array(tensor: torch.Tensor) -> Rows:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)

"""Warm start: begin a training with the weights of another one, on a graph that has grown.

Known users and items keep their rows of layer 0 and their gates. New ones are folded in: their gates are those of a
node of their degree. Their rows of layer 0 are zero, so that they are what propagation makes of their neighbours; or
the mean of their known neighbours' rows; or, for users, what fold-in estimates from their items. Validation chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.graph import Propagation
from dgcf.models.base import GraphModel
from dgcf.ranking.gate_lines import gate_lines, gates_at
from dgcf.ranking.layer0_map import layer0_map
from dgcf.ranking.rankings import Embeddings
from dgcf.train.config import TrainConfig
from dgcf.train.run.checkpoint import Checkpoint, fill_model
from dgcf.train.trainer import Validate, ranked_embeddings

NewRows = Literal["zero", "mean", "estimated"]
LAYER0, GATES = "layer0", "gates.logits"


@dataclass(frozen=True)
class Weights:
    """The weights of a trained model by name, and the pairs of its graph; ``source`` names them in messages."""

    tensors: Mapping[str, Tensor]
    train: Pairs
    source: str


@dataclass(frozen=True)
class Start:
    """The weights to start from, the ranking that they give, and the validation of every way to fill new rows."""

    tensors: Mapping[str, Tensor]
    embeddings: Embeddings[Tensor]
    new_rows: NewRows
    candidates: Mapping[str, Mapping[str, float]]

    @property
    def validation(self) -> Mapping[str, float]:
        """The validation metrics of the start; empty without a validation split."""
        return self.candidates.get(self.new_rows, {})

    def checkpoint(self, config: TrainConfig) -> Checkpoint:
        """Return the state of a training whose first epoch, of no steps, ended with these weights."""
        value = self.validation.get(config.metric)
        # Any validated epoch replaces the start: on few held-out pairs, the start is often the better one by chance.
        best = value if config.epochs == 1 else None
        stopping = {"best": best, "best_epoch": 0 if value is None else 1, "stale": 0}
        parts = {"model": self.tensors}
        if value is not None or config.epochs == 1:
            parts["best"] = {name: tensor.clone() for name, tensor in self.tensors.items()}
        tensors = {f"{part}.{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
        return Checkpoint(tensors, {"epoch": 2, "done": 0, "loss": 0.0, "stopping": stopping})


def warm_start(
    model: GraphModel,
    propagation: Propagation | None,
    weights: Weights,
    train: Pairs,
    config: TrainConfig,
    validate: Validate | None = None,
) -> Start:
    """Return the start of a training on ``train`` from the weights of a smaller graph; ``model`` is filled with it."""
    choices: tuple[NewRows, ...] = ("zero", "mean", "estimated") if propagation is not None else ("mean",)
    if validate is None or not _grows(weights, train):
        choices = choices[:1]
    starts, candidates = dict[NewRows, Mapping[str, Tensor]](), dict[str, Mapping[str, float]]()
    for choice in choices:
        starts[choice] = grown(model, weights, train, choice)
        fill_model(model, starts[choice], weights.source)
        if validate is not None:
            candidates[choice] = dict(validate(ranked_embeddings(model, propagation, config)))
    best = max(choices, key=lambda choice: candidates[choice][config.metric]) if candidates else choices[0]
    fill_model(model, starts[best], weights.source)
    return Start(starts[best], ranked_embeddings(model, propagation, config), best, candidates)


def _grows(weights: Weights, train: Pairs) -> bool:
    return (train.n_users, train.n_items) != (weights.train.n_users, weights.train.n_items)


def grown(model: GraphModel, weights: Weights, train: Pairs, new_rows: NewRows) -> dict[str, Tensor]:
    """Return the weights with rows for new users and items, in the shapes of ``model``."""
    before = weights.train
    known = torch.cat([torch.arange(before.n_users), train.n_users + torch.arange(before.n_items)])
    tensors = dict[str, Tensor]()
    for name, expected in model.state_dict().items():
        old = weights.tensors.get(name)
        dimension = {LAYER0: 0, GATES: 1}.get(name)
        size = list(expected.shape)
        if dimension is not None:
            size[dimension] = len(known)
        if old is None or list(old.shape) != size:
            shape = "nothing" if old is None else str(tuple(old.shape))
            raise ConfigError(
                f"{weights.source} holds {name} as {shape}, expected {tuple(size)}; an update keeps the model and its "
                "sizes, so leave out settings that change them, or train again."
            )
        tensors[name] = old.detach().cpu().clone()
    layer0 = torch.zeros(train.n_users + train.n_items, tensors[LAYER0].shape[1])
    layer0[known] = tensors[LAYER0]
    if new_rows == "mean":
        _fill_with_means(layer0, before, train)
    elif new_rows == "estimated":
        _fill_new_users(layer0, before, train)
    tensors[LAYER0] = layer0
    if GATES in tensors:
        tensors[GATES] = _grown_gates(tensors[GATES], known, before, train)
    return tensors


def _fill_with_means(layer0: Tensor, before: Pairs, train: Pairs) -> None:
    """Set the rows of new nodes to the mean of their known neighbours' rows; without one they stay zero."""
    users, items = train.user_idx, train.indices.astype(np.int64)
    sides = (
        (users, before.n_users, 0, items, before.n_items, train.n_users),
        (items, before.n_items, train.n_users, users, before.n_users, 0),
    )
    known = layer0.clone()
    for nodes, n_known, first, others, n_others, first_other in sides:
        chosen = (nodes >= n_known) & (others < n_others)
        rows, neighbours = torch.from_numpy(nodes[chosen]), torch.from_numpy(others[chosen])
        total = torch.zeros_like(layer0).index_add_(0, first + rows, known[first_other + neighbours])
        count = torch.bincount(first + rows, minlength=len(layer0)).clamp(min=1)
        new = torch.unique(first + rows)
        layer0[new] = total[new] / count[new, None]


def _fill_new_users(layer0: Tensor, before: Pairs, train: Pairs) -> None:
    """Set the rows of new users to what fold-in estimates from their known items; those of new items stay zero."""
    users = layer0[: before.n_users].numpy()
    items = layer0[train.n_users : train.n_users + before.n_items].numpy()
    estimate, degree = layer0_map(users, items, before), before.item_degrees
    for user in range(before.n_users, train.n_users):
        liked = train[user][train[user] < before.n_items]
        if len(liked := liked[degree[liked] > 0]):
            layer0[user] = torch.from_numpy(estimate.row(items[liked], degree[liked]).astype(np.float32))


def _grown_gates(old: Tensor, known: Tensor, before: Pairs, train: Pairs) -> Tensor:
    """Return the gate logits (n_gates, N): those of known nodes, and for new ones those of nodes of their degree."""
    logits, grown_logits = old.numpy(), np.zeros((old.shape[0], train.n_users + train.n_items), dtype=np.float32)
    user_lines = gate_lines(logits[:, : before.n_users], before.user_degrees)
    item_lines = gate_lines(logits[:, before.n_users :], before.item_degrees)
    grown_logits[:, : train.n_users] = gates_at(user_lines, train.user_degrees)
    grown_logits[:, train.n_users :] = gates_at(item_lines, train.item_degrees)
    grown_logits[:, known.numpy()] = logits
    return torch.from_numpy(grown_logits)

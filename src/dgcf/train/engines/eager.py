"""The eager engine: autograd through ``model.forward``, on any device."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from dgcf.graph.kernels.cpu.threads import undivided
from dgcf.models.base import DropSchedule
from dgcf.train.engines.base import Training
from dgcf.train.engines.device_batches import LaidOutEpochs
from dgcf.train.losses import l2_term
from dgcf.train.sampler import Batch


class EagerEngine:
    """Takes the steps of one training by autograd."""

    def __init__(self, training: Training) -> None:
        self.training, sampler = training, training.sampler
        self.batches = LaidOutEpochs(sampler) if LaidOutEpochs.suit(sampler) else sampler
        self.epoch = 0

    def begin_epoch(self, epoch: int, batch: int) -> None:
        self.epoch = epoch

    def step(self, batch: int) -> None:
        pairs = self.batches.batch(self.epoch, batch).to(self.training.device)
        self.step_on(pairs, self.epoch * self.training.sampler.batches_per_epoch + batch)

    def step_on(self, batch: Batch, step: int) -> None:
        """Take one Adam step on ``batch``; ``step`` numbers the draws of dropout."""
        training = self.training
        training.optimizer.zero_grad(set_to_none=True)
        # Dividing the small operations of a loss on single pairs between threads costs more than it saves.
        with nullcontext() if training.config.objective.all_pairs else undivided():
            value = self.loss(batch, step)
            value.backward()  # type: ignore[no-untyped-call]
            self.add_up_gradients()
            self.prefetch(step + 1, 2 * len(batch) + batch.negatives.numel())
        training.optimizer.step()
        # The sum stays on the device and is read when something is saved or reported: no step waits for it.
        training.running_loss += value.detach() * len(batch)

    def loss(self, batch: Batch, step: int) -> Tensor:
        """Return the loss of a batch plus λ times its L2 term, a scalar with gradients.

        The last layer is computed only for the nodes of the batch, each of them once.
        """
        config, size = self.training.config, len(batch)
        items = torch.cat([batch.positives, batch.negatives.flatten()]) + self.training.model.n_users
        nodes = torch.cat([batch.users, items])
        final, squares = self.rows(nodes, step)
        users, positives, negatives = torch.split(final, [size, size, len(nodes) - 2 * size])
        if not config.objective.shared:
            negatives = negatives.view(*batch.negatives.shape, negatives.shape[1])
        value = config.score(users, positives, negatives, batch.hits)
        return value if config.l2 == 0 else value + config.l2 / size * squares

    def rows(self, nodes: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return the final rows of ``nodes`` (R,), (R, width), and ``½ Σ ‖e‖²`` of their layer-0 rows, a scalar."""
        model = self.training.model
        times = torch.bincount(nodes, minlength=model.n_nodes)
        rows = times.nonzero().squeeze(1)
        position = (torch.cumsum(times > 0, dim=0) - 1)[nodes]  # of each node's row among ``rows``
        final = model(self.training.propagation, rows=rows, drop=self.draws(step))
        # ``index_select`` is faster, but on a GPU its adjoint adds repeated rows in no fixed order.
        on_cpu = final.device.type == "cpu"
        gathered = final.index_select(0, position) if on_cpu else torch.nn.functional.embedding(position, final)
        return gathered, l2_term(model.ego(rows), times[rows], 1)

    def draws(self, step: int) -> DropSchedule:
        """Return the random draws of a step, which a model may need for more than edge dropout."""
        config = self.training.config
        per_layer = config.dropout_draws == "layer"
        return DropSchedule(config.edge_dropout, self.training.drop_seed, step, per_layer=per_layer)

    def add_up_gradients(self) -> None:
        """Add up gradients of which each of several processes has a part; here there is none."""

    def prefetch(self, step: int, n_rows: int) -> None:
        """Begin the work of a coming step that does not depend on this one; here there is none."""

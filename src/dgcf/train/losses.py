"""Losses: ranking losses on the final rows of a batch, and L2 on its layer-0 rows.

To add a loss, write it here, with its name in ``LossName`` and its entry in ``OBJECTIVES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize, softplus

LossName = Literal["bpr", "bpr-hardest", "softmax", "softmax-product", "directau"]
LOSSES: tuple[LossName, ...] = get_args(LossName)


def bpr(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return ``mean of −log σ(s(u, i) − s(u, j))``, s the inner product (Rendle et al., UAI 2009).

    Shapes: users (B, d), positives (B, d), negatives (B, n, d); the mean is over all B · n comparisons.
    ``softplus(−x)`` is ``−log σ(x)`` without its overflow.
    """
    value: Tensor = _BPR.apply(users, positives, negatives)  # type: ignore[no-untyped-call]
    return value


class _BPR(torch.autograd.Function):
    """With ``x = ⟨u, j − i⟩``: ``∂/∂u = σ(x)(j − i)``, ``∂/∂j = σ(x) u`` and ``∂/∂i = −∂/∂j``, times the mean's weight.

    Autograd would pass over the batch's rows twice as often, which takes a tenth of a step on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        between = negatives - positives.unsqueeze(1)
        ahead = _scored(users, between)
        ctx.save_for_backward(users, between, ahead)
        return softplus(ahead).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        users, between, ahead = ctx.saved_tensors
        share = (torch.sigmoid(ahead) * (sent / ahead.numel())).unsqueeze(2)
        to_negatives = share * users.unsqueeze(1)
        if ahead.shape[1] == 1:
            return share.squeeze(1) * between.squeeze(1), -to_negatives.squeeze(1), to_negatives
        return (share * between).sum(dim=1), -to_negatives.sum(dim=1), to_negatives


def bpr_hardest(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return BPR against the highest-scoring of a pair's n negatives (Zhang et al., SIGIR 2013).

    Shapes as in ``bpr``; the mean is over the B pairs. Most uniform negatives score far below the positive and have
    almost no gradient; the hardest of a few is closer to the items at the top of the list.
    """
    return softplus(_scored(users, negatives - positives.unsqueeze(1)).amax(dim=1)).mean()


def _scored(users: Tensor, items: Tensor) -> Tensor:
    """Return the inner products of each user (B, d) with its own items (B, n, d), (B, n)."""
    if items.shape[1] == 1:  # the usual case, several times faster than a batch of tiny products
        return (users * items.squeeze(1)).sum(dim=1, keepdim=True)
    return torch.einsum("bd,bnd->bn", users, items)


def sampled_softmax(
    users: Tensor, positives: Tensor, negatives: Tensor, temperature: float, hits: Tensor | None = None
) -> Tensor:
    """Return ``mean of −log( e^(c(u,i)/τ) / (e^(c(u,i)/τ) + Σ_j e^(c(u,j)/τ)) )``, c the cosine, j shared negatives.

    Shapes: users (B, d), positives (B, d), negatives (K, d); ``hits`` (B, K) is true where j is an item of the row's
    user, and is then left out of the sum. Cosines are bounded, so τ alone sets the weight of the hardest negatives.
    Items are ranked by cosines, too.
    """
    users, positives, negatives = (normalize(rows, dim=1) for rows in (users, positives, negatives))
    return softmax_product(users / temperature, positives, negatives, hits)


def softmax_product(users: Tensor, positives: Tensor, negatives: Tensor, hits: Tensor | None = None) -> Tensor:
    """Return ``mean of −log( e^s(u,i) / (e^s(u,i) + Σ_j e^s(u,j)) )``, s the inner product.

    Shapes as in ``sampled_softmax``. Row lengths are free, so a score can express an item's popularity; L2 limits them.
    """
    value: Tensor = _SampledSoftmax.apply(users, positives, negatives, hits)  # type: ignore[no-untyped-call]
    return value


class _SampledSoftmax(torch.autograd.Function):
    """With ``s`` the inner products and ``p`` their softmax: ``∂/∂s(u, j) = p_j`` and ``∂/∂s(u, i) = p_i − 1``.

    Autograd would pass over the (B, K) scores a dozen times and keep several copies of them. Here they are one matrix,
    changed in place; factors of its rows are applied to the rows of its products instead.
    """

    @staticmethod
    def forward(ctx: Any, users: Tensor, positives: Tensor, negatives: Tensor, hits: Tensor | None) -> Tensor:
        ahead = (users * positives).sum(dim=1, keepdim=True)
        weights = users @ negatives.T
        if hits is not None:
            weights.masked_fill_(hits, -torch.inf)
        top = torch.maximum(weights.amax(dim=1, keepdim=True), ahead)  # so that no exponential overflows
        weights.sub_(top).exp_()
        own = torch.exp(ahead - top)
        total = weights.sum(dim=1, keepdim=True) + own
        ctx.save_for_backward(users, positives, negatives, weights, own, total)
        return (total.log() + top - ahead).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, sent: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        users, positives, negatives, weights, own, total = ctx.saved_tensors
        share = sent / len(users) / total
        to_ahead = (own - total) * share
        to_users = to_ahead * positives + share * (weights @ negatives)
        return to_users, to_ahead * users, weights.T @ (share * users), None


def directau(users: Tensor, positives: Tensor, negatives: Tensor, uniformity: float) -> Tensor:
    """Return ``alignment + γ · ½ (uniformity of users + uniformity of items)`` on unit rows (Wang et al., KDD 2022).

    Alignment is ``mean of ‖u − i‖²`` over the pairs; uniformity the logarithm of the ``mean of e^(−2‖x − y‖²)`` over
    all pairs of rows on one side of the batch. ``negatives`` is empty. Shapes: users (B, d), positives (B, d).
    """
    users, positives = normalize(users, dim=1), normalize(positives, dim=1)
    alignment = (users - positives).square().sum(dim=1).mean()
    return alignment + uniformity * (_uniformity(users) + _uniformity(positives)) / 2


def _uniformity(rows: Tensor) -> Tensor:
    """Return ``log mean e^(−2‖x − y‖²)`` over the pairs x ≠ y of unit rows, for which ``‖x − y‖² = 2 − 2⟨x, y⟩``."""
    n = len(rows)
    if n < 2:
        return rows.new_zeros(())
    exponents = (4 * (rows @ rows.T) - 4).fill_diagonal_(-torch.inf)
    return torch.logsumexp(exponents.flatten(), dim=0) - math.log(n * (n - 1))


def fused_bpr(final: Tensor, norms: Tensor, size: int, decay: float, *, hardest: bool) -> tuple[Tensor, Tensor]:
    """Return BPR and its gradient by one GPU kernel; see ``Objective``."""
    from dgcf.train.loss_kernels import bpr_step

    return bpr_step(final, norms, size, decay, hardest=hardest)


@dataclass(frozen=True)
class Objective:
    """A loss, ``value(users, positives, negatives, **settings)``, and the batches that it needs.

    ``negatives``: the default number, for each pair or ``shared`` by the batch. ``cosine``: the loss compares cosines,
    so items are ranked by cosines. ``all_pairs``: it compares rows of different pairs, which is enough work for several
    threads. ``settings``: the training settings that it reads.

    ``fused(final, norms, size, decay, **settings)`` is the same loss as one GPU kernel, if there is one; otherwise the
    GPU differentiates ``value``. ``final`` (lanes, R, dim) has the users, positives and negatives of ``size`` pairs, a
    lane for each training. Returned are the losses (lanes, size), whose mean is the loss, and the gradient of
    ``final``. The losses include ``½ · decay · ‖e‖²`` of their rows, from ``norms`` (lanes, R); the gradient does not.
    """

    value: Callable[..., Tensor]
    negatives: int
    shared: bool = False
    cosine: bool = False
    all_pairs: bool = False
    settings: tuple[str, ...] = ()
    fused: Callable[..., tuple[Tensor, Tensor]] | None = None


OBJECTIVES: Mapping[LossName, Objective] = {
    "bpr": Objective(bpr, 1, fused=partial(fused_bpr, hardest=False)),
    "bpr-hardest": Objective(bpr_hardest, 8, fused=partial(fused_bpr, hardest=True)),
    "softmax": Objective(sampled_softmax, 1024, shared=True, cosine=True, all_pairs=True, settings=("temperature",)),
    "softmax-product": Objective(softmax_product, 1024, shared=True, all_pairs=True),
    # Ranked by inner products, as in its authors' code: the lengths, which the loss ignores, grow with popularity.
    "directau": Objective(directau, 0, all_pairs=True, settings=("uniformity",)),
}


def l2_term(ego_rows: Tensor, times: Tensor, batch_size: int) -> Tensor:
    """Return ``½ Σ ‖e‖² / B`` over the layer-0 rows of a batch of B pairs, each as often as it occurs.

    ``ego_rows`` (R, d): the distinct rows; ``times`` (R,): how often each occurs among the batch's users, positives and
    negatives. Times λ, this is the paper's ``λ‖Θ‖²`` as the authors' code reads it; gates are not regularised.
    """
    return 0.5 * (ego_rows.square().sum(dim=1) * times).sum() / batch_size

"""What a batch is scored by: ranking losses on the final rows, and L2 on the rows of layer 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize, softplus

LossName = Literal["bpr", "bpr-hardest", "softmax", "softmax-product", "directau"]
LOSSES: tuple[LossName, ...] = get_args(LossName)


def bpr(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """``mean of −log σ(s(u, i) − s(u, j))``, s the inner product (Rendle et al., UAI 2009).

    Shapes: users (B, d), positives (B, d), negatives (B, n, d); the mean is over all B · n comparisons.
    ``softplus(−x)`` is ``−log σ(x)`` without its overflow.
    """
    value: Tensor = _BPR.apply(users, positives, negatives)  # type: ignore[no-untyped-call]
    return value


class _BPR(torch.autograd.Function):
    """With ``x = ⟨u, j − i⟩``: ``∂/∂u = σ(x)(j − i)``, ``∂/∂j = σ(x) u`` and ``∂/∂i = −∂/∂j``, by the mean's share.

    Written out, since autograd passes over the batch's rows twice as often, which is a tenth of a step on a CPU.
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
    """BPR against the one of a pair's n negatives that scores highest (Zhang et al., SIGIR 2013).

    Shapes as in ``bpr``; the mean is over the B pairs. Most uniform negatives are far below the positive and teach
    nothing; the hardest of a few is nearer to what stands in its way at the top of the list.
    """
    return softplus(_scored(users, negatives - positives.unsqueeze(1)).amax(dim=1)).mean()


def _scored(users: Tensor, items: Tensor) -> Tensor:
    """(B, n) inner products of each user (B, d) with its own items (B, n, d)."""
    if items.shape[1] == 1:  # the usual case, several times faster than a batch of tiny products
        return (users * items.squeeze(1)).sum(dim=1, keepdim=True)
    return torch.einsum("bd,bnd->bn", users, items)


def sampled_softmax(
    users: Tensor, positives: Tensor, negatives: Tensor, temperature: float, hits: Tensor | None = None
) -> Tensor:
    """``mean of −log( e^(c(u,i)/τ) / (e^(c(u,i)/τ) + Σ_j e^(c(u,j)/τ)) )``, c the cosine, j over shared negatives.

    Shapes: users (B, d), positives (B, d), negatives (K, d); ``hits`` (B, K) is true where j is an item of
    the row's user, which must not count against it. Cosines bound the scores, so τ alone sets how hard the
    hardest negatives pull. Scores are cosines, too, when items are ranked.
    """
    users, positives, negatives = (normalize(rows, dim=1) for rows in (users, positives, negatives))
    return softmax_product(users / temperature, positives, negatives, hits)


def softmax_product(users: Tensor, positives: Tensor, negatives: Tensor, hits: Tensor | None = None) -> Tensor:
    """``mean of −log( e^s(u,i) / (e^s(u,i) + Σ_j e^s(u,j)) )``, s the inner product; shapes as in ``sampled_softmax``.

    The lengths of rows stay free, so an item's own popularity has a place in its score, and L2 sets how sharp it gets.
    """
    value: Tensor = _SampledSoftmax.apply(users, positives, negatives, hits)  # type: ignore[no-untyped-call]
    return value


class _SampledSoftmax(torch.autograd.Function):
    """With ``s`` the inner products and ``p`` their softmax: ``∂/∂s(u, j) = p_j`` and ``∂/∂s(u, i) = p_i − 1``.

    Written out, since autograd passes over the (B, K) scores a dozen times and keeps several copies of them. Here they
    are one matrix, changed in place; what belongs to a row of it is multiplied to the rows of its products instead.
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
    """``alignment + γ · ½ (uniformity of users + uniformity of items)`` on unit rows (Wang et al., KDD 2022).

    Alignment is ``mean of ‖u − i‖²`` over the pairs; uniformity the logarithm of the ``mean of e^(−2‖x − y‖²)`` over
    all pairs of rows on one side of the batch: pairs are pulled together, everything else apart, and no negatives are
    drawn (``negatives`` is empty). Shapes: users (B, d), positives (B, d).
    """
    users, positives = normalize(users, dim=1), normalize(positives, dim=1)
    alignment = (users - positives).square().sum(dim=1).mean()
    return alignment + uniformity * (_uniformity(users) + _uniformity(positives)) / 2


def _uniformity(rows: Tensor) -> Tensor:
    """``log mean e^(−2‖x − y‖²)`` over the pairs x ≠ y of unit rows, for which ``‖x − y‖² = 2 − 2⟨x, y⟩``."""
    n = len(rows)
    if n < 2:
        return rows.new_zeros(())
    exponents = (4 * (rows @ rows.T) - 4).fill_diagonal_(-torch.inf)
    return torch.logsumexp(exponents.flatten(), dim=0) - math.log(n * (n - 1))


@dataclass(frozen=True)
class Objective:
    """A loss and what it asks of a batch: ``value(users, positives, negatives, **settings)``.

    ``negatives``: how many unless told otherwise, for each pair or ``shared`` by the batch. ``cosine``: it compares
    directions, so directions are ranked. ``all_pairs``: it compares rows with rows of other pairs, which is work enough
    for several threads. ``settings``: those of the training settings that it reads.
    """

    value: Callable[..., Tensor]
    negatives: int
    shared: bool = False
    cosine: bool = False
    all_pairs: bool = False
    settings: tuple[str, ...] = ()


OBJECTIVES: Mapping[LossName, Objective] = {
    "bpr": Objective(bpr, 1),
    "bpr-hardest": Objective(bpr_hardest, 8),
    "softmax": Objective(sampled_softmax, 1024, shared=True, cosine=True, all_pairs=True, settings=("temperature",)),
    "softmax-product": Objective(softmax_product, 1024, shared=True, all_pairs=True),
    # Inner products rank, as in its authors' code: the lengths, which the loss does not see, grow with popularity.
    "directau": Objective(directau, 0, all_pairs=True, settings=("uniformity",)),
}


def l2_term(ego_rows: Tensor, times: Tensor, batch_size: int) -> Tensor:
    """``½ Σ ‖e‖² / B`` over the layer-0 rows that a batch of B pairs uses, each as often as it is used.

    ``ego_rows`` (R, d) are the distinct rows, ``times`` (R,) how often each occurs among the batch's users, positives
    and negatives. Multiplied by λ this is the authors' reading of the paper's ``λ‖Θ‖²``; gates are not regularised.
    """
    return 0.5 * (ego_rows.square().sum(dim=1) * times).sum() / batch_size

"""What a batch is scored by: ranking losses on the final rows, and L2 on the rows of layer 0."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

LossName = Literal["bpr", "softmax"]
LOSSES: tuple[LossName, ...] = ("bpr", "softmax")


def bpr(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """``mean of −log σ(s(u, i) − s(u, j))``, s the inner product (Rendle et al., UAI 2009).

    Shapes: users (B, d), positives (B, d), negatives (B, n, d); the mean is over all B · n comparisons.
    ``softplus(−x)`` is ``−log σ(x)`` without its overflow.
    """
    positive = (users * positives).sum(dim=1, keepdim=True)
    if negatives.shape[1] == 1:  # the usual case, several times faster than a batch of tiny products
        negative = (users * negatives.squeeze(1)).sum(dim=1, keepdim=True)
    else:
        negative = torch.einsum("bd,bnd->bn", users, negatives)
    return softplus(negative - positive).mean()


def sampled_softmax(
    users: Tensor, positives: Tensor, negatives: Tensor, temperature: float, hits: Tensor | None = None
) -> Tensor:
    """``mean of −log( e^(c(u,i)/τ) / (e^(c(u,i)/τ) + Σ_j e^(c(u,j)/τ)) )``, c the cosine, j over shared negatives.

    Shapes: users (B, d), positives (B, d), negatives (K, d); ``hits`` (2, n_hits) names the (row, j) in which j is an
    item of that user, which must not count against it. Cosines bound the scores, so τ alone sets how hard the
    hardest negatives pull. Scores are cosines, too, when items are ranked.
    """
    users = normalize(users, dim=1)
    positive = (users * normalize(positives, dim=1)).sum(dim=1, keepdim=True) / temperature
    negative = users @ normalize(negatives, dim=1).T / temperature
    if hits is not None:
        negative = negative.index_put((hits[0], hits[1]), negative.new_tensor(-torch.inf))
    return (torch.logsumexp(torch.cat([positive, negative], dim=1), dim=1) - positive.squeeze(1)).mean()


def l2_term(ego_rows: Tensor, times: Tensor, batch_size: int) -> Tensor:
    """``½ Σ ‖e‖² / B`` over the layer-0 rows that a batch of B pairs uses, each as often as it is used.

    ``ego_rows`` (R, d) are the distinct rows, ``times`` (R,) how often each occurs among the batch's users, positives
    and negatives. Multiplied by λ this is the authors' reading of the paper's ``λ‖Θ‖²``; gates are not regularised.
    """
    return 0.5 * (ego_rows.square().sum(dim=1) * times).sum() / batch_size

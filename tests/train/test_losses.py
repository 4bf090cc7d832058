"""Losses against plain loops, their gradients, and their behaviour at the edges."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from dgcf.train.losses import (
    OBJECTIVES,
    LossName,
    bpr,
    bpr_hardest,
    directau,
    l2_term,
    sampled_softmax,
    softmax_product,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("n", [1, 3])
def test_bpr_is_the_mean_over_all_comparisons(n: int, dim: int) -> None:
    users, positives, negatives = drawn(4, dim), drawn(4, dim, seed=1), drawn(4, n, dim, seed=2)
    expected = [
        -math.log(1 / (1 + math.exp(-(float(users[b] @ positives[b]) - float(users[b] @ negatives[b, k])))))
        for b in range(4)
        for k in range(n)
    ]
    assert bpr(users, positives, negatives).item() == pytest.approx(sum(expected) / len(expected), rel=1e-12)


def test_bpr_stays_finite_where_the_logistic_underflows() -> None:
    far = torch.full((1, 1), 40.0, requires_grad=True)
    value = bpr(far, -far.detach(), far.detach()[None])
    assert value.item() == pytest.approx(3200.0)
    value.backward()
    assert far.grad is not None
    assert far.grad.item() == pytest.approx(80.0)


def test_bpr_hardest_is_bpr_against_the_negative_that_scores_highest() -> None:
    users, positives, negatives = drawn(6, 5), drawn(6, 5, seed=1), drawn(6, 4, 5, seed=2)
    hardest = torch.stack([max(negatives[b], key=lambda item, b=b: float(users[b] @ item)) for b in range(6)])
    expected = bpr(users, positives, hardest.unsqueeze(1))
    assert bpr_hardest(users, positives, negatives).item() == pytest.approx(expected.item(), rel=1e-12)
    assert bpr_hardest(users, positives, negatives[:, :1]) == bpr(users, positives, negatives[:, :1])


@pytest.mark.parametrize("pairs", [2, 3, 5])
def test_directau_is_alignment_and_uniformity_of_unit_rows(pairs: int) -> None:
    users, positives = drawn(pairs, 4), drawn(pairs, 4, seed=1)
    unit = [[row / row.norm() for row in side] for side in (users, positives)]
    alignment = sum(float((u - i).square().sum()) for u, i in zip(*unit, strict=True)) / pairs
    spread = [
        sum(math.exp(-2 * float((x - y).square().sum())) for x, y in combinations(side, 2)) / math.comb(pairs, 2)
        for side in unit
    ]
    expected = alignment + 0.7 * (math.log(spread[0]) + math.log(spread[1])) / 2
    assert directau(users, positives, drawn(pairs, 0, 4), 0.7).item() == pytest.approx(expected, rel=1e-12)


def test_directau_of_a_single_pair_is_its_alignment() -> None:
    users, positives = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert directau(users, positives, torch.empty(1, 0, 2), 1.0).item() == pytest.approx(2.0)


def test_sampled_softmax_is_the_cross_entropy_of_the_positive() -> None:
    users, positives, negatives = drawn(3, 5), drawn(3, 5, seed=1), drawn(4, 5, seed=2)
    owned = {(1, 0), (1, 3), (2, 2)}
    hits = torch.tensor([[(b, k) in owned for k in range(4)] for b in range(3)])

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))

    expected = 0.0
    for b in range(3):
        positive = math.exp(cosine(users[b], positives[b]) / 0.2)
        others = sum(math.exp(cosine(users[b], negatives[k]) / 0.2) for k in range(4) if (b, k) not in owned)
        expected -= math.log(positive / (positive + others)) / 3
    assert sampled_softmax(users, positives, negatives, 0.2, hits).item() == pytest.approx(expected, rel=1e-12)


def test_softmax_product_is_the_cross_entropy_of_inner_products() -> None:
    users, positives, negatives = drawn(3, 5), drawn(3, 5, seed=1), drawn(4, 5, seed=2)
    scores = torch.cat([(users * positives).sum(dim=1, keepdim=True), users @ negatives.T], dim=1)
    expected = torch.nn.functional.cross_entropy(scores, torch.zeros(3, dtype=torch.long))
    assert softmax_product(users, positives, negatives).item() == pytest.approx(expected.item(), rel=1e-12)
    hits = torch.tensor([[False, True, False, False]] * 3)
    without = softmax_product(users, positives, negatives[[0, 2, 3]])
    assert softmax_product(users, positives, negatives, hits).item() == pytest.approx(without.item(), rel=1e-12)


def test_softmax_rows_are_numerically_independent() -> None:
    users, positives, negatives = drawn(2, 5), drawn(2, 5, seed=1), drawn(4, 5, seed=2)
    users[1] *= 1e4
    alone = [softmax_product(users[[b]], positives[[b]], negatives).item() for b in range(2)]
    assert softmax_product(users, positives, negatives).item() == pytest.approx(sum(alone) / 2, rel=1e-12)


def test_sampled_softmax_with_nothing_but_hits_is_zero_and_has_a_gradient() -> None:
    users = drawn(1, 4).requires_grad_()
    hits = torch.ones(1, 2, dtype=torch.bool)
    value = sampled_softmax(users, drawn(1, 4, seed=1), drawn(2, 4, seed=2), 0.1, hits)
    assert value.item() == 0.0
    value.backward()
    assert users.grad is not None
    assert torch.isfinite(users.grad).all()


def test_gradcheck() -> None:
    users, positives = drawn(3, 4).requires_grad_(), drawn(3, 4, seed=1).requires_grad_()
    own, shared = drawn(3, 2, 4, seed=2).requires_grad_(), drawn(5, 4, seed=3).requires_grad_()
    hits = torch.zeros(3, 5, dtype=torch.bool)
    hits[0, 1] = hits[2, 4] = True
    assert torch.autograd.gradcheck(bpr, (users, positives, own))
    assert torch.autograd.gradcheck(bpr, (users, positives, drawn(3, 1, 4, seed=4).requires_grad_()))
    assert torch.autograd.gradcheck(lambda u, p, n: sampled_softmax(u, p, n, 0.3, hits), (users, positives, shared))
    assert torch.autograd.gradcheck(lambda u, p, n: softmax_product(u, p, n, hits), (users, positives, shared))
    assert torch.autograd.gradcheck(bpr_hardest, (users, positives, own))
    assert torch.autograd.gradcheck(lambda u, p: directau(u, p, own, 0.5), (users, positives))
    assert torch.autograd.gradcheck(lambda rows: l2_term(rows, torch.tensor([1, 2, 1]), 2), (users,))


@pytest.mark.parametrize("name", [name for name, objective in OBJECTIVES.items() if objective.cosine])
def test_cosine_objectives_ignore_row_lengths(name: LossName) -> None:
    objective = OBJECTIVES[name]
    settings = dict.fromkeys(objective.settings, 0.3)
    rows = drawn(3, 4), drawn(3, 4, seed=1), drawn(5, 4, seed=2)
    longer = (side * 7 for side in rows)
    assert objective.value(*longer, **settings).item() == pytest.approx(objective.value(*rows, **settings).item())


def test_l2_counts_repeated_rows() -> None:
    rows, times = drawn(3, 4), torch.tensor([2, 1, 5])
    repeated = rows.repeat_interleave(times, dim=0)
    assert l2_term(rows, times, 4).item() == pytest.approx(float(repeated.square().sum()) / 2 / 4, rel=1e-14)

"""Whoever is asked about: from the items that somebody has to what ranks for them, and to the reasons.

One class for each way in which a model knows people: as nodes of a graph, by their items alone, by least squares
against the items, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.topk import Candidates, exact_scores
from dgcf.ranking.weights import WeightMatrix
from dgcf.recommend.explain import Explainer, Explanation, Part, parts_of
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.snapshot import LeastSquares, Snapshot


class People(Protocol):
    """What the recommender needs to know of people, known or new."""

    def query(self, items: Indices, user: int | None) -> Any:
        """What the catalogue is asked for somebody who has ``items``: a new user, or a known one who has more now."""
        ...

    def explain(self, user: int, item: int) -> Explanation:
        """The score of a known user, as trained."""
        ...

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        """The score that ``query`` gives."""
        ...


def people_of(snapshot: Snapshot, folding: Callable[[], FoldIn]) -> People:
    """The way in which a model knows people; ``folding`` is asked for the graph's, and refuses where there is none."""
    if isinstance(snapshot.ranking, WeightMatrix):
        return ByTheirItems(snapshot, snapshot.ranking)
    if snapshot.least_squares is not None:
        return ByLeastSquares(snapshot, snapshot.least_squares)
    if snapshot.load_layers is None and _all_the_same(snapshot.user_rows):
        return Alike(snapshot)
    return InTheGraph(snapshot, folding)


def _all_the_same(rows: Rows) -> bool:
    return np.array_equal(rows[0], rows[-1]) and bool((rows == rows[0]).all())


class InTheGraph:
    """Nodes, folded in as a layer would compute them."""

    def __init__(self, snapshot: Snapshot, folding: Callable[[], FoldIn]) -> None:
        self.snapshot, self.folding = snapshot, folding

    @property
    def _explainer(self) -> Explainer:
        linear = self.snapshot.rule is not None and self.snapshot.layers is not None
        return Explainer(self.snapshot, self.folding() if linear else None)

    def query(self, items: Indices, user: int | None) -> Rows:
        return self.folding().fold("user", items, user).ranked[None]

    def explain(self, user: int, item: int) -> Explanation:
        return self._explainer.known(user, item)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        return self._explainer.folded(self.folding().fold("user", items, user), item, _raw(self.snapshot, user))


class ByTheirItems:
    """Somebody is what they have: ``s(u, i) = Σ_j W[j, i]``, and each of these numbers is a reason. A new user is as
    exact as a known one."""

    def __init__(self, snapshot: Snapshot, weights: WeightMatrix) -> None:
        self.snapshot, self.weights = snapshot, weights

    def query(self, items: Indices, user: int | None) -> Pairs:
        return Pairs(np.array([0, len(items)]), items.astype(np.int32), self.snapshot.n_items)

    def explain(self, user: int, item: int) -> Explanation:
        return self.explain_new(self.snapshot.train[user].astype(np.int64), item, user)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        score = float(self.weights.total(items)[item])
        return _by_items(self.snapshot, user, item, score, items, self.weights.column(items, item))


class ByLeastSquares:
    """Somebody is the row that fits their items best, given the items' rows Y: iALS.

    ``x = A⁻¹ α Σ_j y_j``, ``A = YᵀY + (α − 1) Σ_j y_j y_jᵀ + λ I`` over their items j; so ``⟨x, y_i⟩`` is a sum over
    their items of ``α y_iᵀ A⁻¹ y_j`` (Hu, Koren and Volinsky, section 5).
    """

    def __init__(self, snapshot: Snapshot, rule: LeastSquares) -> None:
        self.snapshot, self.rule = snapshot, rule

    @cached_property
    def _gram(self) -> Floats:
        rows = self.snapshot.item_rows.astype(np.float64)
        return np.asarray(rows.T @ rows)

    def _solved(self, rows: Floats, right: Floats) -> Floats:
        """``A⁻¹ right`` of somebody whose items have these rows."""
        A = self._gram + (self.rule.confidence - 1.0) * rows.T @ rows
        return np.asarray(np.linalg.solve(A + self.rule.regularization * np.eye(len(A)), right), dtype=np.float64)

    def query(self, items: Indices, user: int | None) -> Rows:
        rows = self.snapshot.item_rows[items].astype(np.float64)
        return self._solved(rows, self.rule.confidence * rows.sum(0)).astype(np.float32)[None]

    def explain(self, user: int, item: int) -> Explanation:
        own = self.snapshot.user_rows[user : user + 1]
        return self._explained(self.snapshot.train[user].astype(np.int64), item, user, own)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        return self._explained(items, item, user, self.query(items, user))

    def _explained(self, items: Indices, item: int, user: int | None, query: Rows) -> Explanation:
        rows = self.snapshot.item_rows[items].astype(np.float64)
        target = self.snapshot.item_rows[item].astype(np.float64)
        values = self.rule.confidence * rows @ self._solved(rows, target)
        pair = Candidates(np.zeros(1, dtype=np.int64), np.array([item]))
        score = float(exact_scores(query, self.snapshot.item_rows, pair)[0])
        return _by_items(self.snapshot, user, item, score, items, values)


class Alike:
    """Everybody is the same to the model, so somebody new is, too: popularity."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def query(self, items: Indices, user: int | None) -> Rows:
        return self.snapshot.user_rows[:1]

    def explain(self, user: int, item: int) -> Explanation:
        return self.explain_new(np.zeros(0, dtype=np.int64), item, user)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        known = self.snapshot
        pair = Candidates(np.zeros(1, dtype=np.int64), np.array([item]))
        score = float(exact_scores(known.user_rows, known.item_rows, pair)[0])
        return Explanation(
            user=_raw(known, user),
            item=known.items.id_of(item),
            title=known.items.title_of(item),
            score=score,
            parts=(Part("user", None, "everybody", (score,), known.n_users),),
            taken_by=int(known.train.item_degrees[item]),
        )


def _by_items(
    known: Snapshot, user: int | None, item: int, score: float, items: Indices, values: Floats
) -> Explanation:
    """A score that is a sum over the items that somebody has."""
    return Explanation(
        user=_raw(known, user),
        item=known.items.id_of(item),
        title=known.items.title_of(item),
        score=score,
        parts=tuple(parts_of("item", items, values[:, None], known.items)),
        taken_by=0,
    )


def _raw(known: Snapshot, user: int | None) -> Any:
    return None if user is None else known.users.id_of(user)

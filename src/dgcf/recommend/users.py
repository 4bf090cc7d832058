"""Represent known and new users: the query that ranks for a user's items, and the parts of a score.

There is one class for each rule by which a ranking represents users (``dgcf.ranking.user_rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dgcf.data.pairs import Pairs
from dgcf.ids import RawId
from dgcf.ranking.arrays import Floats, Indices, Rows
from dgcf.ranking.blend import Blend, BlendQueries, item_sum_scale
from dgcf.ranking.topk import Candidates, exact_scores, one_query
from dgcf.ranking.user_rules import ConstantRow, ItemSums, LeastSquares, UserRule, embeddings_rule
from dgcf.ranking.weights import WeightMatrix
from dgcf.recommend.explain import Explainer, Explanation, Part, parts_of
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.snapshot import Snapshot


class Users(Protocol):
    """How a model represents users, known or new."""

    def query(self, items: Indices, user: int | None) -> Any:
        """Return the query of a user with ``items``: a new one, or the known ``user`` with all items so far."""

    def explain(self, user: int, item: int) -> Explanation:
        """Explain the score of a known user, as trained."""

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        """Explain the score that ``query`` gives."""


def users_of(snapshot: Snapshot, folding: Callable[[], FoldIn]) -> Users:
    """Return the class for the ranking's rule; ``folding`` returns the graph's fold-in, or raises ``DataError``."""
    ranking = snapshot.ranking
    own = _users_of_rule(embeddings_rule(ranking.user_rule), snapshot, folding)
    return BlendUsers(snapshot, own, ranking) if isinstance(ranking, Blend) else own


def _users_of_rule(rule: UserRule | None, snapshot: Snapshot, folding: Callable[[], FoldIn]) -> Users:
    match rule:
        case ItemSums(weights=weights):
            return ItemSumUsers(snapshot, weights)
        case LeastSquares() as rule:
            return LeastSquaresUsers(snapshot, rule)
        case ConstantRow():
            return ConstantUsers(snapshot)
        case _:
            return GraphUsers(snapshot, folding)


@dataclass(frozen=True)
class GraphUsers:
    """Users are nodes of the graph; a new one is folded in."""

    snapshot: Snapshot
    folding: Callable[[], FoldIn]

    @property
    def _explainer(self) -> Explainer:
        linear = self.snapshot.rule is not None and self.snapshot.layers is not None
        return Explainer(self.snapshot, self.folding() if linear else None)

    def query(self, items: Indices, user: int | None) -> Rows:
        return self.folding().fold("user", items, user).ranked[None]

    def explain(self, user: int, item: int) -> Explanation:
        return self._explainer.known(user, item)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        return self._explainer.folded(self.folding().fold("user", items, user), item, _raw_id(self.snapshot, user))


@dataclass(frozen=True)
class ItemSumUsers:
    """Users are sets of items: ``s(u, i) = Σ_j W[j, i]``, each weight a part of the score; exact for new users, too."""

    snapshot: Snapshot
    weights: WeightMatrix

    def query(self, items: Indices, user: int | None) -> Pairs:
        return one_query(items, self.snapshot.n_items)

    def explain(self, user: int, item: int) -> Explanation:
        return self.explain_new(self.snapshot.train[user].astype(np.int64), item, user)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        score = float(self.weights.sum_rows(items)[item])
        parts = parts_of("item", items, self.weights.column(items, item)[:, None], self.snapshot.items)
        return _explanation(self.snapshot, user, item, score, parts)


@dataclass(frozen=True)
class BlendUsers:
    """Users of a composed ranking: those of the embeddings, ``d^-½ Σ_j W[j, i]`` over their d items j, and p_i.

    An item that nobody has in training adds nothing and does not count.
    """

    snapshot: Snapshot
    own: Users
    ranking: Blend[Rows]

    def query(self, items: Indices, user: int | None) -> BlendQueries:
        rows = self.own.query(items, user)
        return self.ranking.queries_of(rows, one_query(self._known(items), self.snapshot.n_items))

    def explain(self, user: int, item: int) -> Explanation:
        return self._add(self.own.explain(user, item), self.snapshot.train[user].astype(np.int64), item)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        return self._add(self.own.explain_new(items, item, user), self._known(items), item)

    def _known(self, items: Indices) -> Indices:
        return np.asarray(items[self.snapshot.train.item_degrees[items] > 0])

    def _add(self, explanation: Explanation, items: Indices, item: int) -> Explanation:
        scale = float(item_sum_scale(np.array([len(items)]))[0])
        values = scale * self.ranking.weights.column(items, item)
        weights = list(zip(items.tolist(), values.tolist(), strict=True))
        prior = None if self.ranking.prior is None else float(self.ranking.prior[item])
        return explanation.with_blend(weights, prior, self.snapshot.items)


@dataclass(frozen=True)
class LeastSquaresUsers:
    """A user is the least-squares solution for the user's items, given the items' rows Y: iALS.

    ``x = A⁻¹ α Σ_j y_j``, ``A = YᵀY + (α − 1) Σ_j y_j y_jᵀ + λ I`` over the user's items j; so ``⟨x, y_i⟩`` is a sum
    over these items of ``α y_iᵀ A⁻¹ y_j`` (Hu, Koren and Volinsky, section 5).
    """

    snapshot: Snapshot
    rule: LeastSquares

    @cached_property
    def _gram(self) -> Floats:
        rows = self.snapshot.item_rows.astype(np.float64)
        return np.asarray(rows.T @ rows)

    def _solve(self, rows: Floats, right: Floats) -> Floats:
        """Return ``A⁻¹ right`` of a user whose items have these rows."""
        A = self._gram + (self.rule.confidence - 1.0) * rows.T @ rows
        return np.asarray(np.linalg.solve(A + self.rule.regularization * np.eye(len(A)), right), dtype=np.float64)

    def query(self, items: Indices, user: int | None) -> Rows:
        rows = self.snapshot.item_rows[items].astype(np.float64)
        return self._solve(rows, self.rule.confidence * rows.sum(0)).astype(np.float32)[None]

    def explain(self, user: int, item: int) -> Explanation:
        row = self.snapshot.user_rows[user : user + 1]
        return self._explain(self.snapshot.train[user].astype(np.int64), item, user, row)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        return self._explain(items, item, user, self.query(items, user))

    def _explain(self, items: Indices, item: int, user: int | None, query: Rows) -> Explanation:
        rows = self.snapshot.item_rows[items].astype(np.float64)
        target = self.snapshot.item_rows[item].astype(np.float64)
        values = self.rule.confidence * rows @ self._solve(rows, target)
        parts = parts_of("item", items, values[:, None], self.snapshot.items)
        return _explanation(self.snapshot, user, item, _score(self.snapshot, query, item), parts)


@dataclass(frozen=True)
class ConstantUsers:
    """Every user, known or new, has the same row: popularity."""

    snapshot: Snapshot

    def query(self, items: Indices, user: int | None) -> Rows:
        return self.snapshot.user_rows[:1]

    def explain(self, user: int, item: int) -> Explanation:
        return self.explain_new(np.zeros(0, dtype=np.int64), item, user)

    def explain_new(self, items: Indices, item: int, user: int | None) -> Explanation:
        score = _score(self.snapshot, self.snapshot.user_rows, item)
        parts = [Part("user", None, "everybody", (score,), self.snapshot.n_users)]
        return _explanation(self.snapshot, user, item, score, parts, int(self.snapshot.train.item_degrees[item]))


def _explanation(
    snapshot: Snapshot, user: int | None, item: int, score: float, parts: Iterable[Part], taken_by: int = 0
) -> Explanation:
    title = snapshot.items.title_of(item)
    return Explanation(_raw_id(snapshot, user), snapshot.items.id_of(item), title, score, tuple(parts), taken_by)


def _score(snapshot: Snapshot, query: Rows, item: int) -> float:
    """Return the exact score of an item for the first row of ``query``."""
    pair = Candidates(np.zeros(1, dtype=np.int64), np.array([item]))
    return float(exact_scores(query, snapshot.item_rows, pair)[0])


def _raw_id(snapshot: Snapshot, user: int | None) -> RawId | None:
    return None if user is None else snapshot.users.id_of(user)

"""How a ranking represents users: the rule that a model declares, from which fold-in and explanations follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dgcf.ranking.weights import WeightMatrix
from dgcf.stored import Range


@dataclass(frozen=True)
class LinearLayers:
    """Users and items are nodes of a graph; their rows are a weighted sum of linear propagation layers.

    ``e_n = Σ_l w_l E_n⁽ˡ⁾`` with ``E⁽ˡ⁾ = M (α⁽ˡ⁾ ⊙ E⁽ˡ⁻¹⁾)``. A score splits exactly over the nodes that its layers
    came from. A new node is computed as a layer would compute it, if M follows from the training pairs.
    """


@dataclass(frozen=True)
class LeastSquares:
    """A user's row is the least-squares solution of iALS for the user's items, given the items' rows.

    ``confidence``: the weight α of a training pair; ``regularization``: λ. An artefact must hold them in these ranges.
    """

    confidence: Annotated[float, Range(1e-12, 1e9)]
    regularization: Annotated[float, Range(1e-12, 1e9)]


@dataclass(frozen=True, eq=False)
class ItemSums:
    """A user's scores are the sum of the weights of the user's items j: ``s(u, i) = Σ_j W[j, i]``."""

    weights: WeightMatrix


@dataclass(frozen=True)
class ConstantRow:
    """Every user has the same row, so a new one has it, too."""


@dataclass(frozen=True, eq=False)
class BlendedRule:
    """A user's scores are those of the rule ``base`` plus ``d^-½ Σ_j W[j, i]`` over the user's d items j."""

    base: UserRule
    weights: WeightMatrix


UserRule = LinearLayers | LeastSquares | ItemSums | ConstantRow | BlendedRule
"""A ranking without a rule (None) scores the users that it was trained with and can neither fold in nor explain."""


def embeddings_rule(rule: UserRule | None) -> UserRule | None:
    """Return the rule of the embeddings alone, without the item weights that a composed ranking adds."""
    return rule.base if isinstance(rule, BlendedRule) else rule

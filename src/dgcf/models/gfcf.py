"""GF-CF: a linear filter of the item graph and an ideal low pass, without training."""

from __future__ import annotations

from dataclasses import dataclass

from dgcf.models.graph_filter import FilterConfig, GraphFilter


@dataclass(frozen=True)
class GFCFConfig(FilterConfig):
    """Settings of GF-CF."""


class GFCF(GraphFilter):
    """Graph filter based collaborative filtering (Shen et al., CIKM 2021).

    ``W = P + a · D_i^-½ V Vᵀ D_i^½`` with ``P = R̃ᵀR̃``, ``R̃ = D_u^-½ R D_i^-½`` and V its first k right singular
    vectors. ``s(u, i) = Σ_j W[j, i]`` over u's items j. Shapes: P and W (n_items, n_items), V (n_items, k).
    """

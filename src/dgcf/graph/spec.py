"""The specification from which a graph model's propagation operator is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from dgcf.errors import ConfigError, did_you_mean

Cross = Literal["filtered", "matrix-free", "none"]
Epsilon = float | Literal["auto"]
CROSS_FORMS = ("filtered", "matrix-free", "none")


def check_epsilon(epsilon: Epsilon) -> None:
    """Raise ``ConfigError`` unless ε is ``"auto"`` or a number from 0 to 1, the range of Lc."""
    if isinstance(epsilon, str):
        if epsilon != "auto":
            raise ConfigError(f"epsilon is {epsilon!r}, expected a number from 0 to 1, or 'auto'.")
    elif isinstance(epsilon, bool) or not (math.isfinite(epsilon) and 0.0 <= epsilon <= 1.0):
        raise ConfigError(
            f"epsilon is {epsilon}, expected a number from 0 to 1 (all values of Lc lie there), or 'auto'."
        )


@dataclass(frozen=True)
class PropagationSpec:
    """``M = [direct] L + [cross] Lc + [self_loop] I``; the defaults are the paper's ``L + Lc + I``.

    ``cross`` is the form of the cross-hop term: ``"filtered"`` stores the entries ``Lc > ε``, ``"matrix-free"``
    applies all of Lc as ``s ⊙ A(A(s ⊙ x))`` without storing it (ε is not used), ``"none"`` leaves it out.
    """

    direct: bool = True
    cross: Cross = "filtered"
    epsilon: Epsilon = "auto"
    self_loop: bool = True
    cross_diagonal: bool = True
    """Whether Lc keeps its diagonal, ``d_i / dc_i``, as the paper's A² does."""
    cross_below_one: bool = False
    """Keep only ``ε < Lc < 1``, as the authors' code does. Entries of 1 occur only on the diagonal of nodes whose
    neighbours have no other neighbour, so this affects isolated stars of the graph alone."""
    renormalised: bool = False
    """Add a loop to every node before L is normalised: ``(D+I)^-½ (A+I) (D+I)^-½`` (Kipf and Welling, ICLR 2017). This
    is independent of ``self_loop``, whose ``I`` is added after the normalisation."""
    spectral: int | Literal["all"] | None = None
    """Replace M by the filter ``U Uᵀ + U Λ Uᵀ``, where Λ and U are the lowest so many eigenvalues of ``I − M`` and
    their eigenvectors; ``"all"`` is ``2I − M`` without a decomposition (Zheng et al., RecSys 2018)."""
    edge_weights: bool = False
    """Let L hold the weights of pairs: ``w_ui / √(w_u w_i)``, where w_u and w_i are the sums over a node's pairs. Lc
    counts common neighbours as without weights."""

    def __post_init__(self) -> None:
        if self.cross not in CROSS_FORMS:
            hint = did_you_mean(str(self.cross), CROSS_FORMS)
            raise ConfigError(f"cross is {self.cross!r}, expected one of {', '.join(CROSS_FORMS)}{hint}.")
        check_epsilon(self.epsilon)
        if not self.direct and self.cross == "none" and not self.self_loop:
            raise ConfigError("the propagation has no parts and would be zero; turn on direct, cross or self_loop.")
        if self.renormalised and (not self.direct or self.cross == "matrix-free"):
            raise ConfigError("renormalised needs a stored L; turn on direct, and choose cross='filtered' or 'none'.")
        if self.edge_weights and (not self.direct or self.cross == "matrix-free"):
            raise ConfigError("edge_weights needs a stored L; turn on direct, and choose cross='filtered' or 'none'.")
        count = isinstance(self.spectral, int) and not isinstance(self.spectral, bool) and self.spectral >= 1
        if not count and self.spectral not in (None, "all"):
            raise ConfigError(f"spectral is {self.spectral!r}, expected a whole number from 1 on, or 'all'.")
        if self.spectral is not None and self.cross == "matrix-free":
            raise ConfigError("a spectral filter needs a stored matrix; choose cross='filtered' or 'none'.")


DIRECT = PropagationSpec(cross="none", self_loop=False)
"""``M = L``: direct neighbours alone, as in LightGCN."""
RENORMALISED = replace(DIRECT, renormalised=True)
"""``M = (D+I)^-½ (A+I) (D+I)^-½``, as in GCN."""

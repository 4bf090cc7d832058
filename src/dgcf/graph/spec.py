"""What a propagation is made of: the one description from which every graph model's operator is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from dgcf.errors import ConfigError, did_you_mean

Cross = Literal["filtered", "matrix-free", "none"]
Epsilon = float | Literal["auto"]
CROSS_FORMS = ("filtered", "matrix-free", "none")


def check_epsilon(epsilon: Epsilon) -> None:
    """Refuse what is neither ``"auto"`` nor a number from 0 to 1 (Lc has no value outside)."""
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

    ``cross`` says how two-hop neighbours are heard: ``"filtered"`` keeps ``Lc > ε`` as stored entries;
    ``"matrix-free"`` applies all of Lc as ``s ⊙ A(A(s ⊙ x))`` without storing it (ε plays no part);
    ``"none"`` leaves it out.
    """

    direct: bool = True
    cross: Cross = "filtered"
    epsilon: Epsilon = "auto"
    self_loop: bool = True
    cross_diagonal: bool = True
    """Whether Lc keeps its own diagonal, ``d_i / dc_i`` (the paper's A² has it)."""
    cross_below_one: bool = False
    """Keep ``ε < Lc < 1`` as the authors' code does. Only a node whose neighbours have no other has a 1, on its
    diagonal, so this touches lone stars of the graph and nothing else."""
    renormalised: bool = False
    """Put a loop at every node before L is normalised: ``(D+I)^-½ (A+I) (D+I)^-½`` (Kipf and Welling, ICLR 2017). The
    ``I`` of ``self_loop`` is added after it, and is another one."""
    spectral: int | Literal["all"] | None = None
    """In the place of M its filter ``U Uᵀ + U Λ Uᵀ``, where Λ and U are eigenvalues and eigenvectors of ``I − M``:
    that many of the lowest, or ``"all"``, which is ``2I − M`` without a decomposition (Zheng et al., RecSys 2018)."""

    def __post_init__(self) -> None:
        if self.cross not in CROSS_FORMS:
            hint = did_you_mean(str(self.cross), CROSS_FORMS)
            raise ConfigError(f"cross is {self.cross!r}, expected one of {', '.join(CROSS_FORMS)}{hint}.")
        check_epsilon(self.epsilon)
        if not self.direct and self.cross == "none" and not self.self_loop:
            raise ConfigError("a propagation of no parts is always zero; turn on direct, cross or self_loop.")
        if self.renormalised and (not self.direct or self.cross == "matrix-free"):
            raise ConfigError(
                "renormalised is about a stored L; turn on direct, and choose cross='filtered' or 'none'."
            )
        if self.spectral is not None:
            self._check_spectral()

    def _check_spectral(self) -> None:
        count = isinstance(self.spectral, int) and not isinstance(self.spectral, bool) and self.spectral >= 1
        if not count and self.spectral != "all":
            raise ConfigError(f"spectral is {self.spectral!r}, expected a whole number from 1 on, or 'all'.")
        if self.cross == "matrix-free":
            raise ConfigError("a spectral filter needs a stored matrix; choose cross='filtered' or 'none'.")

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> PropagationSpec:
        """A named reading: ``paper`` (L + Lc + I), ``official-code`` (no I, ``ε < Lc < 1``), ``lightgcn`` (L alone),
        ``gcn`` (L of the graph with loops).
        """
        if name not in PRESETS:
            hint = did_you_mean(name, PRESETS)
            raise ConfigError(f"there is no propagation preset {name!r}, only {', '.join(PRESETS)}{hint}.")
        unknown = sorted(set(overrides) - set(cls.__dataclass_fields__))
        if unknown:
            hint = did_you_mean(unknown[0], cls.__dataclass_fields__)
            raise ConfigError(f"a propagation has no setting {unknown[0]!r}{hint}.")
        return replace(PRESETS[name], **overrides)


PRESETS = {
    "paper": PropagationSpec(),
    "official-code": PropagationSpec(self_loop=False, cross_below_one=True),
    "lightgcn": PropagationSpec(cross="none", self_loop=False),
    "gcn": PropagationSpec(cross="none", self_loop=False, renormalised=True),
}

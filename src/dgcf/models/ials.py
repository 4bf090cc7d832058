"""iALS: matrix factorisation by alternating least squares on all pairs, with more weight on training pairs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dgcf.config import Between, OneOf, require_range, tunable
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.models.base import SolvedEmbeddings
from dgcf.models.config import MAX_DIM, ModelConfig
from dgcf.random import uniform
from dgcf.ranking.user_rules import LeastSquares

_START_SCALE = 0.01


@dataclass(frozen=True)
class IALSConfig(ModelConfig):
    """Settings of iALS, named as in the ``implicit`` package."""

    factors: int = tunable(64, OneOf((32, 64, 128, 256)))
    """Width of the embeddings."""
    regularization: float = tunable(50.0, Between(1e-3, 1e3, log=True))
    """L2 regularisation λ of the embeddings."""
    alpha: float = tunable(10.0, Between(1.0, 100.0, log=True))
    """Confidence α of a training pair; any other pair has 1. (Hu, Koren and Volinsky write 1 + α.)
    With ``weighted``: 1 + α · weight."""
    iterations: int = tunable(15, Between(5, 50))
    """Number of alternations between solving for users and for items."""
    weighted: bool = False
    """Let the confidence of a pair grow with its weight. Requires data with weights (``--weight-col``)."""

    def __post_init__(self) -> None:
        require_range("factors", self.factors, 1, MAX_DIM)
        require_range("regularization", self.regularization, 0, 1e9, open_low=True)
        require_range("alpha", self.alpha, 0, 1e9, open_low=True)
        require_range("iterations", self.iterations, 1, 10_000)

    @property
    def weight_setting(self) -> str | None:
        return "weighted" if self.weighted else None


class IALS(SolvedEmbeddings):
    """Implicit alternating least squares (Hu, Koren and Volinsky, ICDM 2008), solved by ``implicit``.

    Minimises ``Σ_ui c_ui (p_ui − ⟨x_u, y_i⟩)² + λ (Σ‖x_u‖² + Σ‖y_i‖²)`` over all users and items, with p = 1 and
    c = α for a training pair, p = 0 and c = 1 for any other. At the end users are solved exactly once more:
    ``x_u = (YᵀY + (α − 1) Σ_j y_j y_jᵀ + λ I)⁻¹ α Σ_j y_j`` over u's items j, the rule by which a new user is folded
    in. Shapes: x (n_users, factors), y (n_items, factors).

    With ``weighted``, c = 1 + α w for a training pair of weight w. There is then no rule for new users, as their items
    have no weights.
    """

    config: IALSConfig

    def __init__(self, n_users: int, n_items: int, config: IALSConfig) -> None:
        super().__init__(n_users, n_items, config, config.factors)
        self.user_rule = None if config.weighted else LeastSquares(config.alpha, config.regularization)

    def solve(self, pairs: Pairs, seed: int, device: torch.device | str = "cpu") -> None:
        try:
            from implicit.cpu.als import AlternatingLeastSquares
            from implicit.recommender_base import ModelFitError
            from threadpoolctl import threadpool_limits
        except ImportError:
            raise ConfigError(
                "model ials needs the package implicit; install it with: pip install 'dgcf[ials]'."
            ) from None
        # One BLAS thread, as the package recommends: it distributes rows over its own threads, one row at a time, so
        # the result does not depend on their number.
        confidence = self._confidence(pairs)
        with threadpool_limits(1, "blas"):
            settings = asdict(self.config)
            if settings.pop("weighted"):
                settings["alpha"] = 1.0  # the matrix holds the confidences
            solver = AlternatingLeastSquares(**settings)
            solver.user_factors, solver.item_factors = self._start("users", seed), self._start("items", seed)
            try:
                solver.fit(pairs.to_scipy(confidence), show_progress=False)
                users = solver.recalculate_user(np.arange(pairs.n_users), pairs.to_scipy(confidence))
            except (ModelFitError, ValueError) as problem:  # not finite, or a matrix that Cholesky cannot take
                raise ConfigError(
                    "iALS has no solution in float32; raise regularization or lower alpha with --set."
                ) from problem
        self.users.copy_(torch.from_numpy(users))
        self.items.copy_(torch.from_numpy(solver.item_factors))

    def _confidence(self, pairs: Pairs) -> NDArray[np.float32] | None:
        """Return c of each training pair, (n_pairs,), or None if the solver is to use α for all."""
        if not self.config.weighted:
            return None
        return (1.0 + self.config.alpha * pairs.require_weights("weighted").astype(np.float64)).astype(np.float32)

    def _start(self, name: str, seed: int) -> NDArray[np.float32]:
        """Return small positive embeddings, distributed as the package's own, from a stream of ``seed``."""
        shape = self.get_buffer(name).shape
        values = uniform(seed, f"init/ials.{name}", shape.numel()) * _START_SCALE
        return values.astype(np.float32).reshape(shape)

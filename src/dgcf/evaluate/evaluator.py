"""Full-ranking evaluation: a scorer and a dataset's splits in, an ``Evaluation`` with per-user values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dgcf.data.pairs import Pairs
from dgcf.evaluate.topk import MEMORY, Scorer


class Splits(Protocol):
    """What evaluation needs of a dataset; ``dgcf.data.dataset.Dataset`` is one."""

    @property
    def train(self) -> Pairs: ...
    @property
    def validation(self) -> Pairs: ...
    @property
    def test(self) -> Pairs: ...


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation: ``means["recall@20"]`` and what must stand beside it."""

    split: str
    mask: str
    ks: tuple[int, ...]
    user_idx: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    means: Mapping[str, float]

    @property
    def users_evaluated(self) -> int:
        return len(self.user_idx)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: ``{"recall@20": …, "ndcg@20": …, …, "mask": "train", "users_evaluated": 928, …}``."""
        raise NotImplementedError


class Evaluator:
    """Ranks all items for each user and measures the ranking: ``Evaluator(dataset, split="test").evaluate(scorer)``."""

    def __init__(
        self,
        splits: Splits,
        *,
        split: str = "validation",
        mask: str = "train",
        ks: Sequence[int] = (20,),
        memory: int = MEMORY,
        chunk: int | None = None,
        seed: int = 0,
    ) -> None:
        raise NotImplementedError

    def evaluate(self, scorer: Scorer) -> Evaluation:
        """Rank with ``scorer`` (anything with ``scores(user_idx) -> (batch, n_items)``)."""
        raise NotImplementedError

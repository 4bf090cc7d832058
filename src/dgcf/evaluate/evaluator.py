"""Evaluate a scorer on a split of a dataset by ranking all items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.evaluate.bootstrap import CONFIDENCE, RESAMPLES
from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.metrics import ANY_DATA_K, METRICS, coverage, hit_matrix, popularity, require_cut_offs
from dgcf.memory import require_memory
from dgcf.ranking.torch_backend import MEMORY, Scorer, top_k_by_scores

SPLITS = ("validation", "test")
MASKS = ("train", "train+validation")
_BYTES_PER_RANK = 40  # item, score, hit and a metric's temporaries


class Splits(Protocol):
    """The splits of a dataset; ``dgcf.data.dataset.Dataset`` implements it."""

    @property
    def train(self) -> Pairs: ...
    @property
    def validation(self) -> Pairs: ...
    @property
    def test(self) -> Pairs: ...


class Evaluator:
    """Ranks all items for each user: ``Evaluator(dataset, split="test", ks=(10, 20)).evaluate(scorer)``.

    ``split`` holds the relevant items. ``mask`` hides a user's train items, as the authors' code does, or those of
    train and validation, as is usual elsewhere; the latter is refused for the validation split. Users without a
    relevant item are left out, because no metric is defined for them, and so are users without a train item, as in the
    authors' code (``cold_users=True`` includes them). A relevant item that the mask hides counts as relevant, as in the
    authors' code; their number is reported. A dataset prepared with ``repeats="mask"`` has no such relevant items.
    ``user_idx``, ``left_out`` and ``leaked_pairs`` are set before ranking.
    """

    def __init__(
        self,
        splits: Splits,
        *,
        split: str = "validation",
        mask: str = "train",
        ks: Sequence[int] = (20,),
        cold_users: bool = False,
        memory: int = MEMORY,
        chunk: int | None = None,
        seed: int = 0,
        resamples: int = RESAMPLES,
        confidence: float = CONFIDENCE,
    ) -> None:
        _require_one_of("split", split, SPLITS)
        _require_one_of("mask", mask, MASKS)
        if split == "validation" and mask != "train":
            raise ConfigError(
                "the mask 'train+validation' hides every item of the validation split; use the mask 'train', or "
                "evaluate on 'test'."
            )
        self.split, self.mask, self.ks = split, mask, require_cut_offs(ks, splits.train.n_items)
        self._memory, self._chunk = memory, chunk
        self._seed, self._resamples, self._confidence = seed, resamples, confidence
        self._train = splits.train
        self._relevant = _relevant(splits, split)
        self._masked = splits.train if mask == "train" else splits.train.union(splits.validation)
        self._all_degrees = splits.train.union(splits.validation, splits.test).user_degrees
        self._choose_users(cold_users)
        if (longest := self.ks[-1]) > ANY_DATA_K:
            ranked = f"ranking {longest:,} items for {len(self.user_idx):,} users"
            require_memory(len(self.user_idx) * longest * _BYTES_PER_RANK, ranked, "give a smaller k")

    def _choose_users(self, cold_users: bool) -> None:
        """Set the users evaluated, the numbers left out, and the number of relevant pairs that the mask hides."""
        relevant = self._relevant.user_degrees > 0
        trained = self._train.user_degrees > 0
        chosen = relevant if cold_users else relevant & trained
        if not chosen.any():
            also = "" if cold_users else "both a train item and "
            raise DataError(
                f"no user has {also}a {self.split} item; prepare the dataset with a {self.split} split, or evaluate on "
                "another."
            )
        self.user_idx = np.flatnonzero(chosen)
        self.left_out = {"without_relevant": int((~relevant).sum()), "without_train": int((relevant & ~chosen).sum())}
        hidden = np.intersect1d(self._relevant.keys(), self._masked.keys(), assume_unique=True)
        self.leaked_pairs = int(chosen[hidden // max(self._relevant.n_items, 1)].sum())

    def evaluate(self, scorer: Scorer) -> Evaluation:
        """Return the metrics of a scorer's ranking (any object with ``scores(user_idx) -> (batch, n_items)``)."""
        users, n_items = self.user_idx, self._train.n_items
        best = top_k_by_scores(scorer, users, self._masked, self.ks[-1], memory=self._memory, chunk=self._chunk)
        ranked = best.item_idx.numpy(force=True)
        hits = hit_matrix(ranked, users, self._relevant)
        n_relevant = self._relevant.user_degrees[users]
        values = {f"{name}@{k}": metric(hits, n_relevant, k) for k in self.ks for name, metric in METRICS.items()}
        values |= {f"popularity@{k}": popularity(ranked, self._train.item_degrees, k) for k in self.ks}
        return Evaluation(
            split=self.split,
            mask=self.mask,
            ks=self.ks,
            user_idx=users,
            train_degrees=self._train.user_degrees[users],
            all_degrees=self._all_degrees[users],
            values=values,
            coverage={f"coverage@{k}": coverage(ranked, n_items, k) for k in self.ks},
            left_out=self.left_out,
            leaked_pairs=self.leaked_pairs,
            seed=self._seed,
            resamples=self._resamples,
            confidence=self._confidence,
        )


def _relevant(splits: Splits, split: str) -> Pairs:
    """Return the pairs of a split that count as relevant; repeats of earlier parts do not if the dataset says so."""
    pairs = splits.validation if split == "validation" else splits.test
    if not (isinstance(splits, Dataset) and splits.masks_repeats):
        return pairs
    return pairs.without(splits.train) if split == "validation" else pairs.without(splits.train, splits.validation)


def _require_one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = did_you_mean(value, choices) or "."
        raise ConfigError(f"the {option} is '{value}', expected one of {', '.join(choices)}{hint}")

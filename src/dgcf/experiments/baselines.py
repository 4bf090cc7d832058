"""Compare a trained model with baselines that are solved in seconds, on the validation split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any

import numpy as np

from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import DgcfError, StoppedError
from dgcf.evaluate.validation import validator
from dgcf.experiments.progress import Bar
from dgcf.experiments.train import evaluator_for_test
from dgcf.models.ials import IALSConfig
from dgcf.models.itemknn import ItemKNNConfig
from dgcf.train import resolve, train

BASELINES = ("popularity", "item-knn", "ease", "ials")
LIMIT = 20.0
"""Seconds on one core. A baseline that is estimated to take more is left out."""


@dataclass(frozen=True)
class Measured:
    """A baseline with its default settings: the seconds to solve it, and its metrics on validation and test."""

    model: str
    seconds: float
    validation: Mapping[str, float]
    test: Mapping[str, float]


@dataclass(frozen=True)
class LeftOut:
    """A baseline that was not measured; ``reason`` is a sentence."""

    model: str
    reason: str


@dataclass(frozen=True)
class Standing:
    """A trained model and its value of ``metric`` on validation (the mean over seeds), beside the baselines."""

    metric: str
    trained: str
    value: float | None
    models: tuple[Measured, ...]
    left_out: tuple[LeftOut, ...]

    def values(self) -> list[tuple[str, float]]:
        """Return each model and its value on validation, best first; ties go to the trained one, then in order."""
        if self.value is None:
            return []
        values = [(self.trained, self.value), *((each.model, each.validation[self.metric]) for each in self.models)]
        return sorted(values, key=lambda model: -model[1])

    @property
    def best(self) -> str | None:
        """The model that is best on validation, or None if there is no validation split."""
        return next((model for model, _ in self.values()), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the standing as ``dgcf train --json`` prints it."""
        models, left_out = ([asdict(each) for each in part] for part in (self.models, self.left_out))
        return {"metric": self.metric, "models": models, "left_out": left_out, "best": self.best}


@dataclass(frozen=True)
class Sizes:
    """The sizes that the cost of a baseline depends on; ``shared`` is Σ_u d_u², d the training items of a user."""

    users: int
    items: int
    pairs: int
    shared: int

    @classmethod
    def of(cls, pairs: Pairs) -> Sizes:
        degrees = pairs.user_degrees.astype(np.int64)
        return cls(pairs.n_users, pairs.n_items, len(pairs), int(degrees @ degrees))


def estimated_seconds(model: str, sizes: Sizes) -> float:
    """Return about how long a baseline takes to be solved, and to rank all items for validation and for test.

    A function of the sizes alone: numbers of operations, and for each the time on one core of a shared AMD EPYC, as
    measured on ML-100K, ML1M, Gowalla and Amazon, and for EASE on 8,000 items.
    """
    users, items, pairs = sizes.users, sizes.items, sizes.pairs
    solve, rank = 1e-9 * pairs, 2e-9 * users * items
    if model == "item-knn":
        solve += 60e-9 * sizes.shared
        rank += 3e-9 * users * items + 20e-9 * pairs * min(ItemKNNConfig().neighbours, items)
    elif model == "ease":
        solve += 5e-9 * sizes.shared + 20e-12 * items**3
        rank += 1e-9 * pairs * items
    elif model == "ials":
        width, iterations = IALSConfig().factors, IALSConfig().iterations
        solve += iterations * (3e-9 * pairs * width + 1.5e-9 * (users + items) * width**2)
    return solve + 2 * rank


def measure_baselines(
    dataset: Dataset, metric: str, mask: str, names: Sequence[str] = BASELINES, *, bar: Bar | None = None
) -> tuple[list[Measured], list[LeftOut]]:
    """Solve the baselines that take seconds, one after the other; return their metrics, and those left out.

    A baseline that fails, for lack of memory or of a package, is left out too: it must not end a finished training.
    """
    sizes, validate, evaluator = (
        Sizes.of(dataset.train),
        validator(dataset, metric),
        evaluator_for_test(dataset, metric, mask),
    )
    measured: list[Measured] = []
    left_out: list[LeftOut] = []
    with bar("solving baselines", len(names)) if bar else nullcontext(lambda done, total: None) as update:
        for number, name in enumerate(names):
            update(number, len(names))
            if (seconds := estimated_seconds(name, sizes)) > LIMIT:
                left_out.append(LeftOut(name, _too_slow(name, seconds)))
                continue
            try:
                solved = train(dataset, resolve(name), device="cpu")
                test = evaluator.evaluate(solved.ranking).means if evaluator else {}
                measured.append(Measured(name, solved.seconds, dict(validate(solved.ranking)), dict(test)))
            except (DgcfError, MemoryError, RuntimeError) as problem:  # RuntimeError: torch cannot allocate
                left_out.append(LeftOut(name, str(problem) or "there is not enough memory."))
    return measured, left_out


def _too_slow(name: str, seconds: float) -> str:
    return (
        f"{name} would take about {seconds:,.0f} s, more than {LIMIT:.0f} s; train it on its own with --model {name}."
    )


def stand(
    summaries: Sequence[Mapping[str, Any]], dataset: Dataset, metric: str, mask: str, *, bar: Bar | None = None
) -> Standing:
    """Return how the trained model of these summaries, one for each seed, stands against the baselines.

    Ctrl-C raises ``StoppedError``, which says that the runs are finished.
    """
    trained = summaries[0]["model"]
    if not len(dataset.validation):
        reason = "there is no validation split to compare on; prepare the dataset with one."
        return Standing(metric, trained, None, (), tuple(LeftOut(name, reason) for name in BASELINES))
    value = float(np.mean([summary["validation"][metric] for summary in summaries]))
    names = [name for name in BASELINES if name != trained]
    itself = [LeftOut(trained, f"{trained} is the trained model.")] if trained in BASELINES else []
    try:
        measured, left_out = measure_baselines(dataset, metric, mask, names, bar=bar)
    except KeyboardInterrupt:
        commands = " and ".join(f"dgcf evaluate {quote(summary['run'])}" for summary in summaries)
        raise StoppedError(f"the baselines were stopped, but training is finished; see {commands}") from None
    return Standing(metric, trained, value, tuple(measured), (*itself, *left_out))

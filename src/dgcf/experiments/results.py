"""The result of a comparison: for each model means over seeds, costs, and paired tests against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dgcf.evaluate.evaluation import Evaluation
from dgcf.evaluate.significance import Comparison, averaged, compare_with, users_and_seeds_test
from dgcf.experiments.measure import MeanStd
from dgcf.train import Run, Size, resolve
from dgcf.train.presets import known_name

LEVEL = 0.05
"""A difference with a smaller p-value, after Holm's correction, is marked."""


@dataclass(frozen=True)
class ModelResult:
    """A model with all its seeds, or a single run.

    ``changed`` holds the settings that differ from the preset. ``test`` and ``validation`` are over the seeds;
    ``test_by_seed`` has the values of each seed, ``evaluation`` the average of each user over the seeds. ``seconds`` is
    the mean time of a run, training and validation; ``peak_mb`` the highest memory of any run. ``comparisons`` are the
    tests against the reference, which has none itself.
    """

    label: str
    model: str
    preset: str
    settings: Mapping[str, Any]
    changed: Mapping[str, Any]
    seeded: bool
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    test: Mapping[str, MeanStd]
    test_by_seed: Mapping[str, tuple[float, ...]]
    validation: Mapping[str, MeanStd]
    seconds: float
    peak_mb: float | None
    epochs: tuple[int, ...]
    evaluation: Evaluation = field(repr=False)
    comparisons: tuple[Comparison, ...] = ()

    def comparison(self, metric: str) -> Comparison | None:
        """Return the test of a metric against the reference, or None for the reference itself."""
        return next((test for test in self.comparisons if test.metric == metric), None)

    def differs(self, metric: str) -> bool:
        """Return whether it differs from the reference: over users, and over seeds where that test exists."""
        test = self.comparison(metric)
        return test is not None and test.significant(LEVEL) and (test.p_seeds is None or test.p_seeds < LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON, without the comparisons."""
        return {
            "label": self.label,
            "model": self.model,
            "preset": self.preset,
            "settings": dict(self.settings),
            "seeds": list(self.seeds),
            "seeded": self.seeded,
            "runs": list(self.runs),
            "test": {name: asdict(value) for name, value in self.test.items()},
            "validation": {name: asdict(value) for name, value in self.validation.items()},
            "seconds": self.seconds,
            "peak_mb": self.peak_mb,
            "epochs": list(self.epochs),
        }


@dataclass(frozen=True)
class CompareResult:
    """All models on one dataset. ``reference`` is the index of the one that the others are tested against."""

    dataset: str
    fingerprint: str
    mask: str
    users_evaluated: int
    metrics: tuple[str, ...]
    reference: int
    models: tuple[ModelResult, ...]

    def best(self, metric: str) -> float:
        """Return the highest mean."""
        return max(model.test[metric].mean for model in self.models)

    @property
    def reference_label(self) -> str:
        return self.models[self.reference].label

    @property
    def n_comparisons(self) -> int:
        """The number of tests that Holm's correction covers."""
        return sum(len(model.comparisons) for model in self.models)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``dgcf compare --json``; a difference is model − reference."""
        return {
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "split": "test",
            "mask": self.mask,
            "users_evaluated": self.users_evaluated,
            "reference": self.reference_label,
            "seeds": sorted({seed for model in self.models for seed in model.seeds}),
            "models": [model.to_dict() for model in self.models],
            "comparisons": [
                {"model": model.label, "reference": self.reference_label, **test.to_dict()}
                for model in self.models
                for test in model.comparisons
            ],
        }


def model_result(
    label: str, runs: Sequence[Run], tested: Sequence[Evaluation], validated: Sequence[Evaluation]
) -> ModelResult:
    """Return the result of a model from its runs and their evaluations; ``validated`` may be empty."""
    recipe = runs[0].recipe
    data = runs[0].about["dataset"]
    size = Size(data["n_users"], data["n_items"], data["train"])
    known = known_name(data["fingerprint"], recipe.preset)
    preset = resolve(recipe.name, dataset=known, preset=recipe.preset, size=size).settings()
    settings = recipe.settings()
    peaks = [run.peak_mb for run in runs if run.peak_mb is not None]
    seeded = recipe.entry.seeded
    return ModelResult(
        label=label,
        model=recipe.name,
        preset=recipe.preset,
        settings=settings,
        changed={key: value for key, value in settings.items() if preset.get(key) != value},
        seeded=seeded,
        seeds=tuple(run.seed for run in runs),
        runs=tuple(str(run.path) for run in runs),
        test=_over_seeds(tested, seeded),
        test_by_seed=_by_seed(tested),
        validation=_over_seeds(validated, seeded),
        seconds=float(np.mean([run.seconds for run in runs])),
        peak_mb=max(peaks, default=None),
        epochs=tuple(len(run.metrics()) for run in runs),
        evaluation=averaged(tested),
    )


def _by_seed(evaluations: Sequence[Evaluation]) -> dict[str, tuple[float, ...]]:
    """Return the values of each metric, one for each seed."""
    names = evaluations[0].means if evaluations else ()
    return {name: tuple(evaluation.means[name] for evaluation in evaluations) for name in names}


def _over_seeds(evaluations: Sequence[Evaluation], seeded: bool) -> dict[str, MeanStd]:
    return {name: MeanStd.of(values, seeded=seeded) for name, values in _by_seed(evaluations).items()}


def with_comparisons(models: Sequence[ModelResult], reference: int, metrics: Sequence[str]) -> tuple[ModelResult, ...]:
    """Test every model but the reference against it; Holm's correction is over all models and metrics."""
    first = models[reference]
    others = [model.evaluation for model in models if model is not first]
    tests_by_model = iter(compare_with(first.evaluation, others, metrics))

    def tested(model: ModelResult) -> ModelResult:
        tests = (replace(test, p_seeds=_p_seeds(first, model, test.metric)) for test in next(tests_by_model))
        return replace(model, comparisons=tuple(tests))

    return tuple(model if model is first else tested(model) for model in models)


def _p_seeds(first: ModelResult, second: ModelResult, metric: str) -> float | None:
    """Return the p-value over users and seeds, or None if a model that depends on the seed has only one."""
    if first.test[metric].std is None or second.test[metric].std is None:
        return None
    difference = second.evaluation.value(metric) - first.evaluation.value(metric)
    return users_and_seeds_test(difference, first.test_by_seed[metric], second.test_by_seed[metric])

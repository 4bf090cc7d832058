"""Start or resume training runs, and measure the best epoch of each on the test split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from dgcf.data import Dataset
from dgcf.errors import ConfigError, StoppedError, did_you_mean
from dgcf.evaluate.evaluator import MASKS, Evaluator
from dgcf.evaluate.metrics import parse_metric
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import discard_unstarted, numbered
from dgcf.experiments.measure import MeanStd
from dgcf.experiments.processes import agree, launched
from dgcf.recommend.loading import save_recommender
from dgcf.text import Notify
from dgcf.train import Observer, Recipe, Run, SeedJob, Trained, Validate, groups, pick_device, resolve, train_together
from dgcf.train.api import Prepared
from dgcf.train.presets import known_name
from dgcf.train.run.observer import Several
from dgcf.train.run.tracking import refuse_unknown_trackers, tracked
from dgcf.train.shards import ALONE, Mode, World


@dataclass(frozen=True)
class Options:
    """Options that do not change the trained model.

    ``observe`` opens the observer that shows the training of a run, and ``notify`` shows a remark. ``world`` and
    ``mode``: the processes that share a training, and how.
    """

    device: str
    mask: str
    save_every: float
    track: tuple[str, ...]
    observe: Callable[[], AbstractContextManager[Observer]]
    notify: Notify
    world: World = ALONE
    mode: Mode = "columns"

    @property
    def where(self) -> dict[str, Any]:
        """The device and the processes, as ``train_together`` takes them."""
        return {"device": self.device, "world": self.world, "mode": self.mode}


def start_runs(
    dataset: Dataset,
    recipe: Recipe,
    seeds: Sequence[int],
    folder: Path | None,
    source: str,
    options: Options,
    more: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Train a new run for each seed, and return their summaries.

    Everything that can be refused is refused before training. ``source`` is written to the run folder, for resuming,
    and so are the fields ``more``.
    """
    device = str(pick_device(options.device))
    refuse_unknown_trackers(options.track)
    evaluator_for_test(dataset, recipe.train.metric, options.mask)
    paths = {seed: run_folder(folder, dataset, recipe, seed, len(seeds)) for seed in seeds}
    for path in paths.values():
        Run.refuse_taken(path)
    described: dict[str, Any] = {"device": device, "source": source, "more": {**(more or {}), **launched()}}
    summaries: list[dict[str, Any]] = []
    for group in groups(list(paths), recipe, options.device):
        runs = [Run.create(paths[seed], dataset, recipe, seed=seed, **described) for seed in group]
        try:
            with discard_unstarted(runs):
                summaries += train_runs(runs, dataset, recipe, options)
        except StoppedError:
            for seed, path in paths.items():
                if not path.exists():
                    options.notify(f"seed {seed} was not started: use --seed {seed} --out {quote(str(path))}.")
            raise
    return summaries


def resume_run(run: Run, dataset: Dataset, options: Options, **given: Any) -> dict[str, Any]:
    """Resume a run, and return its summary; a ``given`` model, preset, setting or seed that differs is refused."""
    refuse_changes(run, dataset, **given)
    evaluator_for_test(dataset, run.recipe.train.metric, options.mask)
    return train_runs([run], dataset, run.recipe, options)[0]


def refuse_changes(
    run: Run,
    dataset: Dataset,
    *,
    model: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> None:
    """Raise ``ConfigError`` for a model, preset, setting or seed that differs from the run, or another dataset."""
    same = model in (None, run.about["model"]) and preset in (None, run.about["preset"])
    recipe = resolve(
        model or run.about["model"],
        dataset=known_name(dataset.fingerprint, preset or run.about["preset"]),
        preset=preset or run.about["preset"],
        settings={**(run.about["settings"] if same else {}), **(settings or {})},
    )
    run.refuse_changes(dataset, recipe, seed)


def train_runs(
    runs: Sequence[Run],
    dataset: Dataset,
    recipe: Recipe,
    options: Options,
    *,
    resume_at: Path | None = None,
    prepared: Prepared | None = None,
) -> list[dict[str, Any]]:
    """Train runs side by side, showing the progress of the first, and return their summaries.

    ``resume_at``: the folder with which an interrupted training is continued, if it is not that of the run;
    ``prepared`` is what continuing them need not compute again.
    """
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    with ExitStack() as stack:
        trackers = [stack.enter_context(tracked(options.track, run, note=options.notify)) for run in runs]
        for run in runs:
            run.autosave = options.save_every
            options.notify(f"{recipe.name} on {dataset.name}, seed {run.seed}, in {run.path}")
        with options.observe() as shown:
            observers = [shown, *(Observer() for _ in runs[1:])]
            jobs = [
                SeedJob(run.seed, Several(observer, *its_trackers), run)
                for run, observer, its_trackers in zip(runs, observers, trackers, strict=True)
            ]
            agree(options.world, dataset, lambda: (recipe, jobs[0].seed))
            results = train_together(dataset, recipe, jobs, validate=validate, prepared=prepared, **options.where)
        stopped = [resume_at or result.run.path for result in results if result.interrupted and result.run]
        if stopped:
            commands = [f"dgcf train --resume {quote(str(path))}" for path in stopped]
            raise StoppedError(f"saved. Resume with: {' and '.join(commands)}")
        summaries = [summary(result, dataset, options.mask, validate) for result in results]
        for result in results:
            if note := save_recommender(result, dataset):
                options.notify(f"note: {note}")
        for result, measured, its_trackers in zip(results, summaries, trackers, strict=True):
            for tracker in its_trackers:
                tracker.measured("test", measured["test"], result.best_epoch)
    return summaries


def evaluator_for_test(dataset: Dataset, metric: str, mask: str) -> Evaluator | None:
    """Return the evaluator of the test split, or None if the split is empty; an unknown mask is refused.

    The cut-offs are that of the validation ``metric``, and 20.
    """
    if mask not in MASKS:
        raise ConfigError(f"the mask is {mask!r}, expected one of {', '.join(MASKS)}{did_you_mean(mask, MASKS) or '.'}")
    if not len(dataset.test):
        return None
    return Evaluator(dataset, split="test", mask=mask, ks=sorted({parse_metric(metric)[1], 20}))


def summary(trained: Trained, dataset: Dataset, mask: str, validate: Validate | None) -> dict[str, Any]:
    """Return the summary of a finished run: its best epoch, measured on validation and test."""
    run = trained.run
    assert run is not None
    evaluator = evaluator_for_test(dataset, trained.recipe.train.metric, mask)
    evaluation = None if evaluator is None else evaluator.evaluate(trained.ranking)
    return {
        "model": trained.recipe.name,
        "dataset": dataset.name,
        "preset": trained.recipe.preset,
        "settings": trained.recipe.settings(),
        "seed": run.seed,
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "seconds": trained.seconds,
        "seconds_per_epoch": run.seconds_per_epoch,
        "peak_mb": run.peak_mb,
        "validation": dict(trained.validation or validate(trained.ranking)) if validate else {},
        "blending": None if trained.blending is None else trained.blending.to_dict(),
        "test": {} if evaluation is None else dict(evaluation.means),
        "mask": mask,
        "users_evaluated": 0 if evaluation is None else evaluation.users_evaluated,
        "run": str(run.path),
    }


def run_folder(folder: Path | None, dataset: Dataset, recipe: Recipe, seed: int, n_seeds: int) -> Path:
    """Return the folder of a run: ``folder``, or its ``seed-N`` for several seeds; by default a free name in runs/."""
    if folder is not None:
        return folder if n_seeds == 1 else folder / f"seed-{seed}"
    base = Path("runs") / f"{dataset.name.replace('/', '-')}-{recipe.name}-seed{seed}"
    return next(path for path in numbered(base) if not path.exists())


def combine(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a single summary as it is; for several seeds add the mean and sample deviation of every metric."""
    first = summaries[0]
    if len(summaries) == 1:
        return first

    def over_seeds(part: str) -> dict[str, dict[str, Any]]:
        return {name: asdict(MeanStd.of([result[part][name] for result in summaries])) for name in first[part]}

    return {
        **{key: first[key] for key in ("model", "dataset", "preset", "settings", "mask", "users_evaluated")},
        "seeds": [result["seed"] for result in summaries],
        "seconds": sum(result["seconds"] for result in summaries),
        "validation": over_seeds("validation"),
        "test": over_seeds("test"),
        "runs": list(summaries),
    }

"""The work behind ``dgcf train``: start or resume runs, show how they go, measure the best epoch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dgcf.cli.failures import StoppedError
from dgcf.cli.terminal import err, notify, out, progress, words
from dgcf.data import Dataset, load
from dgcf.data.prepare import Preparation
from dgcf.errors import ConfigError, did_you_mean
from dgcf.evaluate.evaluator import MASKS, Evaluator
from dgcf.evaluate.metrics import parse_metric
from dgcf.evaluate.validation import validator
from dgcf.train import (
    EpochReport,
    Observer,
    PlainLines,
    Recipe,
    Run,
    SeedJob,
    Trained,
    Validate,
    groups,
    pick_device,
    resolve,
    train_many,
)
from dgcf.train.run.observer import Several
from dgcf.train.run.tracking import refuse_unknown_trackers, tracked


def _load(source: str, settings: Mapping[str, Any]) -> Dataset:
    """Of a file that is prepared on the way, the order is kept where it is needed."""
    with progress(f"reading {source}"):
        return load(source, Preparation(keep_order=bool(settings.get("recency"))), notify=notify)


@dataclass(frozen=True)
class How:
    """What does not change the trained model: where, how often it is saved, who else is told, and the test's mask."""

    device: str
    mask: str
    save_every: float
    track: tuple[str, ...] = ()


def start(
    data: str,
    model: str,
    preset: str,
    given: dict[str, Any],
    seeds: tuple[int, int],
    folder: Path | None,
    how: How,
) -> list[dict[str, Any]]:
    """Train ``seeds[1]`` new runs with the seeds from ``seeds[0]`` on."""
    dataset = _load(data, given)
    recipe = resolve(model, dataset=dataset.name, preset=preset, settings=given)
    source = str(Path(data).resolve()) if Path(data).exists() else data
    place = str(pick_device(how.device))
    refuse_unknown_trackers(how.track)
    _test_of(dataset, recipe, how.mask)  # a wrong mask is refused now, not after hours of training
    wanted = range(seeds[0], seeds[0] + seeds[1])
    paths = {seed: _folder(folder, dataset, recipe, seed, seeds[1]) for seed in wanted}
    for path in paths.values():
        Run.refuse_taken(path)
    results = []
    for together in groups(list(paths), recipe, how.device):
        runs = [Run.create(paths[seed], dataset, recipe, seed=seed, device=place, source=source) for seed in together]
        try:
            results += _train(runs, dataset, recipe, how)
        except BaseException as problem:
            for run in runs:
                if not run.has_checkpoint:  # it never began: its folder would only stand in the way of the next try
                    shutil.rmtree(run.path, ignore_errors=True)
            if isinstance(problem, StoppedError):
                for seed in (seed for seed, path in paths.items() if not path.exists()):
                    notify(f"seed {seed} had not begun: train it with --seed {seed} --out {quote(str(paths[seed]))}.")
            raise
    return results


def resume(
    folder: Path,
    data: str | None,
    model: str | None,
    preset: str | None,
    given: dict[str, Any],
    seed: int | None,
    how: How,
) -> dict[str, Any]:
    """Go on with a run as it began; what is said again must be what was said then."""
    run = Run.open(folder)
    dataset = _load(data or run.about["dataset"]["source"], run.about["settings"])
    same = model in (None, run.about["model"]) and preset in (None, run.about["preset"])
    wanted = resolve(
        model or run.about["model"],
        dataset=dataset.name,
        preset=preset or run.about["preset"],
        settings={**(run.about["settings"] if same else {}), **given},
    )
    run.refuse_changes(dataset, wanted, seed)
    _test_of(dataset, run.recipe, how.mask)
    return _train([run], dataset, run.recipe, how)[0]


def _train(runs: Sequence[Run], dataset: Dataset, recipe: Recipe, how: How) -> list[dict[str, Any]]:
    """Train runs side by side; the first one's progress is shown."""
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    with ExitStack() as held:
        trackers = [held.enter_context(tracked(how.track, run, note=notify)) for run in runs]
        for run in runs:
            run.autosave = how.save_every
            notify(f"{recipe.name} on {dataset.name}, seed {run.seed}, in {run.path}")
        with observer() as watching:
            shown = [watching, *(Observer() for _ in runs[1:])]
            told = [Several(one, *its) for one, its in zip(shown, trackers, strict=True)]
            each = [SeedJob(run.seed, its, run) for run, its in zip(runs, told, strict=True)]
            results = train_many(dataset, recipe, each, device=how.device, validate=validate)
        stopped = [trained for trained in results if trained.interrupted]
        if stopped:
            again = [f"dgcf train --resume {quote(str(trained.run.path))}" for trained in stopped if trained.run]
            raise StoppedError(f"saved. Go on with: {' and '.join(again)}")
        found = [summary(trained, dataset, how.mask, validate) for trained in results]
        for trained, result, its in zip(results, found, trackers, strict=True):
            for tracker in its:
                tracker.measured("test", result["test"], trained.best_epoch)
    return found


def _test_of(dataset: Dataset, recipe: Recipe, mask: str) -> Evaluator | None:
    """What measures the test split, if there is one; a mask that does not exist is refused in any case."""
    if mask not in MASKS:
        raise ConfigError(f"the mask is {mask!r}, expected one of {', '.join(MASKS)}{did_you_mean(mask, MASKS) or '.'}")
    if not len(dataset.test):
        return None
    return Evaluator(dataset, split="test", mask=mask, ks=sorted({parse_metric(recipe.train.metric)[1], 20}))


def summary(trained: Trained, dataset: Dataset, mask: str, validate: Validate | None) -> dict[str, Any]:
    """What a finished run is reported as: its best epoch, measured on validation and test."""
    run = trained.run
    assert run is not None
    test: dict[str, float] = {}
    users = 0
    evaluator = _test_of(dataset, trained.recipe, mask)
    if evaluator is not None:
        evaluation = evaluator.evaluate(trained.ranking)
        test, users = dict(evaluation.means), evaluation.users_evaluated
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
        "validation": dict(validate(trained.ranking)) if validate else {},
        "test": test,
        "mask": mask,
        "users_evaluated": users,
        "run": str(run.path),
    }


def _folder(folder: Path | None, dataset: Dataset, recipe: Recipe, seed: int, seeds: int) -> Path:
    """Where a run goes: as asked, with a part for the seed where there are several, or the next free name."""
    if folder is not None:
        return folder if seeds == 1 else folder / f"seed-{seed}"
    base = Path("runs") / f"{dataset.name.replace('/', '-')}-{recipe.name}-seed{seed}"
    names = [base, *(base.with_name(f"{base.name}-{n}") for n in range(2, 10_000))]
    return next(name for name in names if not name.exists())


def together(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One run as it is; of several seeds each run, and the mean and sample deviation of every metric."""
    first = results[0]
    if len(results) == 1:
        return first

    def spread(part: str) -> dict[str, dict[str, float]]:
        table = {name: np.array([result[part][name] for result in results]) for name in first[part]}
        return {name: {"mean": float(v.mean()), "std": float(v.std(ddof=1))} for name, v in table.items()}

    shared = {key: first[key] for key in ("model", "dataset", "preset", "settings", "mask", "users_evaluated")}
    return {
        **shared,
        "seeds": [result["seed"] for result in results],
        "seconds": sum(result["seconds"] for result in results),
        "validation": spread("validation"),
        "test": spread("test"),
        "runs": results,
    }


def draw(results: list[dict[str, Any]]) -> None:
    first = results[0]
    table = Table(title=f"{first['model']} on {first['dataset']}, test, mask {first['mask']}")
    names = [name for name in first["test"] if name.startswith(("recall", "ndcg", "precision", "hit"))]
    for column in ("seed", "epochs", "best", "seconds", *names):
        table.add_column(column, justify="right")
    for result in results:
        numbers = [f"{result['test'][name]:.4f}" for name in names]
        table.add_row(
            str(result["seed"]), str(result["epochs"]), str(result["best_epoch"]), f"{result['seconds']:.1f}", *numbers
        )
    out.print(table)
    out.print(f"{first['users_evaluated']:,} users evaluated")
    for result in results:
        out.print(f"run: {result['run']}", soft_wrap=True)


class Bar(Observer):
    """Epoch, loss, validation metric, best, pairs per second and the time left if no patience ends it sooner."""

    def __init__(self) -> None:
        self.bar = Progress(
            words("description"),
            BarColumn(),
            words("fields[told]"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=None, told="")

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        notify(f"note: {text}")

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        self.bar.update(
            self.task,
            total=epochs * batches,
            completed=(epoch - 1) * batches + done,
            description=f"epoch {epoch}/{epochs}",
        )

    def batch_done(self) -> None:
        self.bar.advance(self.task)

    def epoch_ended(self, report: EpochReport) -> None:
        words = report.line().split("  ")[1:]
        if report.validation:
            self.validated = words[1]
        elif report.best is not None:
            words.insert(1, self.validated)
        self.bar.update(self.task, told="  ".join(words))

    validated = ""

    def finished(self, reason: str) -> None:
        notify(reason)


class Lines(PlainLines):
    """The same for pipes and logs."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def observer() -> Bar | Lines:
    return Bar() if err.is_terminal else Lines()

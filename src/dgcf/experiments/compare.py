"""Several models on one dataset: train what is missing, measure every run, test each model against a reference.

The runs of a comparison lie in one folder, one for each model and seed. A finished one that has the same dataset,
model, settings and seed is taken as it is, an unfinished one is gone on with, and any other is left alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from dgcf.config import parse_settings, read_toml, refuse_unknown
from dgcf.data.dataset import Dataset
from dgcf.errors import ConfigError, DgcfError, did_you_mean
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.metrics import METRICS, parse_metric
from dgcf.evaluate.validation import validator
from dgcf.experiments.results import Standing, Standings, standing, with_comparisons
from dgcf.models.catalog import CATALOG, entry
from dgcf.text import Notify
from dgcf.train import Observer, Recipe, Run, SeedJob, groups, load, pick_device, resolve, train_many
from dgcf.train.api import CURVES, picture
from dgcf.train.recipe import TRAIN_KEYS
from dgcf.train.run.folder import order_of


@dataclass(frozen=True)
class Plan:
    """A model to compare: its recipe, and the seeds to train it with."""

    recipe: Recipe
    seeds: tuple[int, ...]


# -- what is compared -------------------------------------------------------------------------------------------------


def plans(
    models: Sequence[str],
    dataset: Dataset,
    *,
    preset: str = "paper",
    settings: Sequence[str] = (),
    configs: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
) -> list[Plan]:
    """The recipes of the models, all resolved and checked before anything is trained.

    ``settings``: ``key=value`` for each model that has the key, ``model.key=value`` for one of them. ``configs``:
    ``model=FILE.toml``, or a file that names its model, as ``dgcf tune`` writes it. The preset counts least, then the
    file, then what is set for all, then what is set for one model.
    """
    for name in models:
        if list(models).count(name) > 1:
            raise ConfigError(f"model {name} is named twice; name each model once.")
    own = {name: _keys(name) for name in models}
    everywhere, alone = _shared_out(parse_settings(settings), own)
    files = _read_configs(configs, models)
    found = []
    for name, keys in own.items():
        file = files.get(name, {})
        given = {
            **{key: value for key, value in file.items() if key != "preset"},
            **{key: value for key, value in everywhere.items() if key in keys},
            **alone[name],
        }
        recipe = resolve(name, dataset=dataset.name, preset=file.get("preset", preset), settings=given)
        order_of(dataset, used=recipe.train.recency > 0)  # refuses what has none before anything is trained
        found.append(Plan(recipe, tuple(seeds) if recipe.entry.seeded else tuple(seeds[:1])))
    return found


def _keys(model: str) -> list[str]:
    """The settings that can be given to a model: its own, and the loop's where it is trained in epochs."""
    found = entry(model)
    return [*found.keys, *([] if found.solved else TRAIN_KEYS)]


def _shared_out(
    given: Mapping[str, Any], own: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What is set for all models, and what for each alone; a key that no model has is refused."""
    everywhere: dict[str, Any] = {}
    alone: dict[str, dict[str, Any]] = {name: {} for name in own}
    for key, value in given.items():
        model, dot, inner = key.partition(".")
        if not dot:
            everywhere[key] = value
        elif model in alone:
            alone[model][inner] = value
        else:
            hint = did_you_mean(model, own) or f"; the models are {', '.join(own)}."
            raise ConfigError(f"--set {key} is for model {model!r}, which is not compared{hint}")
    refuse_unknown(everywhere, {key for keys in own.values() for key in keys}, f"the group {', '.join(own)}")
    return everywhere, alone


def _read_configs(configs: Sequence[str], models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of each file by the model that it is for."""
    found: dict[str, dict[str, Any]] = {}
    for word in configs:
        model, equals, path = word.partition("=")
        if equals and model in CATALOG and model not in models:
            raise ConfigError(f"--config {word} is of model {model}; compared are {', '.join(models)}.")
        named = bool(equals) and model in models
        content = read_toml(path if named else word)
        inside = content.pop("model", None)
        name = model if named else inside
        if name is None:
            raise ConfigError(f"--config {word} does not say for which model it is; write it as MODEL=FILE.toml.")
        if name not in models or inside not in (None, name):
            raise ConfigError(f"--config {word} is of model {inside or name}; compared are {', '.join(models)}.")
        if name in found:
            raise ConfigError(f"--config is given twice for model {name}; give it once.")
        found[name] = content
    return found


def metric_names(metrics: str, ks: Sequence[int]) -> list[str]:
    """``"recall,ndcg"`` or ``"all"`` at the cut-offs, each checked to have a value for every user."""
    words = list(METRICS) if metrics == "all" else [word.strip() for word in metrics.split(",")]
    names = list(dict.fromkeys(f"{word}@{k}" for word in words for k in ks))
    for name in names:
        if parse_metric(name)[0] == "coverage":
            raise ConfigError(
                "coverage belongs to all users together and cannot be compared user by user; leave it out."
            )
    return names


# -- what is trained --------------------------------------------------------------------------------------------------


def ready(
    dataset: Dataset,
    wanted: Sequence[Plan],
    out: Path,
    *,
    source: str = "",
    device: str = "auto",
    watching: Callable[[], AbstractContextManager[Observer]],
    notify: Notify,
) -> list[list[Run]]:
    """The finished runs of each plan, in ``out``; what is missing is trained. Ctrl-C saves and is passed on."""
    place = str(pick_device(device))
    found = []
    for plan in wanted:
        if not plan.recipe.entry.seeded:
            notify(f"{plan.recipe.name} draws nothing at random: one run stands for all seeds.")
        runs = []
        for together in groups(plan.seeds, plan.recipe, device):
            here = []
            for seed in together:
                path, run = find_run(out, dataset, plan.recipe, seed, notify)
                if run is None:
                    run = Run.create(path, dataset, plan.recipe, seed=seed, device=place, source=source)
                if run.finished:
                    notify(f"{run.path} is finished; it is taken as it is.")
                    if not plan.recipe.entry.solved and not (run.path / CURVES).exists():
                        picture(run)  # a kill came between the last state and its picture
                here.append(run)
            missing = [run for run in here if not run.finished]
            if missing:
                _train(missing, dataset, device, watching, notify)
            runs += here
        found.append(runs)
    return found


def find_run(out: Path, dataset: Dataset, recipe: Recipe, seed: int, notify: Notify) -> tuple[Path, Run | None]:
    """The run of this recipe and seed, or the first free name for one: ``dgcf-seed0``, else ``dgcf-seed0-2`` and on."""
    for path in _names(out / f"{recipe.name}-seed{seed}"):
        if not (path / "run.json").exists():
            if not path.exists() or (path.is_dir() and not any(path.iterdir())):
                return path, None
            continue  # somebody else's
        run = Run.open(path)
        changes = run.changes(dataset, recipe, seed)
        if not changes:
            return path, run
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        notify(f"{path} was trained otherwise ({'; '.join(changes[:3])}{more}) and is left alone.")
    raise AssertionError("the names have no end")


def _names(base: Path) -> Iterator[Path]:
    yield base
    for number in count(2):
        yield base.with_name(f"{base.name}-{number}")


def _train(
    runs: Sequence[Run],
    dataset: Dataset,
    device: str,
    watching: Callable[[], AbstractContextManager[Observer]],
    notify: Notify,
) -> None:
    """Train the runs of one recipe side by side; the first one's progress is shown."""
    recipe = runs[0].recipe
    for run in runs:
        notify(f"{recipe.name} on {dataset.name}, seed {run.seed}, in {run.path}")
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    try:
        with watching() as observer:
            shown = [observer, *(None for _ in runs[1:])]
            each = [SeedJob(run.seed, one, run) for run, one in zip(runs, shown, strict=True)]
            results = train_many(dataset, recipe, each, device=device, validate=validate)
    except DgcfError:
        for run in runs:
            if not run.has_checkpoint:  # it never began: its folder would only stand in the way of the next try
                shutil.rmtree(run.path)
        raise
    if any(trained.interrupted for trained in results):
        raise KeyboardInterrupt


# -- what is measured -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """How runs are measured: test with ``mask`` at ``ks``, and validation beside it where there is such a split.

    Made before training, so that a wrong mask or a dataset without a test split is refused in time.
    """

    dataset: Dataset
    test: Evaluator
    validation: Evaluator | None

    @classmethod
    def of(cls, dataset: Dataset, mask: str, ks: Sequence[int]) -> Measure:
        test = Evaluator(dataset, split="test", mask=mask, ks=ks)
        return cls(dataset, test, Evaluator(dataset, split="validation", ks=ks) if len(dataset.validation) else None)

    def standing(self, label: str, runs: Sequence[Run], device: str, done: Callable[[], None]) -> Standing:
        """One row of the table: the runs of one model, each ranked with its best epoch. ``done`` is told of each."""
        tested, validated = [], []
        for run in runs:
            ranking = load(run, self.dataset, device=device)[2]
            tested.append(self.test.evaluate(ranking))
            if self.validation is not None:
                validated.append(self.validation.evaluate(ranking))
            done()
        return standing(label, runs, tested, validated)


def standings(
    measure: Measure,
    contenders: Sequence[tuple[str, Sequence[Run]]],
    metrics: Sequence[str],
    *,
    reference: int = 0,
    device: str = "auto",
    done: Callable[[], None] = lambda: None,
) -> Standings:
    """The table of all contenders, each of them a label and its runs, with the tests against the reference."""
    rows = [measure.standing(label, runs, device, done) for label, runs in contenders]
    return Standings(
        dataset=measure.dataset.name,
        fingerprint=measure.dataset.fingerprint,
        mask=measure.test.mask,
        users_evaluated=len(measure.test.user_idx),
        metrics=tuple(metrics),
        reference=reference,
        rows=with_comparisons(rows, reference, metrics),
    )


def labels(runs: Sequence[Run]) -> list[str]:
    """What run folders are called in a table: by their last part, or by their path where two share it."""
    names = [run.path.resolve().name for run in runs]
    return names if len(set(names)) == len({run.path.resolve() for run in runs}) else [str(run.path) for run in runs]


def refuse_other_datasets(runs: Sequence[Run]) -> None:
    """Runs can be compared user by user only where they were trained on one dataset."""
    first = runs[0]
    for run in runs[1:]:
        here, there = first.about["dataset"], run.about["dataset"]
        if here["fingerprint"] != there["fingerprint"]:
            raise ConfigError(
                f"{first.path} was trained on {here['name']} ({here['fingerprint'][:12]}), {run.path} on "
                f"{there['name']} ({there['fingerprint'][:12]}); compare runs on one dataset."
            )

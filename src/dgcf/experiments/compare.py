"""Compare models on one dataset: train the runs that are missing, evaluate all, test each model against a reference.

The runs lie in one folder, one for each model and seed. A finished run of the same dataset, model, settings and seed is
reused, an unfinished one is resumed, and every other folder is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from dgcf.config import parse_settings, read_toml, refuse_unknown
from dgcf.data import load
from dgcf.data.columns import SourceAsRead
from dgcf.data.dataset import Dataset
from dgcf.data.paths import absolute_source
from dgcf.errors import ConfigError, DgcfError, StoppedError, did_you_mean
from dgcf.evaluate.metrics import METRICS, parse_metric
from dgcf.evaluate.validation import validator
from dgcf.experiments.jobs import discard_unstarted, numbered, open_run, train_seeds
from dgcf.experiments.measure import RunEvaluator
from dgcf.experiments.progress import Bar
from dgcf.experiments.results import CompareResult, model_result, with_comparisons
from dgcf.models.catalog import CATALOG, entry
from dgcf.recommend.loading import save_recommender
from dgcf.text import Notify
from dgcf.train import Observer, Recipe, Run, SeedJob, Size, groups, pick_device, resolve
from dgcf.train.presets import known_name
from dgcf.train.recipe import setting_keys
from dgcf.train.run.description import order_of, weights_of
from dgcf.train.run.moved import explain_moved
from dgcf.train.run.plots import CURVES, plot_run


@dataclass(frozen=True)
class Options:
    """How runs are evaluated, and how progress is shown.

    ``reference`` is the label of the model that the others are tested against, by default the first. ``observe`` opens
    the observer of a training, ``notify`` shows a remark, and ``bar`` opens a progress bar.
    """

    metrics: Sequence[str]
    ks: Sequence[int]
    mask: str = "train"
    reference: str | None = None
    device: str = "auto"
    observe: Callable[[], AbstractContextManager[Observer]] = lambda: nullcontext(Observer())
    notify: Notify = lambda text: None
    bar: Bar = lambda what, total: nullcontext(lambda done, total: None)

    def read(self, source: str | SourceAsRead) -> Dataset:
        with self.bar(f"reading {source}", None):
            return load(source, notify=self.notify)

    def reference_index(self, labels: Sequence[str]) -> int:
        if self.reference is None:
            return 0
        if self.reference not in labels:
            hint = did_you_mean(self.reference, labels) or f"; the choices are {', '.join(labels)}."
            raise ConfigError(f"--reference {self.reference} is not compared{hint}")
        return list(labels).index(self.reference)


@dataclass(frozen=True)
class Request:
    """The models to train, and their settings as `plan_models` takes them."""

    models: Sequence[str]
    preset: str = "default"
    settings: Sequence[str] = ()
    configs: Sequence[str] = ()
    seeds: Sequence[int] = (0,)


@dataclass(frozen=True)
class Plan:
    """A model to compare: its recipe, and the seeds to train it with."""

    recipe: Recipe
    seeds: tuple[int, ...]


# -- compare ----------------------------------------------------------------------------------------------------------


def compare_models(
    source: str,
    request: Request,
    folder: Path | None,
    options: Options,
    read: Callable[[str], Dataset] | None = None,
) -> CompareResult:
    """Train what is missing in ``folder`` and compare the models on the dataset ``source``, each with all its seeds.

    Everything that can be refused is refused before training. ``read`` loads the dataset; by default ``options`` do.
    """
    if len(request.models) < 2:
        names = ", ".join(request.models) or "nothing"
        raise ConfigError(f"--models names only {names}; give two or more, with commas between them.")
    reference = options.reference_index(request.models)
    dataset = (read or options.read)(source)
    plans = plan_models(request, dataset)
    evaluator = RunEvaluator.of(dataset, options.mask, options.ks)
    folder = folder or Path("runs") / f"compare-{dataset.name.replace('/', '-')}"
    try:
        runs = train_models(dataset, plans, folder, options, source=absolute_source(source))
        return compare(evaluator, list(zip(request.models, runs, strict=True)), options, reference)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; runs are saved in {folder}. Repeat the command to resume.") from None


def compare_runs(paths: Sequence[str], source: str | None, options: Options) -> CompareResult:
    """Compare two or more run folders, each as a model of its own, on the dataset ``source`` or the first run's."""
    if len(paths) < 2:
        raise ConfigError(
            f"there is only {paths[0]} to compare; give two or more run folders, "
            "or a dataset with --models dgcf,lightgcn."
        )
    runs = [Run.open(path) for path in paths]
    _refuse_other_datasets(runs)
    labels = run_labels(runs)
    reference = options.reference_index(labels)
    with explain_moved(runs[0], source):
        dataset = options.read(runs[0].source_as_read(source))
    evaluator = RunEvaluator.of(dataset, options.mask, options.ks)
    return compare(evaluator, [(label, [run]) for label, run in zip(labels, runs, strict=True)], options, reference)


def compare(
    evaluator: RunEvaluator, models: Sequence[tuple[str, Sequence[Run]]], options: Options, reference: int = 0
) -> CompareResult:
    """Evaluate the runs of each labelled model, and test the models against the one at index ``reference``."""
    total = sum(len(runs) for _, runs in models)
    evaluated = count(1)
    with options.bar("evaluating", total) as update:
        results = [
            model_result(label, runs, *evaluator.evaluate(runs, options.device, lambda: update(next(evaluated), total)))
            for label, runs in models
        ]
    return CompareResult(
        dataset=evaluator.dataset.name,
        fingerprint=evaluator.dataset.fingerprint,
        mask=evaluator.test.mask,
        users_evaluated=len(evaluator.test.user_idx),
        metrics=tuple(options.metrics),
        reference=reference,
        models=with_comparisons(results, reference, options.metrics),
    )


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Return the folder names of runs, or their paths if two different folders share a name."""
    names = [run.path.resolve().name for run in runs]
    return names if len(set(names)) == len({run.path.resolve() for run in runs}) else [str(run.path) for run in runs]


def _refuse_other_datasets(runs: Sequence[Run]) -> None:
    """Refuse runs of several datasets: users can be paired on one dataset only."""
    first = runs[0]
    for run in runs[1:]:
        one, other = first.about["dataset"], run.about["dataset"]
        if one["fingerprint"] != other["fingerprint"]:
            raise ConfigError(
                f"{first.path} was trained on {one['name']} ({one['fingerprint'][:12]}), {run.path} on "
                f"{other['name']} ({other['fingerprint'][:12]}); compare runs on one dataset."
            )


def metric_names(metrics: str, ks: Sequence[int]) -> list[str]:
    """Return ``"recall,ndcg"`` or ``"all"`` at the cut-offs, such as ``recall@20``; each has a value for every user."""
    words = list(METRICS) if metrics == "all" else [word.strip() for word in metrics.split(",")]
    names = list(dict.fromkeys(f"{word}@{k}" for word in words for k in ks))
    for name in names:
        if parse_metric(name)[0] == "coverage":
            raise ConfigError("coverage has one value for all users, so no paired test; leave it out.")
    return names


# -- plan -------------------------------------------------------------------------------------------------------------


def plan_models(request: Request, dataset: Dataset) -> list[Plan]:
    """Resolve and check the recipes of all models.

    ``settings``: ``key=value`` for each model that has the key, ``model.key=value`` for one model. ``configs``:
    ``model=FILE.toml``, or a file that names its model, as ``dgcf tune`` writes it. From lowest to highest precedence:
    the preset, the file, the settings of all models, the settings of one model.
    """
    for name in request.models:
        if list(request.models).count(name) > 1:
            raise ConfigError(f"model {name} is named twice; name each model once.")
    keys = {name: setting_keys(entry(name)) for name in request.models}
    shared, own = _split_settings(parse_settings(request.settings), keys)
    files = _read_configs(request.configs, request.models)
    plans = []
    for name in request.models:
        file = files.get(name, {})
        settings = {
            **{key: value for key, value in file.items() if key != "preset"},
            **{key: value for key, value in shared.items() if key in keys[name]},
            **own[name],
        }
        preset = file.get("preset", request.preset)
        known = known_name(dataset.fingerprint, preset)
        recipe = resolve(name, dataset=known, preset=preset, settings=settings, size=Size.of(dataset))
        # These raise if the dataset has no order, or no weights.
        order_of(dataset, used=recipe.train.recency > 0)
        weights_of(dataset, recipe.weight_setting)
        seeds = request.seeds if recipe.entry.seeded else request.seeds[:1]
        plans.append(Plan(recipe, tuple(seeds)))
    return plans


def _split_settings(
    settings: Mapping[str, Any], keys: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the settings for all models and those for each model; a key that no model has is refused."""
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in keys}
    for key, value in settings.items():
        model, dot, inner = key.partition(".")
        if not dot:
            shared[key] = value
        elif model in own:
            own[model][inner] = value
        else:
            hint = did_you_mean(model, keys) or f"; the models are {', '.join(keys)}."
            raise ConfigError(f"--set {key} is for model {model!r}, which is not compared{hint}")
    refuse_unknown(shared, {key for names in keys.values() for key in names}, f"the group {', '.join(keys)}")
    return shared, own


def _read_configs(configs: Sequence[str], models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings in each file, by model."""
    settings: dict[str, dict[str, Any]] = {}
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
        if name in settings:
            raise ConfigError(f"--config is given twice for model {name}; give it once.")
        settings[name] = content
    return settings


# -- train ------------------------------------------------------------------------------------------------------------


def train_models(
    dataset: Dataset, plans: Sequence[Plan], folder: Path, options: Options, *, source: str = ""
) -> list[list[Run]]:
    """Return the finished runs of each plan in ``folder``, after training those that are missing or unfinished."""
    device = str(pick_device(options.device))
    runs: list[list[Run]] = []
    for plan in plans:
        recipe = plan.recipe
        if not recipe.entry.seeded:
            options.notify(f"{recipe.name} does not depend on the seed: one run serves for all seeds.")
        runs.append([])
        for seeds in groups(plan.seeds, recipe, options.device):
            paths = [run_path(folder, dataset, recipe, seed, options.notify) for seed in seeds]
            group = [
                open_run(path, dataset, recipe, seed=seed, device=device, source=source)
                for path, seed in zip(paths, seeds, strict=True)
            ]
            for run in group:
                if run.finished:
                    options.notify(f"{run.path} is finished; it is reused.")
                    if not recipe.entry.solved and not (run.path / CURVES).exists():
                        plot_run(run)  # the process was killed between the last state and its figure
            if unfinished := [run for run in group if not run.finished]:
                _train(unfinished, dataset, recipe, options)
            runs[-1] += group
    return runs


def run_path(folder: Path, dataset: Dataset, recipe: Recipe, seed: int, notify: Notify) -> Path:
    """Return the folder of the run of this recipe and seed, or the first free name: ``dgcf-seed0``, ``-2``, …"""
    for path in numbered(folder / f"{recipe.name}-seed{seed}"):
        if (path / "run.json").exists():
            changes = Run.open(path).changes(dataset, recipe, seed)
            if not changes:
                return path
            more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
            notify(f"{path} is another run ({'; '.join(changes[:3])}{more}) and is left alone.")
        elif not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return path
    raise AssertionError("the names have no end")


def _train(runs: Sequence[Run], dataset: Dataset, recipe: Recipe, options: Options) -> None:
    """Train the runs of one recipe together, showing the progress of the first."""
    for run in runs:
        options.notify(f"{recipe.name} on {dataset.name}, seed {run.seed}, in {run.path}")
    validate = validator(dataset, recipe.train.metric) if len(dataset.validation) else None
    with discard_unstarted(runs, on=DgcfError), options.observe() as observer:
        observers = [observer, *(None for _ in runs[1:])]
        jobs = [SeedJob(run.seed, observer, run) for run, observer in zip(runs, observers, strict=True)]
        for _, trained in train_seeds(dataset, recipe, jobs, device=options.device, validate=validate):
            if note := save_recommender(trained, dataset):
                options.notify(f"note: {note}")

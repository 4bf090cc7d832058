"""The search of a study: a model, its fixed settings and its search spaces, on a dataset without its test split."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgcf.config import OneOf, Space
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.space import Spaces, extremes, format_spaces, match_type, parse_space, space_of
from dgcf.experiments.study.description import recorded_study
from dgcf.experiments.study.folder import Study
from dgcf.random import key_of
from dgcf.train import Recipe, Size, resolve
from dgcf.train.config import LOSS_SPACE
from dgcf.train.presets import DEFAULT, known_name
from dgcf.train.recipe import WEIGHT_SETTINGS
from dgcf.train.run.description import order_of, weights_of


@dataclass(frozen=True)
class Search:
    """A resolved and checked search; ``dataset`` has no test pairs, ``fingerprint`` is of the dataset with them."""

    dataset: Dataset
    fingerprint: str
    source: str
    recipe: Recipe
    fixed: Mapping[str, object]
    spaces: Spaces
    metric: str
    seed: int
    path: Path

    def recipe_of(self, settings: Mapping[str, object]) -> Recipe:
        """Return the recipe with these values of the searched settings."""
        return self._recipe(self.effective(settings))

    def effective(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return the values of searched settings without those that the trial's loss does not read."""
        unread = self._recipe(settings).train.unread if "loss" in self.spaces else []
        return {name: value for name, value in settings.items() if name not in unread}

    def _recipe(self, settings: Mapping[str, object]) -> Recipe:
        return _recipe(self.recipe.name, self.dataset, self.recipe.preset, {**self.fixed, **settings}, self.metric)

    def about(self) -> dict[str, Any]:
        """Return the description of the study, by which it is recognised when it is resumed."""
        # The order and the weights of the pairs count if any trial may depend on them.
        order = order_of(self.dataset, used=self.recipe.train.recency > 0 or "recency" in self.spaces)
        searched = next((name for name in WEIGHT_SETTINGS if name in self.spaces), None)
        values = order | weights_of(self.dataset, self.recipe.weight_setting or searched)
        dataset = {"name": self.dataset.name, "source": self.source, "fingerprint": self.fingerprint, **values}
        return {
            "model": self.recipe.name,
            "preset": self.recipe.preset,
            "metric": self.metric,
            "seed": self.seed,
            "warm_up": self.recipe.train.min_epochs,
            "dataset": dataset,
            "space": format_spaces(self.spaces),
            "settings": self.recipe.settings(),
        }

    def open(self) -> Study:
        try:
            import optuna  # noqa: F401
        except ImportError as problem:
            raise ConfigError("tuning needs Optuna, which is not installed; pip install 'dgcf[tune]'.") from problem
        return Study(self.path, self.about(), self.spaces, self.recipe.settings())


def _without_test(dataset: Dataset) -> Dataset:
    return replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items))


def search_for(
    dataset: Dataset,
    model: str = "dgcf",
    *,
    preset: str | None = None,
    settings: Mapping[str, object] | None = None,
    search: Mapping[str, Space] | None = None,
    metric: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    source: str = "",
) -> Search:
    """Resolve and check a search; ``settings`` are fixed, ``search`` replaces or adds spaces.

    ``preset``: by default that of the study in ``out``, which an older version may have begun with another default.
    A study in ``out`` keeps its search space, unless ``settings`` or ``search`` name another one.
    """
    _check(dataset, seed)
    fixed, changed = dict(settings or {}), search or {}
    path = Path(out) if out else Path("tune") / f"{dataset.name.replace('/', '-')}-{model}"
    recorded = recorded_study(path)
    recipe = _recipe(model, dataset, preset or recorded.preset or DEFAULT, fixed, metric)
    test_free, metric = _without_test(dataset), metric or recipe.train.metric
    validator(test_free, metric)  # raises for an unknown metric
    recipe.model.require_memory(recipe.name, dataset.n_users, dataset.n_items, len(dataset.train))
    resolved = Search(
        dataset=test_free,
        fingerprint=dataset.fingerprint,
        source=source or dataset.name,
        recipe=recipe,
        fixed=fixed,
        spaces=_spaces(recipe, dataset, fixed, changed, recorded.spaces if recorded.model == model else None),
        metric=metric,
        seed=seed,
        path=path,
    )
    _refuse_bad_spaces(resolved, changed)
    resolved.about()  # raises if the dataset lacks an order or weights that a searched setting uses
    return resolved


def _check(dataset: Dataset, seed: int) -> None:
    """Refuse a dataset without validation pairs, and an invalid seed."""
    key_of(seed, "tune")
    if not len(dataset.validation):
        raise ConfigError(f"{dataset.name} has no validation split to tune on; split it by `dgcf data prepare`.")


def _recipe(model: str, dataset: Dataset, preset: str, settings: Mapping[str, object], metric: str | None) -> Recipe:
    """Return a recipe whose best epoch is chosen by ``metric``; a solved model has no epochs."""
    size, known = Size.of(dataset), known_name(dataset.fingerprint, preset)
    recipe = resolve(model, dataset=known, preset=preset, settings=settings, size=size)
    if metric is None or recipe.entry.solved:
        return recipe
    return resolve(model, dataset=known, preset=preset, settings={**settings, "metric": metric}, size=size)


def _spaces(
    recipe: Recipe,
    dataset: Dataset,
    fixed: Mapping[str, object],
    search: Mapping[str, Space],
    recorded: Mapping[str, str] | None,
) -> Spaces:
    """Return the search space; ``recorded`` is that of the study to resume, as ``--search`` takes it."""
    settings = recipe.settings()
    for name in search:
        if name in fixed:
            raise ConfigError(f"{name} is both fixed (--set) and searched (--search); leave one of them out.")
    losses = search.get("loss", None if "loss" in fixed else _valid_losses(recipe, dataset, fixed))
    spaces = space_of(recipe, losses.values if isinstance(losses, OneOf) else ())
    if losses is None:
        spaces.pop("loss", None)
    elif "loss" in spaces:
        spaces["loss"] = losses
    if recorded is not None:
        spaces = {**{name: space for name, space in spaces.items() if name in recorded}, **_parsed(recorded, spaces)}
    chosen = {name: space for name, space in {**spaces, **search}.items() if name not in fixed}
    if not chosen:
        other = f", or name a space for {', '.join(settings)} with --search" if settings else ""
        raise ConfigError(f"model {recipe.name} has nothing to search; train it as it is{other}.")
    return {name: match_type(space, settings.get(name)) for name, space in chosen.items()}


def _valid_losses(recipe: Recipe, dataset: Dataset, fixed: Mapping[str, object]) -> OneOf | None:
    """Return the losses that can be searched with the fixed settings; None if there is one alone."""
    valid = []
    for loss in LOSS_SPACE.values:
        with contextlib.suppress(ConfigError):
            _recipe(recipe.name, dataset, recipe.preset, {**fixed, "loss": loss}, None)
            valid.append(loss)
    return OneOf(tuple(valid)) if len(valid) > 1 else None


def _parsed(recorded: Mapping[str, str], known: Spaces) -> Spaces:
    """Return the recorded spaces that differ from those known; what cannot be read is refused when it is compared."""
    texts, spaces = format_spaces(known), Spaces()
    for name, text in recorded.items():
        if texts.get(name) != text:
            with contextlib.suppress(ConfigError):
                spaces |= [parse_space(f"{name}={text}")]
    return spaces


def _refuse_bad_spaces(resolved: Search, search: Mapping[str, Space]) -> None:
    for name in search:
        if name == "metric":
            raise ConfigError("metric is what trials are compared by, so it cannot be searched; name it with --metric.")
        for value in extremes(resolved.spaces[name]):
            try:
                resolved.recipe_of({name: value})
            except ConfigError as problem:
                raise ConfigError(f"--search {name}: {problem}") from None

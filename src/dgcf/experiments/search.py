"""The search of a study: a model, its fixed settings and its search spaces, on a dataset without its test split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgcf.config import Space
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.evaluate.validation import validator
from dgcf.experiments.space import Spaces, extremes, format_spaces, match_type, space_of
from dgcf.experiments.study.description import preset_of
from dgcf.experiments.study.folder import Study
from dgcf.random import key_of
from dgcf.train import Recipe, Size, resolve
from dgcf.train.presets import DEFAULT
from dgcf.train.run.description import order_of


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
        return _recipe(self.recipe.name, self.dataset, self.recipe.preset, {**self.fixed, **settings}, self.metric)

    def about(self) -> dict[str, Any]:
        """Return the description of the study, by which it is recognised when it is resumed."""
        # The order of the pairs counts if any trial may depend on it.
        order = order_of(self.dataset, used=self.recipe.train.recency > 0 or "recency" in self.spaces)
        dataset = {"name": self.dataset.name, "source": self.source, "fingerprint": self.fingerprint, **order}
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
    """
    key_of(seed, "tune")  # raises for an invalid seed
    if not len(dataset.validation):
        raise ConfigError(f"{dataset.name} has no validation split to tune on; split it by `dgcf data prepare`.")
    fixed = dict(settings or {})
    path = Path(out) if out else Path("tune") / f"{dataset.name.replace('/', '-')}-{model}"
    recipe = _recipe(model, dataset, preset or preset_of(path) or DEFAULT, fixed, metric)
    test_free = replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items))
    metric = metric or recipe.train.metric
    validator(test_free, metric)  # raises for an unknown metric
    recipe.model.require_memory(recipe.name, dataset.n_users, dataset.n_items, len(dataset.train))
    resolved = Search(
        dataset=test_free,
        fingerprint=dataset.fingerprint,
        source=source or dataset.name,
        recipe=recipe,
        fixed=fixed,
        spaces=_spaces(recipe, fixed, search or {}),
        metric=metric,
        seed=seed,
        path=path,
    )
    _refuse_bad_spaces(resolved, search or {})
    resolved.about()  # raises if recency is searched and the dataset has no order
    return resolved


def _recipe(model: str, dataset: Dataset, preset: str, settings: Mapping[str, object], metric: str | None) -> Recipe:
    """Return a recipe whose best epoch is chosen by ``metric``; a solved model has no epochs."""
    size = Size.of(dataset)
    recipe = resolve(model, dataset=dataset.name, preset=preset, settings=settings, size=size)
    if metric is None or recipe.entry.solved:
        return recipe
    return resolve(model, dataset=dataset.name, preset=preset, settings={**settings, "metric": metric}, size=size)


def _spaces(recipe: Recipe, fixed: Mapping[str, object], search: Mapping[str, Space]) -> Spaces:
    settings = recipe.settings()
    for name in search:
        if name in fixed:
            raise ConfigError(f"{name} is both fixed (--set) and searched (--search); leave one of them out.")
    chosen = {name: space for name, space in {**space_of(recipe), **search}.items() if name not in fixed}
    if not chosen:
        other = f", or name a space for {', '.join(settings)} with --search" if settings else ""
        raise ConfigError(f"model {recipe.name} has nothing to search; train it as it is{other}.")
    return {name: match_type(space, settings.get(name)) for name, space in chosen.items()}


def _refuse_bad_spaces(resolved: Search, search: Mapping[str, Space]) -> None:
    for name in search:
        if name == "metric":
            raise ConfigError("metric is what trials are compared by, so it cannot be searched; name it with --metric.")
        for value in extremes(resolved.spaces[name]):
            try:
                resolved.recipe_of({name: value})
            except ConfigError as problem:
                raise ConfigError(f"--search {name}: {problem}") from None

"""What a study searches: a model and its settings on a dataset without its test split, resolved and checked."""

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
from dgcf.experiments.space import Spaces, as_numbers_of, corners, space_of, written
from dgcf.experiments.study import Study
from dgcf.random import key_of
from dgcf.train import Recipe, resolve
from dgcf.train.run.folder import order_of


@dataclass(frozen=True)
class Search:
    """What is searched: a model and its settings on a dataset, all resolved and checked. Test pairs are left out."""

    dataset: Dataset
    fingerprint: str
    source: str
    recipe: Recipe
    fixed: Mapping[str, Any]
    spaces: Spaces
    metric: str
    seed: int
    path: Path

    def recipe_of(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with other values of what is searched."""
        return _recipe(self.recipe.name, self.dataset, self.recipe.preset, {**self.fixed, **settings}, self.metric)

    @property
    def order(self) -> dict[str, str | None]:
        """That of the pairs, where any trial may draw by it."""
        return order_of(self.dataset, used=self.recipe.train.recency > 0 or "recency" in self.spaces)

    def about(self) -> dict[str, Any]:
        """What makes it this study and no other."""
        return {
            "model": self.recipe.name,
            "preset": self.recipe.preset,
            "metric": self.metric,
            "seed": self.seed,
            "warm_up": self.recipe.train.min_epochs,
            "dataset": {
                "name": self.dataset.name,
                "source": self.source,
                "fingerprint": self.fingerprint,
                **self.order,
            },
            "space": written(self.spaces),
            "settings": self.recipe.settings(),
        }

    def open(self) -> Study:
        return Study(self.path, self.about(), self.spaces, self.recipe.settings())


def search_for(
    dataset: Dataset,
    model: str = "dgcf",
    *,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    search: Mapping[str, Space] | None = None,
    metric: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    source: str = "",
) -> Search:
    """Resolve and check everything before any work; ``settings`` are fixed, ``search`` are other or further spaces."""
    key_of(seed, "tune")  # refuses what cannot be a seed
    if not len(dataset.validation):
        raise ConfigError(f"{dataset.name} has no validation split to tune on; split it by `dgcf data prepare`.")
    fixed = dict(settings or {})
    recipe = _recipe(model, dataset, preset, fixed, metric)
    test_free = replace(dataset, test=Pairs.empty(dataset.n_users, dataset.n_items))
    wanted = metric or recipe.train.metric
    validator(test_free, wanted)  # refuses what is no metric
    recipe.model.require_memory(recipe.name, dataset.n_users, dataset.n_items, len(dataset.train))
    found = Search(
        dataset=test_free,
        fingerprint=dataset.fingerprint,
        source=source or dataset.name,
        recipe=recipe,
        fixed=fixed,
        spaces=_spaces(recipe, fixed, search or {}),
        metric=wanted,
        seed=seed,
        path=Path(out) if out else Path("tune") / f"{dataset.name.replace('/', '-')}-{model}",
    )
    _refuse_bad_spaces(found, search or {})
    found.about()  # refuses what is recent without an order
    return found


def _recipe(model: str, dataset: Dataset, preset: str, settings: Mapping[str, Any], metric: str | None) -> Recipe:
    """A recipe whose best epoch is picked by ``metric``; a model that is solved at once has no epoch to pick."""
    recipe = resolve(model, dataset=dataset.name, preset=preset, settings=settings)
    if metric is None or recipe.entry.solved:
        return recipe
    return resolve(model, dataset=dataset.name, preset=preset, settings={**settings, "metric": metric})


def _spaces(recipe: Recipe, fixed: Mapping[str, Any], search: Mapping[str, Space]) -> Spaces:
    settings = recipe.settings()
    for name in search:
        if name in fixed:
            raise ConfigError(f"{name} is both fixed (--set) and searched (--search); leave one of them out.")
    spaces = {**space_of(recipe), **search}
    found = {name: as_numbers_of(space, settings.get(name)) for name, space in spaces.items() if name not in fixed}
    if not found:
        other = f", or name a space for {', '.join(settings)} with --search" if settings else ""
        raise ConfigError(f"model {recipe.name} has nothing to search; train it as it is{other}.")
    return found


def _refuse_bad_spaces(found: Search, search: Mapping[str, Space]) -> None:
    for name in search:
        if name == "metric":
            raise ConfigError("metric is what trials are compared by, so it cannot be searched; name it with --metric.")
        for value in corners(found.spaces[name]):
            try:
                found.recipe_of({name: value})
            except ConfigError as problem:
                raise ConfigError(f"--search {name}: {problem}") from None

"""Read recipes: errors are reported before anything is trained."""

from __future__ import annotations

import pytest

from dgcf.errors import ConfigError
from dgcf.experiments.reproduce import IDS
from dgcf.experiments.reproduce.recipe import Recipes
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import Workspace


def test_setting_at_its_default_keeps_the_fingerprint(small: Workspace) -> None:
    (cell,) = small.recipes.experiment("first").matching("layers=1:seed=0")
    text = (small.root / "recipes" / "reproduce" / "first.toml").read_text()
    small.write("first", text.replace("dim = 8", "dim = 8, temperature = 0.2"))
    (same,) = small.recipes.experiment("first").matching("layers=1:*seed=0")
    assert cell.fingerprint == same.fingerprint


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("data = [", "dta = ["), "did you mean 'data'"),
        (('["small"]', '["smal"]'), "did you mean 'small'"),
        (('kind = "statistics"', 'kind = "statistic"'), "did you mean 'statistics'"),
        (('settings = ["paper"]', 'settings = ["papr"]'), "settings are 'papr'"),
        (('settings = ["paper"]\n', ""), "names no models or no settings"),
        (("dim = 8", "dimm = 8"), "did you mean 'dim'"),
        (("title", "titel"), "did you mean 'title'"),
        (("title", "[[titles]]\ntitle"), "has no setting 'titles'"),
        (('title = "The first"', "title = 1"), r"title of .*first\.toml is 1, expected text"),
        (('title = "The first"', 'title = "A"\nnotes = "B"'), r"notes of .* is 'B', expected a list of words"),
        (("set = {", "set = [4] #"), r"set of a grid of .*first\.toml is \[4\], expected a table, such as"),
        (("[1, 2]", "4"), r"sweep of a grid of .*first\.toml is \{'layers': 4\}, expected a table of lists"),
        (("[1, 2]", "[]"), r"sweep of a grid of .*first\.toml is \{'layers': \[\]\}, expected a table of lists"),
        (('models = ["dgcf"]', 'models = "dgcf"'), r"models of a grid of .*first\.toml is 'dgcf', expected a list of"),
        (('data = ["small"]', 'data = "small"'), r"data of a grid of .*first\.toml is 'small', expected a list of"),
        (('data = ["small"]', "data = []"), r"data of a grid of .*first\.toml is \[\], expected a list of words"),
        (("set = {", "seeds = 0\nset = {"), r"seeds of a grid of .*first\.toml is 0, expected a whole number from 1"),
        (("set = {", "seeds = '5'\nset = {"), r"seeds of a grid of .*first\.toml is '5', expected a whole number"),
        (("set = {", "seeds = true\nset = {"), r"seeds of a grid of .*first\.toml is True, expected a whole number"),
        (('kind = "statistics"', 'kind = "edges"'), "counts edges and names no epsilon"),
        (("dim = 8", "dim = 'wide'"), r"in .*first\.toml, dim of .* is 'wide', expected .*; change it there\.$"),
        (("dim = 8", "dim = -8"), r"in .*first\.toml, dim is -8, expected .*; change it there\.$"),
        (('models = ["dgcf"]', 'models = ["dgfc"]'), r"in .*first\.toml, .*did you mean 'dgcf'"),
    ],
    ids=str,
)
def test_error_in_recipe_is_reported_on_reading(small: Workspace, change: tuple[str, str], sentence: str) -> None:
    text = (small.root / "recipes" / "reproduce" / "first.toml").read_text()
    assert change[0] in text
    small.write("first", text.replace(*change))
    with pytest.raises(ConfigError, match=sentence):
        Recipes.read(small.root / "recipes")


def test_grid_with_one_bracket_is_refused(small: Workspace) -> None:
    small.write("first", 'title = "A"\n[grid]\ndata = ["small"]\nkind = "statistics"\n')
    with pytest.raises(
        ConfigError, match=r"grid of .*first\.toml is \{'data'.*, expected tables, each below a \[\[grid\]\]"
    ):
        Recipes.read(small.root / "recipes")


@pytest.mark.parametrize(
    ("decided", "over", "sentence"),
    [
        ("layers = 'deep'", "", r"in .*small.lightgcn\.toml, layers of .* is 'deep', expected .*; change it there\.$"),
        ("layers = 2", "set = { layers = 'deep' }\n", r"in .*third\.toml, layers of .* is 'deep'"),
        ("layer = 2", "", r"in .*small.lightgcn\.toml, .*did you mean 'layers'"),
    ],
)
def test_error_in_decided_settings_names_their_file(small: Workspace, decided: str, over: str, sentence: str) -> None:
    text = (small.root / "recipes" / "reproduce" / "third.toml").read_text()
    small.write("third", text + over)
    (small.root / "recipes" / "small").mkdir()
    (small.root / "recipes" / "small" / "lightgcn.toml").write_text(f'model = "lightgcn"\n{decided}\n')
    with pytest.raises(ConfigError, match=sentence):
        Recipes.read(small.root / "recipes")


def test_every_experiment_of_the_paper_has_a_recipe() -> None:
    recipes = Recipes.read(PROJECT / "recipes")
    assert tuple(recipes.experiments) == IDS
    for experiment in recipes.experiments.values():
        keys = [cell.key for cell in experiment.cells]
        assert len(set(keys)) == len(keys)
    seeds = {
        cell.source.name: set[int | None]() for experiment in recipes.experiments.values() for cell in experiment.cells
    }
    for cell in recipes.experiment("table1").cells:
        seeds[cell.source.name].add(cell.seed)
    counted = {name: len(numbers - {None}) for name, numbers in seeds.items()}
    assert counted | {"ml-100k": 5, "ml-100k-779": 5, "ml-1m": 5, "gowalla": 3, "amazon": 3} == counted
    oscillation = recipes.experiment("oscillation-diff").cells
    assert {cell.seed for cell in oscillation} == set(range(10))
    assert {cell.varied["layers"] for cell in oscillation} == set(range(1, 13))

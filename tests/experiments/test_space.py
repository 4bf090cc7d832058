"""Search spaces: those of each model, and those parsed from ``--search``."""

from __future__ import annotations

import pytest

from dgcf.config import Between, OneOf
from dgcf.errors import ConfigError
from dgcf.experiments.space import contains, format_spaces, match_type, parse_space, space_of
from dgcf.models import CATALOG
from dgcf.train import resolve
from dgcf.train.presets import PRESETS


@pytest.mark.parametrize("model", CATALOG)
def test_every_preset_lies_in_its_search_space(model: str) -> None:
    """Otherwise the first trial would not be the preset."""
    for preset in PRESETS:
        for dataset in ("deoscirec/ml-100k", "ml-1m", "amazon-movies-tv", "gowalla", "other"):
            recipe = resolve(model, dataset=dataset, preset=preset)
            settings = recipe.settings()
            outside = {
                key: settings[key] for key, space in space_of(recipe).items() if not contains(space, settings[key])
            }
            assert outside == {}, (preset, dataset)


def test_settings_without_effect_are_not_searched() -> None:
    def names(model: str, **settings: object) -> set[str]:
        return set(space_of(resolve(model, preset="plain", settings=settings)))

    loop = {"learning_rate", "l2", "loss"}
    assert names("bpr-mf") == {"dim", *loop}
    assert names("bpr-mf", loss="softmax") == {"dim", "temperature", *loop}
    assert names("bpr-mf", loss="directau") == {"dim", "uniformity", *loop}
    assert names("dgcf") == {"dim", "layers", "edge_dropout", *loop}
    assert names("sage") == {"dim", "layers", "message_dropout", *loop}
    assert names("sage", fanout="all") == {"dim", "layers", "message_dropout", "edge_dropout", *loop}
    assert "edge_dropout" not in names("spectralcf")  # some of the frequencies that it tries have no edges
    assert names("ease") == {"l2"}
    assert names("popularity") == set()


def test_settings_of_every_searched_loss_are_searched() -> None:
    recipe = resolve("bpr-mf", preset="plain")
    assert set(space_of(recipe, ("bpr", "softmax"))) == {"dim", "learning_rate", "l2", "loss", "temperature"}
    assert "uniformity" in space_of(recipe, ("directau",))


@pytest.mark.parametrize(
    ("word", "space"),
    [
        ("layers=1:6", ("layers", Between(1, 6))),
        ("l2=1e-5:1e-1:log", ("l2", Between(1e-5, 1e-1, log=True))),
        (" dim = 16, 32 ", ("dim", OneOf((16, 32)))),
        ("loss=bpr,softmax", ("loss", OneOf(("bpr", "softmax")))),
        ("self_loop=true,false", ("self_loop", OneOf((True, False)))),
        ("epsilon=auto,0.001", ("epsilon", OneOf(("auto", 0.001)))),
    ],
)
def test_parsed_spaces(word: str, space: tuple[str, object]) -> None:
    assert parse_space(word) == space


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("layers", "is no search space"),
        ("=1:2", "is no search space"),
        ("layers=", "is no search space"),
        ("layers=1:", "is no search space"),
        ("layers=1:2:3", "is no search space"),
        ("layers=1:2:log:log", "is no search space"),
        ("layers=a:b", "is no search space"),
        ("dim=1,,2", "is no search space"),
        ("layers=4:1", "give the lower number first"),
        ("layers=2:2", "give the lower number first"),
        ("l2=nan:1", "give two finite numbers"),
        ("l2=1:inf", "give two finite numbers"),
        ("l2=0:1:log", "begin above 0"),
        ("dim=64", "fix it with --set dim=64"),
        ("dim=64,64", "fix it with --set dim=64"),
    ],
)
def test_invalid_space_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_space(word)
    assert message in str(refusal.value)


def test_integer_bounds_of_a_real_setting_become_real() -> None:
    assert format_spaces({"edge_dropout": match_type(Between(0, 1), 0.1)}) == {"edge_dropout": "0.0:1.0"}
    assert format_spaces({"layers": match_type(Between(1, 4), 3)}) == {"layers": "1:4"}

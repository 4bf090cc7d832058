"""Options of experiments: what they give, and sentences about what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dgcf.errors import ConfigError
from dgcf.serve.experiments.options import arms_of
from dgcf.serve.server.handover import settings_as_data, settings_of_data
from dgcf.serve.settings import Settings


def test_options_name_arms_weights_and_shadows() -> None:
    arms = arms_of(["b=runs/b", "c=/c"], "main=0.5,c=0.2, b=0.3", ["d=runs/d"], "spring", 0.25)
    assert arms.experiment == "spring"
    assert arms.weights == {"main": 0.5, "b": 0.3, "c": 0.2}
    assert arms.models == {"b": Path.cwd() / "runs/b", "c": Path("/c"), "d": Path.cwd() / "runs/d"}
    assert (arms.shadows, arms.share) == (("d",), 0.25)
    settings = Settings(Path("/a"), Path("/data"), more=arms)
    assert settings.arms == ("main", "b", "c", "d")
    assert settings_of_data(settings_as_data(settings)) == settings


def test_users_are_shared_out_equally_without_a_split_and_a_shadow_ranks_a_tenth() -> None:
    assert arms_of(["b=b"], experiment="x").weights == {"main": 0.5, "b": 0.5}
    shadow = arms_of(shadow=["b=b"])
    assert (shadow.weights, shadow.experiment, shadow.share) == ({"main": 1.0}, None, 0.1)
    assert arms_of().models == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"arm": ["b"]}, "--arm is 'b', expected NAME=MODEL"),
        ({"arm": ["b="]}, "expected NAME=MODEL"),
        ({"arm": ["B=x"]}, "lower-case letters"),
        ({"arm": ["main=x"]}, "--arm names main, which is the model that is served"),
        ({"shadow": ["main=x"]}, "--shadow names main"),
        ({"arm": ["b=x", "b=y"], "experiment": "e"}, "--arm names b twice"),
        ({"arm": ["b=x"], "shadow": ["b=y"], "experiment": "e"}, "b is the name of an arm and of a shadow"),
        ({"arm": ["b=x"]}, "--arm needs --experiment NAME"),
        ({"experiment": "e"}, "--experiment needs arms to compare; add --arm"),
        ({"arm": ["b=x"], "experiment": "a b"}, "--experiment is 'a b', expected 1 to 64 letters"),
        ({"split": "main=1"}, "--split divides users among arms, but there is only the main one"),
        ({"share": 0.5}, "--shadow-share is for shadows, but there is none"),
        ({"shadow": ["b=x"], "share": 1.5}, "--shadow-share is 1.5, expected a share"),
        ({"shadow": ["b=x"], "share": 0.0}, "--shadow-share is 0, expected"),
        ({"arm": [f"b{place}=x" for place in range(8)], "experiment": "e"}, "9 models, expected at most 8"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as problem:
        arms_of(**options)
    assert sentence in str(problem.value)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ("main=0.5", "--split has no weight of b; give one for each of main, b."),
        ("main=0.5,c=0.5", "--split has 'c=0.5', expected each of main, b once"),
        ("main=0.5,main=0.5", "--split has 'main=0.5', expected each"),
        ("main=0.5,b", "--split has 'b', expected"),
        ("main=1.5,b=-0.5", "--split has 'main=1.5', expected"),
        ("main=nan,b=1", "--split has 'main=nan', expected"),
        ("main=0.5,b=0.6", "the weights of --split sum to 1.1, expected 1."),
        ("", "--split has '', expected each of main, b once with a weight from 0 to 1, such as main=0.5,b=0.5."),
    ],
)
def test_a_split_that_does_not_fit_is_refused(split: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as problem:
        arms_of(["b=x"], split, experiment="e")
    assert sentence in str(problem.value)


def test_a_missing_model_of_an_arm_ends_the_command_with_one_sentence(model_file: Path, tmp_path: Path) -> None:
    words = [str(model_file), "--data", str(tmp_path / "data"), "--port", "0", "--arm", f"b={tmp_path}/b"]
    command = [sys.executable, "-m", "dgcf", "serve", *words, "--experiment", "spring"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert f"there is no model {tmp_path}/b" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr

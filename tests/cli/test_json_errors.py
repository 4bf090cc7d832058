"""Failures with ``--json``: an object on stdout, a sentence on stderr, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.errors import hint_of
from tests.cli.processes import VERBS, ran, words_of

CASES = {
    "unknown user": (("recommend", "{films}", "--user", "nobody"), "data", 1),
    "no file": (("data", "stats", "./absent.csv"), "data", 1),
    "no run": (("evaluate", "./absent"), "artifact", 1),
    "no such model": (("train", "{data}", "--model", "dgfc"), "config", 2),
    "no such setting": (("train", "{data}", "--set", "layer=3"), "config", 2),
    "k of nothing": (("recommend", "{films}", "--user", "u00001", "-k", "0"), "config", 2),
    "options apart": (("similar", "{films}"), "config", 2),
    "too deep a ranking": (("evaluate", "{run}", "--k", "1000000000", "--device", "cpu"), "config", 2),
    "too deep a metric": (("train", "{data}", "--set", "metric=recall@1000000000"), "config", 2),
    "too long a metric": (("train", "{data}", "--set", f"metric=recall@{10**30}"), "config", 2),
    "too deep a comparison": (("compare", "{data}", "--models", "ease,popularity", "--k", "1000000000"), "config", 2),
    "too many seeds": (("train", "{data}", "--seeds", "1000000000"), "usage", 2),
    "too many seeds to compare": (("compare", "{data}", "--models", "a,b", "--seeds", "1000000000"), "usage", 2),
    "too many processes": (("tune", "{data}", "--jobs", "1000000000"), "usage", 2),
    "too many steps": (("oscillation", "{data}", "--steps", "1000000000"), "usage", 2),
    "no such option": (("recommend", "{films}", "--usr", "x"), "usage", 2),
    "no such verb": (("recomend",), "usage", 2),
    "no such verb of data": (("data", "stat"), "usage", 2),
    "missing argument": (("evaluate",), "usage", 2),
    "no number": (("recommend", "{films}", "-k", "many"), "usage", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_failure_is_an_object_on_stdout_and_a_sentence_on_stderr(
    name: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, kind, code = CASES[name]
    places = {"data": small / "data", "run": small / "run", "films": small / "films.dgcf"}
    arguments = [word.format(**places) for word in words]
    done = CliRunner().invoke(application(), [*arguments, "--json"])
    assert done.exit_code == code, done.output
    (line,) = done.stdout.splitlines()
    error = json.loads(line)["error"]
    assert set(error) == {"kind", "message", "hint"}
    assert error["kind"] == kind
    assert done.stderr == f"error: {error['message']}\n"
    assert error["hint"] == hint_of(error["message"])
    assert list(tmp_path.iterdir()) == []
    plain = CliRunner().invoke(application(), arguments)
    assert (plain.exit_code, plain.stdout, plain.stderr) == (code, "", done.stderr)


def test_wrong_option_before_the_verb_is_an_object() -> None:
    done = ran("--bogus", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "usage"
    assert done.stderr.startswith("error: No such option: --bogus")


def test_help_names_the_exit_codes() -> None:
    done = CliRunner().invoke(application(), ["--help"])
    text = " ".join(done.stdout.split())
    assert "Exit codes: 0 success; 1 failure; 2 incorrect usage; 130 interrupted" in text


@pytest.mark.parametrize("k", ["1000", "1000000000", str(2**63), str(2**80)])
@pytest.mark.parametrize("verb", ["recommend", "similar", "recommend-all"])
def test_k_above_the_number_of_items_gives_all_items(verb: str, k: str, small: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(application(), [*words_of(verb, small, tmp_path), "-k", k, "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    if verb == "recommend-all":
        assert 200 * 60 < answer["rows"] < 200 * 120
    else:
        assert 60 < len(answer["recommendations" if verb == "recommend" else "similar"]) <= 120
        assert f"k is {k}, but only " in answer["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_one_object_on_success(verb: str, small: Path, tmp_path: Path) -> None:
    done = ran(*words_of(verb, small, tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "error" not in json.loads(line)

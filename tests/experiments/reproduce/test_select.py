"""Trials decide settings: on validation alone, once each, whatever fails, and what they decide is trained."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgcf.config import read_toml
from dgcf.data import load
from dgcf.data.dataset import Dataset
from dgcf.data.pairs import Pairs
from dgcf.errors import ConfigError
from dgcf.experiments.progress import Progress
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.report.pages import Page, views
from dgcf.experiments.reproduce.results import Store
from dgcf.experiments.reproduce.runner import CellFilter
from dgcf.experiments.reproduce.select import decisions, write_decisions
from dgcf.train import Recipe, resolve
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import QUICK, Workspace, make_workspace, trial_grid

LOOP = "epochs = 4, evaluate_every = 2, dim = 8, batch_size = 256"
CANDIDATES = "[{}, { learning_rate = 0.05 }, { layers = 1, edge_dropout = 0.3 }, { learning_rate = 1e-6 }]"
TUNING = f"""
title = "Tuning"
notes = ["Another one was tuned elsewhere."]
{trial_grid('["bpr-mf", "lightgcn"]', LOOP, CANDIDATES)}
"""
BEST = trial_grid(
    '["dgcf"]', QUICK, "[{ layers = 1 }, { layers = 2, learning_rate = 0.02 }]", decides="best", more="seeds = 2"
)
FIRST = """
title = "Trainings with the decided settings"
[[grid]]
data = ["small"]
models = ["bpr-mf", "lightgcn"]
settings = ["tuned"]
"""


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def small(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path, tuning=TUNING, table1=FIRST)


def recipe_of(workspace: Workspace, file: str) -> dict[str, Any]:
    return read_toml(workspace.root / "recipes" / file)


def resolved(written: dict[str, Any]) -> Recipe:
    """Return the recipe that a settings file gives."""
    return resolve(written.pop("model"), preset=written.pop("preset"), settings=written)


def replaced(workspace: Workspace, **parts: Pairs) -> Dataset:
    """Replace the dataset by one with other splits."""
    before = load(workspace.root / "data" / "small")
    after = replace(before, **parts)
    after.save(workspace.root / "data" / "small", overwrite=True)
    path = workspace.root / "recipes" / "reproduce" / "data.toml"
    path.write_text(path.read_text().replace(before.fingerprint, after.fingerprint))
    return after


# -- what is tried ----------------------------------------------------------------------------------------------------


def test_trials_leave_out_settings_without_effect(small: Workspace) -> None:
    keys = [cell.key for cell in small.recipes.experiment("tuning").cells]
    loop = LOOP.replace(" = ", "=").replace(", ", ":")
    assert keys == [
        f"small:trial:bpr-mf:tuned:{loop}:seed=0",
        f"small:trial:bpr-mf:tuned:{loop}:learning_rate=0.05:seed=0",
        f"small:trial:bpr-mf:tuned:{loop}:learning_rate=1e-06:seed=0",
        f"small:trial:lightgcn:tuned:{loop}:seed=0",
        f"small:trial:lightgcn:tuned:{loop}:learning_rate=0.05:seed=0",
        f"small:trial:lightgcn:tuned:{loop}:layers=1:edge_dropout=0.3:seed=0",
        f"small:trial:lightgcn:tuned:{loop}:learning_rate=1e-06:seed=0",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('decides = "tuned"\n', ""), "decide '', expected tuned or best"),
        (('["paper"]', '["paper", "plain"]'), r"laid over \['paper', 'plain'\], expected one preset"),
        (("layers = 1,", "layer = 1,"), "did you mean 'layers'"),
        (
            ("candidates = [{}, ", "candidates = [3, "),
            r"candidates of .*tuning\.toml is \[3, .*expected a list of tables",
        ),
        (("learning_rate = 0.05", "learning_rate = 'fast'"), r"in .*tuning\.toml, learning_rate .*; change it there"),
        (('models = ["bpr-mf", ', 'models = ["bpr-fm", '), r"in .*tuning\.toml, .*did you mean 'bpr-mf'"),
        (('kind = "trial"\n', ""), "only a trial has them"),
        (('models = ["bpr-mf", "lightgcn"]\n', ""), "names no models or no settings"),
    ],
    ids=str,
)
def test_error_in_trials_is_reported(small: Workspace, change: tuple[str, str], sentence: str) -> None:
    small.write("tuning", TUNING.replace(*change))
    with pytest.raises(ConfigError, match=sentence):
        Recipes.read(small.root / "recipes")


# -- what is decided --------------------------------------------------------------------------------------------------


def test_best_candidate_is_written_and_trained(small: Workspace) -> None:
    assert small.runner.run("table1").done == []  # nothing is decided yet
    tally = small.runner.run("all", seeds=1)
    assert tally.missing == {}
    assert len(tally.done) == 7 + 2
    for model in ("bpr-mf", "lightgcn"):
        lines = [line for line in small.lines("tuning") if line["label"] == model]
        best = max(lines, key=lambda line: line["validation"]["recall@20"])
        written = recipe_of(small, f"small/{model}.toml")
        assert (written.pop("model"), written.pop("preset")) == (model, "paper")
        assert {name: value for name, value in best["settings"].items() if value is not None} == written
        assert written["learning_rate"] == 0.05
        (trained,) = (line for line in small.lines("table1") if line["label"] == model)
        assert trained["settings"] == best["settings"]
        assert trained["validation"] == best["validation"]
        text = (small.root / "recipes" / "small" / f"{model}.toml").read_text()
        assert f"The best of {len(lines)} candidates of `dgcf reproduce tuning` on small" in text
        assert f"validation recall@20 {best['validation']['recall@20']:.6f} at epoch {best['best_epoch']}, " in text
        assert f"Use it by: dgcf train planted --config recipes/small/{model}.toml" in text


def test_trials_never_evaluate_test(small: Workspace) -> None:
    small.runner.run("tuning")
    for line in small.lines("tuning"):
        assert {"test", "n_users", "measures"}.isdisjoint(line)
        assert line["validation"]["recall@20"] > 0
    assert not (small.store.folder / "users").exists()
    other = make_workspace(small.root / "other", tuning=TUNING)
    before = load(other.root / "data" / "small")
    drawn = np.random.default_rng(0)
    rows = np.arange(before.n_users, dtype=np.int32)
    items = drawn.integers(before.n_items, size=before.n_users, dtype=np.int32)
    after = replaced(other, test=Pairs.from_indices(rows, items, before.n_users, before.n_items))
    assert after.fingerprint != before.fingerprint
    other.runner.run("tuning")
    for one, two in zip(small.lines("tuning"), other.lines("tuning"), strict=True):
        assert (one["key"], one["validation"], one["best_epoch"]) == (two["key"], two["validation"], two["best_epoch"])
    for model in ("bpr-mf", "lightgcn"):
        assert recipe_of(small, f"small/{model}.toml") == recipe_of(other, f"small/{model}.toml")


def test_mean_over_seeds_decides_best(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, tuning=f'title = "T"\n{BEST}')
    workspace.runner.run("tuning", seeds=1)
    assert not (tmp_path / "recipes" / "small").exists()  # two of four trials say nothing yet
    workspace.runner.run("tuning")
    means: dict[int, float] = {}
    for line in workspace.lines("tuning"):
        means[line["varied"]["layers"]] = means.get(line["varied"]["layers"], 0) + line["validation"]["recall@20"] / 2
    written = recipe_of(workspace, "small/best.toml")
    assert written["layers"] == max(means, key=lambda layers: means[layers])
    text = (tmp_path / "recipes" / "small" / "best.toml").read_text()
    assert f"mean validation recall@20 {max(means.values()):.6f} at epoch " in text
    assert "seed 0, 1." in text
    workspace.write("best", 'title = "B"\n[[grid]]\ndata = ["small"]\nmodels = ["dgcf"]\nsettings = ["best"]\n')
    assert workspace.runner.run("best", seeds=1).missing == {}


def test_trials_run_once_and_a_deleted_file_is_rewritten(small: Workspace) -> None:
    first = small.runner.run("tuning", only="bpr-mf")
    assert [path.name for path in (small.root / "recipes" / "small").iterdir()] == ["bpr-mf.toml"]
    again = small.runner.run("tuning")
    assert again.known == first.done
    assert len(again.done) == 4
    stamps = {path: path.stat().st_mtime_ns for path in (small.root / "recipes" / "small").iterdir()}
    lost = small.root / "recipes" / "small" / "bpr-mf.toml"
    text = lost.read_text()
    lost.unlink()
    notes = Notes()
    assert small.runner.run("tuning", progress=notes).done == []
    assert notes.texts == [f"{lost} is written."]
    assert lost.read_text() == text
    kept = small.root / "recipes" / "small" / "lightgcn.toml"
    assert kept.stat().st_mtime_ns == stamps[kept]


def test_trial_reuses_the_validation_of_the_same_training(small: Workspace) -> None:
    text = f'title = "P"\n[[grid]]\ndata = ["small"]\nmodels = ["lightgcn"]\nsettings = ["paper"]\nset = {{ {LOOP} }}\n'
    small.write("table1", text)
    small.runner.run("table1", seeds=1)
    (trained,) = small.lines("table1")
    tally = small.runner.run("tuning", only="lightgcn")
    (known,) = tally.taken_over
    (line,) = (line for line in small.lines("tuning") if line["key"] == known)
    assert line["validation"] == trained["validation"]
    assert set(line) == {*small.lines("tuning")[-1]}
    small.store.path("table1").unlink()
    small.store.path("tuning").unlink()
    small.runner.run("tuning", only="lightgcn")
    (anew,) = (line for line in small.lines("tuning") if line["key"] == known)
    for name in ("validation", "best_epoch", "epochs", "reason", "fingerprint", "settings"):
        assert anew[name] == line[name]


def test_failed_trial_is_recorded_and_never_wins(tmp_path: Path) -> None:
    diverges = "{ layers = 60, learning_rate = 10.0 }"
    text = 'title = "T"' + trial_grid('["dgcf-chp"]', QUICK, f"[{diverges}, {{ layers = 1 }}]")
    workspace = make_workspace(tmp_path, tuning=text)
    tally = workspace.runner.run("tuning")
    assert (len(tally.done), tally.missing) == (2, {})
    failed, trained = workspace.lines("tuning")
    assert (failed["validation"], trained["varied"]["layers"]) == (None, 1)
    assert "is not finite in epoch" in failed["reason"]
    assert recipe_of(workspace, "small/dgcf-chp.toml")["layers"] == 1
    assert workspace.runner.run("tuning").done == []
    workspace.write("tuning", text.replace(", { layers = 1 }", ""))
    (tmp_path / "recipes" / "small" / "dgcf-chp.toml").unlink()
    notes = Notes()
    workspace.runner.run("tuning", progress=notes)
    (sentence,) = notes.texts
    assert sentence.startswith("no candidate for small/dgcf-chp.toml could be trained")
    assert not (tmp_path / "recipes" / "small" / "dgcf-chp.toml").exists()


def test_trials_need_a_validation_part(small: Workspace) -> None:
    before = load(small.root / "data" / "small")
    nothing = np.array([], dtype=np.int32)
    replaced(small, validation=Pairs.from_indices(nothing, nothing, before.n_users, before.n_items))
    with pytest.raises(ConfigError, match="decides on validation, and small has none"):
        small.runner.run("tuning")


# -- a dataset without validation -------------------------------------------------------------------------------------


def test_dataset_without_validation_takes_settings_and_epochs(small: Workspace) -> None:
    carved = load(small.root / "data" / "small")
    nothing = Pairs.from_indices(*(np.array([], dtype=np.int32),) * 2, carved.n_users, carved.n_items)
    whole = replace(carved, train=carved.train.union(carved.validation), validation=nothing)
    whole.save(small.root / "data" / "whole")
    path = small.root / "recipes" / "reproduce" / "data.toml"
    about = f'title = "W"\nknown = "planted"\nfamily = "whole"\nseeds = 1\nfingerprints = ["{whole.fingerprint}"]\n'
    path.write_text(path.read_text() + f'[whole]\n{about}settings_of = "small"\n')
    small.write("table1", FIRST.replace('"small"', '"small", "whole"'))
    assert small.runner.run("all", only="bpr-mf", seeds=1).missing == {}
    decided, fixed = recipe_of(small, "small/bpr-mf.toml"), recipe_of(small, "whole/bpr-mf.toml")
    best, trained, without = (
        next(line for line in lines if line["data"]["name"] == name and line["settings"]["learning_rate"] == 0.05)
        for name, lines in (
            ("small", small.lines("tuning")),
            *((one, small.lines("table1")) for one in ("small", "whole")),
        )
    )
    assert {**decided, "epochs": best["best_epoch"], "min_epochs": 0, "patience": 0} == fixed
    assert trained["best_epoch"] == best["best_epoch"] == without["epochs"]
    assert without["validation"] == {}
    assert "without validation" in (small.root / "recipes" / "whole" / "bpr-mf.toml").read_text()
    path.write_text(path.read_text().replace('settings_of = "small"', 'settings_of = "smal"'))
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        Recipes.read(small.root / "recipes")
    path.write_text(path.read_text().replace('settings_of = "smal"', 'settings_of = "whole"'))
    with pytest.raises(ConfigError, match="takes its own settings"):
        Recipes.read(small.root / "recipes")


@pytest.mark.parametrize("used", [("small", "whole"), ("whole",), ()])
def test_settings_file_names_the_cells_that_use_it(tmp_path: Path, used: tuple[str, ...]) -> None:
    workspace = make_workspace(tmp_path, tuning=TUNING.replace('"bpr-mf", ', ""))
    path = tmp_path / "recipes" / "reproduce" / "data.toml"
    about = path.read_text()
    whole = about.replace("[small]", "[whole]").replace('family = "small"', 'family = "whole"')
    path.write_text(f'{about}validation_of = "planted"\n{whole}settings_of = "small"\n')
    if used:
        workspace.write("table1", FIRST.replace('"bpr-mf", ', "").replace('["small"]', json.dumps(used)))
    workspace.runner.run("tuning")
    by, *_, only = (
        (tmp_path / "recipes" / "small" / "lightgcn.toml").read_text().splitlines()[2].split(": dgcf reproduce ")
    )
    name, _, pattern = only.partition(" --only ")
    (first, *_) = CellFilter(name, shlex.split(pattern)[0]).cells(workspace.recipes)
    assert first.source.name == (used or ("small",))[0]
    assert (
        by
        == {
            ("small", "whole"): "# Use it by",
            ("whole",): "# It is used on whole, for that many epochs, by",
            (): "# It was tried by",
        }[used]
    )


# -- a bare machine, and what is shown --------------------------------------------------------------------------------


def test_tuning_needs_only_numpy_scipy_torch_and_safetensors(small: Workspace) -> None:
    script = f"""
        import sys
        for name in ("duckdb", "pydantic", "typer", "rich", "pandas", "matplotlib", "optuna", "implicit"):
            sys.modules[name] = None
        from dgcf.experiments.reproduce.__main__ import main
        sys.exit(main(["tuning", "--only", "small:*:bpr-mf:*", *{small.words!r}]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["done"]) == 3
    assert "bpr-mf.toml is written." in done.stderr
    assert "validation recall@20 0." in done.stderr
    assert resolved(recipe_of(small, "small/bpr-mf.toml")).train.learning_rate == 0.05


def test_tuning_table_shows_candidates_and_winner(small: Workspace) -> None:
    small.write("paper", "")
    small.runner.run("tuning", only="bpr-mf")
    (view,) = views(small.recipes, small.store, "tuning")
    text = Page(view).block("")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[0:7] == "| small"
    ]
    loop = LOOP.replace(" = ", " ").replace("_", r"\_")
    assert rows[0][:4] == ["small/bpr-mf.toml", "bpr-mf", f"{loop}, learning\\_rate 0.05", "3"]
    best = max(line["validation"]["recall@20"] for line in small.lines("tuning"))
    assert rows[0][4] == f"{best:.4f}"
    assert rows[1][:6] == ["small/lightgcn.toml", "lightgcn", "–", "0 of 4", "–", "–"]
    assert "- Another one was tuned elsewhere." in text
    small.write("tuning", TUNING.replace("candidates = [", "candidates = [{ learning_rate = 0.01 }, "))
    added, _ = (
        line
        for line in Page(views(small.recipes, small.store, "tuning")[0]).block("").splitlines()
        if "| small" in line
    )
    state = "stands from before; 3 of 4 candidates are recorded"
    assert added.startswith(f"| small/bpr-mf.toml | bpr-mf | {state} | 3 of 4 | – | – |")


# -- the recorded trials ----------------------------------------------------------------------------------------------


def test_settings_files_follow_from_recorded_trials(tmp_path: Path) -> None:
    """Writing the decided settings again gives the committed files."""
    recipes, store = Recipes.read(PROJECT / "recipes"), Store(PROJECT / "results")
    trials, index = recipes.experiment("tuning").trials, store.index(["tuning"])
    decided = [one for one in decisions(trials, index) if one.winner]
    for path in write_decisions(replace(recipes, folder=tmp_path), trials, index, lambda _: None):
        committed = PROJECT / "recipes" / path.relative_to(tmp_path)
        assert path.read_text().splitlines()[:2] == committed.read_text().splitlines()[:2]
        written, kept = read_toml(path), read_toml(committed)
        assert resolved(written) == resolved(kept)
    assert all((tmp_path / one.file).is_file() for one in decided)


def test_commands_in_settings_files_match_cells() -> None:
    recipes, named = Recipes.read(PROJECT / "recipes"), 0
    for path in (PROJECT / "recipes").glob("*/*.toml"):
        for name, pattern in re.findall(r"^# .*: dgcf reproduce (\S+) --only '(.*)'$", path.read_text(), re.MULTILINE):
            assert CellFilter(name, pattern).cells(recipes), path
            named += 1
    assert named >= 3

"""``dgcf reproduce`` on the command line: cells are computed, resumed and rendered; errors are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dgcf.cli import application
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import make_workspace

TABLE3 = 'title = "Table 3"\n[[grid]]\nkind = "statistics"\ndata = ["small"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose only experiment is Table 3, on the planted dataset."""
    workspace = make_workspace(tmp_path, table3=TABLE3)
    text = (tmp_path / "recipes" / "reproduce" / "data.toml").read_text()
    from dgcf.data import load

    workspace.write("data", text.replace(load(tmp_path / "data" / "small").fingerprint, load("planted").fingerprint))
    workspace.write("paper", "[table3]\nsmall = [1, 2, 0.5, 3, 4, 5]\n")
    return tmp_path


def invoke(project: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(application(), ["reproduce", *map(str, words), "--project", str(project)])


def test_cell_is_computed_once_and_rendered(project: Path) -> None:
    first = invoke(project, "table3", "--json")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout) == {
        "experiment": "table3",
        "known": [],
        "taken_over": [],
        "done": ["small:statistics"],
        "missing": {},
    }
    again = invoke(project, "table3", "--json")
    assert json.loads(again.stdout)["known"] == ["small:statistics"]
    assert len((project / "results" / "table3.jsonl").read_text().splitlines()) == 1
    (project / "docs").mkdir()
    (project / "docs" / "reproduction.md").write_text("Ours.\n<!-- generated: table3 -->\n<!-- end: table3 -->\n")
    rendered = invoke(project, "table3", "--render", "--json")
    assert rendered.exit_code == 0, rendered.stderr
    written = [Path(path).name for path in json.loads(rendered.stdout)["written"]]
    assert written == ["table3.md", "table3.tex", "reproduction.md"]
    page = (project / "docs" / "reproduction.md").read_text()
    assert page.startswith("Ours.\n<!-- generated: table3 -->\n**The datasets**")
    assert "(1)" in page


def test_reused_results_are_shown_and_counted(project: Path) -> None:
    small = 'data = ["small"]\nmodels = ["bpr-mf"]\nsettings = ["paper"]\nset = { epochs = 1, dim = 4 }\nseeds = 1\n'
    for name in ("one", "two"):
        (project / "recipes" / "reproduce" / f"{name}.toml").write_text(f'title = "T"\n[[grid]]\n{small}')
    assert invoke(project, "one").stdout == "cells: 1 computed, 0 recorded before, 0 missing\n"
    again = invoke(project, "two")
    assert again.stdout == "cells: 0 computed, 1 taken over from other cells, 0 recorded before, 0 missing\n"
    assert again.stderr.splitlines()[-1].startswith("two small:bpr-mf:paper:epochs=1:dim=4:seed=0  recall@20 ")
    assert again.stderr.endswith("  taken over from one\n")
    known = json.loads(invoke(project, "all", "--only", "bpr-mf", "--json").stdout)["known"]
    assert known == [f"{name} small:bpr-mf:paper:epochs=1:dim=4:seed=0" for name in ("one", "two")]


def test_render_lists_missing_cells_and_exits_with_1(project: Path) -> None:
    done = invoke(project, "table3", "--render")
    assert done.exit_code == 1
    assert "table3.md" in done.stdout
    assert done.stderr == "missing: table3 small:statistics (not computed yet)\n"


def test_prepare_writes_datasets(project: Path, tmp_path: Path) -> None:
    done = invoke(project, "table3", "--prepare", tmp_path / "prepared", "--json")
    assert json.loads(done.stdout) == {"prepared": [str(tmp_path / "prepared" / "small")]}
    assert (tmp_path / "prepared" / "small" / "dataset.json").is_file()
    assert "is there already" in invoke(project, "table3", "--prepare", tmp_path / "prepared").stderr


def test_prepare_writes_only_the_selected_datasets(project: Path, tmp_path: Path) -> None:
    file = project / "recipes" / "reproduce" / "data.toml"
    file.write_text(file.read_text() + file.read_text().replace("[small]", "[other]"))
    (project / "recipes" / "reproduce" / "table3.toml").write_text(TABLE3.replace('"small"', '"small", "other"'))
    both = json.loads(invoke(project, "table3", "--prepare", tmp_path / "a", "--json").stdout)
    assert [Path(path).name for path in both["prepared"]] == ["small", "other"]
    one = json.loads(invoke(project, "all", "--only", "other", "--prepare", tmp_path / "b", "--json").stdout)
    assert [Path(path).name for path in one["prepared"]] == ["other"]
    none = invoke(project, "table3", "--only", "nothing", "--prepare", tmp_path / "c")
    assert none.stderr.startswith("error: table3 has no cell 'nothing'; give any part of a cell's name, such as small")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tabel3",), "there is no experiment 'tabel3'; did you mean 'table3'?"),
        (("table3", "--only", "elsewhere"), "table3 has no cell 'elsewhere'"),
        (("table3", "--render", "--only", "small"), "--render uses all recorded results; leave out --only."),
        (("table3", "--device", "tpu"), "device 'tpu' cannot be used here"),
        (("table3", "--data-home", "nowhere"), "--data-home nowhere is not a folder"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_in_one_sentence(project: Path, words: tuple[str, ...], sentence: str) -> None:
    done = invoke(project, *words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {sentence}")
    assert done.stderr.count("\n") == 1
    assert not (project / "results").exists()


def test_missing_recipes_suggest_the_project_option(tmp_path: Path) -> None:
    done = invoke(tmp_path, "table3")
    assert done.exit_code == 2
    assert "run it in the project's folder, or name that with --project." in done.stderr


def test_missing_dataset_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGCF_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("dgcf.data.catalog.fetch", _no_network)
    (tmp_path / "recipes").symlink_to(PROJECT / "recipes")
    done = invoke(tmp_path, "table3", "--only", "gowalla")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "error: deoscirec/gowalla is not here."


def _no_network(name: str, *_: object) -> None:
    from dgcf.errors import DataError

    raise DataError(f"{name} is not here.")

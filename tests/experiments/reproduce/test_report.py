"""What is drawn: the right numbers in the right places, what is missing by name, and pages that are up to date."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dgcf.config import read_toml
from dgcf.errors import DataError
from dgcf.experiments.reproduce import IDS
from dgcf.experiments.reproduce.cells import Cell
from dgcf.experiments.reproduce.measures import BINS, METRICS, PATCH
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.report.composed import composed
from dgcf.experiments.reproduce.report.pages import (
    REPORT,
    SECTIONS,
    Page,
    fill,
    missing_notes,
    readme_block,
    recorded_note,
    views,
    write,
)
from dgcf.experiments.reproduce.report.view import View
from dgcf.experiments.reproduce.results import Store
from tests.conftest import PROJECT
from tests.experiments.reproduce.workspace import make_workspace

PAPER = read_toml(PROJECT / "recipes" / "reproduce" / "paper.toml")
LAYERS = 2


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return Recipes.read(PROJECT / "recipes")


def invented(cell: Cell) -> dict[str, Any]:
    """Return a result whose recall depends on the cell: .3, more for DGCF, and a bit for each seed and layer."""
    line: dict[str, Any] = {
        "experiment": cell.experiment,
        "key": cell.key,
        "kind": cell.kind,
        "fingerprint": cell.fingerprint,
        "data": {"name": cell.source.name},
        "label": cell.model,
        "settings_from": cell.settings,
        "seed": cell.seed,
        "seconds": 2.0,
        "hardware": {"device": "cpu", "cpu": "a processor", "cores": 2},
    }
    if cell.kind == "trial":
        return {**line, "validation": {METRICS[0]: 0.3}, "best_epoch": 5}
    if cell.kind != "trained":
        return {**line, "computed": COMPUTED[cell.kind](cell)}
    recall = 0.3 + 0.01 * (cell.model == "dgcf") + 0.001 * (cell.seed or 0) + 1e-4 * int(cell.varied.get("layers", 0))
    test = dict(zip(METRICS, (recall, recall / 2), strict=True))
    counts = np.eye(BINS, dtype=int).tolist()
    histogram = {"counts": counts, "log_degree": [0, 1], "inverse_alpha": [1, 2]}
    return {
        **line,
        "test": {"train": test, "train+validation": {name: value + 0.01 for name, value in test.items()}},
        "validation": test,
        "epochs": 10,
        "best_epoch": 5,
        "measures": {
            "curve": {"epochs": [5, 10], "loss": [0.5, 0.4], "validation": [0.2, 0.1]},
            "groups": [{"at_most": most, "users": 9, **test} for most in PAPER["density"]["bounds"]],
            "gates": {"users": 0.6, "items": 0.8, "layers": [{"users": 0.6, "items": 0.8}] * LAYERS},
            "gate-histogram": {"users": histogram, "items": histogram},
            "pattern": {"rule": "some nodes", "layers": [np.eye(PATCH).tolist()] * LAYERS},
            "smoothness": {"users": 100.0, "items": 200.0},
        },
    }


def _walks(cell: Cell) -> dict[str, Any]:
    walk = {"two_limits": False, "claim": "one limit", "limit_error": 1e-9, "gap_limit_exact": 0.0, "condition": None}
    walk |= {"within_bound": True, "decay_per_step": 0.9, "flip_per_step": 0.8, "settled": True, "gaps": [1.0, 0.1]}
    return {"walks": {"L": walk | {"two_limits": True, "condition": 0.2, "claim": "two limits"}, "L+Lc": walk}}


def _paired(cell: Cell) -> dict[str, Any]:
    return {metric: {"p_permutation": 1e-4, "p_seeds": 1e-3} for metric in METRICS}


COMPUTED: dict[str, Callable[[Cell], dict[str, Any]]] = {
    "statistics": lambda cell: {
        **dict.fromkeys(("users", "items", "train", "validation", "test"), 1234),
        "density": 0.5,
        "leaks": dict.fromkeys(("train_validation", "train_test", "validation_test"), 0),
        "duplicates": {"train": 77},
        "popularity": {"train": 12.3, "validation": 23.4, "test": None},
    },
    "edges": lambda cell: {"direct_edges": 10, "cross_edges": 5, "ratio": 2.0},
    "epochs": lambda cell: {"seconds_per_epoch": 0.5},
    "walks": _walks,
    "comparison": _paired,
}


@pytest.fixture(scope="module")
def full(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Results of every cell."""
    store = Store(tmp_path_factory.mktemp("results"))
    for name, experiment in recipes.experiments.items():
        text = "".join(json.dumps(invented(cell)) + "\n" for cell in experiment.cells)
        store.path(name).write_text(text)
    return store


def markdown(view: View) -> str:
    return Page(view).block("")


def test_every_experiment_has_a_section() -> None:
    assert tuple(SECTIONS) == IDS


@pytest.mark.parametrize("name", IDS)
def test_complete_results_render_without_missing_cells(name: str, recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, name)
    assert view.missing == {}
    files = {Path(file).suffix: content for file, content in Page(view).files().items()}
    markdown, latex = files[".md"].decode(), files[".tex"].decode()
    assert "Missing" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|") and "0.3" in line]
    if name != "composed":  # a row is not tested against itself
        assert "–" not in "".join(rows)[:60]
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    tables = re.split(r"\n\n", markdown)
    for table in (part for part in tables if part.startswith("|")):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table
    assert latex.count("{") == latex.count("}")
    assert latex.count(r"\toprule") == latex.count(r"\end{table}") == sum(part.startswith("|") for part in tables)
    assert rows or name == "pattern"
    assert (".png" in files) == (".svg" in files) == (f"]({name}.png)" in markdown)
    if ".png" in files:
        assert files[".png"].startswith(b"\x89PNG")
        assert ET.fromstring(files[".svg"]).tag.endswith("svg")


def test_rendering_is_deterministic(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "layers")
    assert Page(view).files() == Page(view).files()


def test_a_row_of_the_composed_ranking_counts_only_its_own_cells(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "composed")
    caption, table = composed(view).tables[0]
    rows = {(row[0].text, row[1].text): row[2].text for row in table.rows}
    assert "928" in caption
    assert rows["bpr-mf, tuned", "none"] == rows["bpr-mf, tuned", "auto"] == "5"


@pytest.mark.parametrize("name", IDS)
def test_all_cells_are_missing_without_results(name: str, recipes: Recipes, tmp_path: Path) -> None:
    (view,) = views(recipes, Store(tmp_path / "none"), name)
    experiment = recipes.experiment(name)
    assert list(view.missing) == [cell.key for cell in experiment.cells]
    files = Page(view).files()
    assert list(files) == [f"{name}.md", f"{name}.tex"]
    text = files[f"{name}.md"].decode()
    cells = len(experiment.cells)
    assert f"Missing: {cells:,} of {cells:,} cell{'s' * (cells > 1)}: " in text
    first = experiment.cells[0]
    assert first.source.name in text.partition("Missing: ")[2]
    assert sum(view.missing_groups.values()) == cells


def test_missing_note_names_groups_and_counts_the_rest(recipes: Recipes, tmp_path: Path) -> None:
    (view,) = views(recipes, Store(tmp_path), "table1")
    (note,) = missing_notes(view)
    named = note.partition(" cells: ")[2].partition(" and ")[0].split(", ")
    assert named[0] == "ml-100k:bpr-mf:tuned (5)"
    assert len(named) == 6
    rest = len(view.missing) - sum(int(name.partition(" (")[2].rstrip(")")) for name in named)
    assert note.endswith(f" and {rest:,} more.")
    (view,) = views(recipes, Store(tmp_path), "tuning")
    (note,) = missing_notes(view)
    assert "=" not in note  # what was tried is not listed
    assert len(note) < 400


def test_table_1_shows_ours_paper_and_difference(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "table1")
    text = markdown(view)
    row = next(
        line for line in text.split("**ML1M: the paper's own settings**")[1].splitlines() if "| lightgcn" in line
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    mean, std = 0.302, np.std([0.300, 0.301, 0.302, 0.303, 0.304], ddof=1)
    assert cells[:6] == ["lightgcn", "5", f"{mean:.4f} ± {std:.4f}\\*", "0.2888", "+0.0132", f"{16 * 1e-4:.2g}"]
    assert cells[6:9] == [f"{mean / 2:.4f} ± {std / 2:.4f}\\*", "0.2334", "−0.0824"]
    assert cells[-2] == f"{mean + 0.01:.4f} ± {std:.4f}"
    assert "**0.3120 ± 0.0016**" in text  # DGCF, the best


def test_tuned_cells_one_percent_below_the_paper_are_named(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "table1")

    def note(recall: float, ndcg: float) -> str:
        means = [view.mean(metric, data="ml-1m", model="lightgcn", settings="tuned") for metric in METRICS]
        printed = [mean.mean * share for mean, share in zip(means, (recall, ndcg), strict=True) if mean is not None]
        seen = replace(view, paper={"table1": {"ml-1m": {"lightgcn": printed}}})
        return next(line for line in markdown(seen).splitlines() if "below what is printed" in line)

    assert "none of what is trained" in note(1.005, 0.9)
    assert re.search(r"1 % below what is printed: ml-1m lightgcn recall@20 0\.\d{4} \(0\.\d{4}\)\.$", note(1.02, 1.005))
    assert re.search(r"printed: ml-1m lightgcn recall@20 .*; ml-1m lightgcn ndcg@20 .*\.$", note(1.02, 1.02))


def test_mean_ignores_a_missing_seed_and_names_it(recipes: Recipes, full: Store, tmp_path: Path) -> None:
    lines = full.lines("table2")
    lost = "ml-1m:dgcf:paper:readout=last:layers=3:seed=4"
    kept = Store(tmp_path / "results")
    for line in lines:
        if line["key"] != lost:
            kept.append("table2", line)
    (view,) = views(recipes, kept, "table2")
    assert list(view.missing) == [lost]
    text = markdown(view)
    assert f"Missing: 1 of {len(lines)} cells: {lost}." in text
    spread = view.mean("recall@20", model="dgcf", layers=3)
    assert spread is not None
    assert spread.mean == pytest.approx(0.31 + 3e-4 + 0.0015)


def test_single_row_is_not_marked_best(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "table1")
    text = markdown(view)
    alone = text.split("**ML1M: the authors' code, read literally**")[1].split("\n\n")[1]
    assert "0.3120 ± 0.0016" in alone
    assert "**" not in alone


def test_table_3_shows_popularity_of_each_split(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "table3")
    assert "| ML1M | 12.3 | 23.4 | – |" in markdown(view)


def test_parts_table_has_every_combination_once(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "parts")
    tables = markdown(view).split("**")[2::2]
    shown = [
        [line.split(" | ")[:3] for line in table.splitlines() if re.match(r"\| (yes|no) ", line)] for table in tables
    ]
    for rows in shown:
        assert len({tuple(row) for row in rows}) == len(rows)
    assert len(shown[0]) == 8
    assert 5 * sum(map(len, shown)) == len(view.cells())  # nothing is left out, and nothing is empty


def test_shallow_model_is_compared_at_its_own_depths(recipes: Recipes, full: Store) -> None:
    (view,) = views(recipes, full, "oscillation-diff")
    rows = {line.split(" | ")[0].strip("| "): line for line in markdown(view).splitlines() if " to " in line}
    assert len(rows) == 7
    assert "| ngcf | 1 to 9 | 10 | 0.0" in rows["ngcf"]
    assert "| lightgcn | 1 to 12 | 10 | 0.0" in rows["lightgcn"]
    assert "–" not in rows["ngcf"] + rows["lightgcn"]


def test_counts_of_one_are_singular(recipes: Recipes, full: Store) -> None:
    for name in IDS:
        page = Page(views(recipes, full, name)[0])
        for text in (page.block(""), page.latex()):
            assert re.findall(r"(?<![\d.,])1 [a-z]+s\b", text) == [], name


def test_no_row_is_marked_best_while_one_is_missing(recipes: Recipes, full: Store, tmp_path: Path) -> None:
    kept = Store(tmp_path)
    for line in full.lines("table1"):
        if not line["key"].startswith("ml-1m:gcn:paper"):
            kept.append("table1", line)
    (view,) = views(recipes, kept, "table1")
    heading = "**ML1M: the paper's own settings**"
    lacking = markdown(view).split(heading)[1].split("\n\n")[1]
    assert "| gcn | 0 of 5 | – |" in lacking
    assert "**" not in lacking
    (view,) = views(recipes, full, "table1")
    assert "**" in markdown(view).split(heading)[1].split("\n\n")[1]


@pytest.mark.parametrize("deviation", [0.0016, 0.2])
def test_error_bars_are_inside_the_axes(recipes: Recipes, full: Store, tmp_path: Path, deviation: float) -> None:
    spread = Store(tmp_path)
    for line in full.lines("epsilon"):
        shift = deviation * (line["seed"] - 2)
        test = dict.fromkeys(METRICS, 0.5 + shift / 2)
        spread.append("epsilon", {**line, "test": dict.fromkeys(line["test"], test)})
    figure = Figure()
    (view,) = views(recipes, spread, "epsilon")
    chapter = Page(view).section
    assert chapter.draw is not None
    chapter.draw(figure)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ends = [y for lines in axes.collections for segment in lines.get_segments() for _, y in segment]
        assert ends
        assert low <= min(ends) < max(ends) <= high


def test_experiment_without_a_section_gets_general_tables(tmp_path: Path) -> None:
    grid = '[[grid]]\ndata = ["small"]\nmodels = ["bpr-mf"]\nsettings = ["paper"]\nset = { epochs = 2, dim = 4 }\n'
    counted = '[[grid]]\nkind = "statistics"\ndata = ["small"]\n'
    tried = 'kind = "trial"\ndecides = "tuned"\ncandidates = [{}, { learning_rate = 0.1 }]\n'
    workspace = make_workspace(
        tmp_path,
        mine=f'title = "Mine"\nnotes = ["Noted."]\n{grid}{counted}',
        other=f'title = "Other"\n{grid}sweep = {{ l2 = [0.0, 0.1] }}\n',
        tries=f'title = "Tries"\n{grid}{tried}',
    )
    workspace.write("paper", "")
    workspace.runner.run("all", only="dim=4:seed=0")
    workspace.runner.run("mine", only="statistics")
    (tmp_path / "README.md").write_text("Ours.\n<!-- generated: results -->\n<!-- end: results -->\n")
    rendered = write(workspace.recipes, workspace.store, "all", tmp_path)
    assert [path.name for path in rendered.written] == [
        f"{name}.{form}" for name in workspace.recipes.experiments for form in ("md", "tex")
    ]
    text = (tmp_path / "docs" / "reproduction" / "mine.md").read_text()
    recall = workspace.store.lines("mine")[0]["test"]["train"]["recall@20"]
    assert f"| small | bpr-mf | paper | epochs 2, dim 4 | 1 of 2 | {recall:.4f} |" in text
    assert "| small | – | – | – | users 120, items 60, " in text
    assert "- Noted." in text
    other = (tmp_path / "docs" / "reproduction" / "other.md").read_text()
    assert "| small | bpr-mf | paper | epochs 2, dim 4, l2 0.1 | 0 of 2 | – | – |" in other
    assert "- Missing: 4 of 4 cells: small:bpr-mf:paper:epochs=2:dim=4:l2=0.0 (2), " in other.replace("\\", "")
    assert (
        "| small/bpr-mf.toml | bpr-mf | – | 1 of 2 |" in (tmp_path / "docs" / "reproduction" / "tries.md").read_text()
    )


def test_no_file_is_written_if_a_page_fails(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, mine='title = "Mine"\n[[grid]]\nkind = "statistics"\ndata = ["small"]\n')
    workspace.write("paper", "")
    report = tmp_path / REPORT
    report.parent.mkdir()
    report.write_text("<!-- generated: mine -->\n")
    with pytest.raises(DataError, match="write both marks once"):
        write(workspace.recipes, workspace.store, "mine", tmp_path)
    assert [path.name for path in report.parent.iterdir()] == [report.name]


def test_report_counts_recorded_cells_until_complete(recipes: Recipes, full: Store, tmp_path: Path) -> None:
    assert recorded_note(views(recipes, full, "all")) == ""
    cells = sum(len(experiment.cells) for experiment in recipes.experiments.values())
    full_but_one = Store(tmp_path)
    for name in recipes.experiments:
        lines = full.lines(name)[: -1 if name == "theory" else None]
        full_but_one.path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert recorded_note(views(recipes, full_but_one, "all")).startswith(
        f"{cells - 1:,} of {cells:,} cells are recorded"
    )


def test_result_with_other_settings_counts_as_missing(recipes: Recipes, full: Store, tmp_path: Path) -> None:
    stale = Store(tmp_path)
    for line in full.lines("loss-curve"):
        stale.append("loss-curve", {**line, "fingerprint": "of other settings"})
    assert len(views(recipes, stale, "loss-curve")[0].missing) == 5


def test_paper_numbers_match_the_paper() -> None:
    table1 = {
        "bpr-mf": (".2653 .2149", ".0762 .0588", ".1371 .1126", ".2894 .1907"),
        "gcn": (".2628 .2086", ".0701 .0569", ".1426 .1161", ".3025 .1919"),
        "gcn-jk": (".2723 .2184", ".0611 .0490", ".1335 .1095", ".3086 .1917"),
        "gc-mc": (".2611 .2069", ".0578 .0475", ".1181 .0967", ".2966 .1883"),
        "ngcf": (".2693 .2164", ".1117 .0886", ".1485 .1196", ".3146 .1978"),
        "lightgcn": (".2888 .2334", ".1130 .0893", ".1584 .1309", ".3399 .2137"),
        "dgcf": (".3075 .2501", ".1351 .1083", ".1707 .1384", ".3536 .2290"),
        "dgcf-chp": (".2975 .2420", ".1241 .0991", ".1657 .1344", ".3368 .2159"),
        "dgcf-la": (".2967 .2425", ".1289 .1030", ".1653 .1350", ".3385 .2181"),
    }
    for model, columns in table1.items():
        for data, numbers in zip(("ml-1m", "amazon", "gowalla", "ml-100k"), columns, strict=True):
            assert PAPER["table1"][data][model] == [float(number) for number in numbers.split()]
    assert set(PAPER["table1"]) == {"ml-1m", "amazon", "gowalla", "ml-100k"}
    table2 = {
        "gcn": ".2589 .2577 .2332 .2628",
        "gc-mc": ".2574 .2602 .2328 .2646",
        "ngcf": ".2107 .2111 .1767 .1759",
        "lightgcn": ".2930 .2844 .2543 .1968",
        "dgcf": ".3037 .3041 .3027 .3012",
        "dgcf-chp": ".2961 .2983 .2943 .3011",
        "dgcf-la": ".2994 .3040 .3031 .3019",
    }
    assert PAPER["table2"] == {model: [float(number) for number in row.split()] for model, row in table2.items()}


# -- pages ------------------------------------------------------------------------------------------------------------


def test_fill_replaces_only_marked_blocks() -> None:
    page = (
        "by hand\n<!-- generated: a -->\nold\n<!-- end: a -->\nalso by hand\n<!-- generated: b -->\n<!-- end: b -->\n"
    )
    once = fill(page, {"a": "new\n"}, "a page")
    assert once == page.replace("old", "new")
    assert fill(once, {"a": "new"}, "a page") == once
    with pytest.raises(DataError, match="a page does not open and end a with one mark each"):
        fill(page.replace("<!-- end: a -->", ""), {"a": "new"}, "a page")


def test_report_and_readme_are_up_to_date(recipes: Recipes) -> None:
    """`dgcf reproduce all --render` would change nothing."""
    shown = views(recipes, Store(PROJECT / "results"), "all")
    report, readme = (PROJECT / REPORT).read_text(), (PROJECT / "README.md").read_text()
    blocks = {view.experiment.name: Page(view).block("reproduction/") for view in shown}
    assert re.findall(r"<!-- generated: (\S+) -->", report) == ["recorded", *IDS]
    assert fill(report, {**blocks, "recorded": recorded_note(shown)}, REPORT) == report
    assert fill(readme, {"results": readme_block(shown)}, "README.md") == readme
    assert "<!-- generated: results -->" in readme
    for name, text in blocks.items():
        stored = (PROJECT / "docs" / "reproduction" / f"{name}.md").read_text()
        assert stored.partition("\n\n")[2] == text.replace("](reproduction/", "](")

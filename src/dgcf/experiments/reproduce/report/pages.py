"""Documents from results: each experiment as Markdown, LaTeX and a picture, the report, and the README's results.

Nothing is computed here: cells that are not recorded are shown as missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from dgcf.config import read_toml
from dgcf.errors import ArtifactError, DataError
from dgcf.experiments.plots import refuse_without_matplotlib
from dgcf.experiments.report import Table, latex_table, latex_text, markdown_table, markdown_text
from dgcf.experiments.reproduce.cells.computed import REFERENCE
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.report import composed, extra_tables, figures, tables
from dgcf.experiments.reproduce.report.view import MISSING, Section, View
from dgcf.experiments.reproduce.results import Store
from dgcf.files import atomic_file
from dgcf.text import counted

REPORT, FOLDER = "docs/reproduction.md", "docs/reproduction"
_SECTIONS: Sequence[Callable[[View], Section]] = (
    *(extra_tables.tuning, tables.table1, tables.table2, tables.table3, tables.table4),
    *(figures.loss_curve, figures.layers, figures.oscillation_diff, figures.correlation, figures.pattern),
    *(figures.depth, figures.density, figures.drop_edge, figures.epsilon, tables.time, figures.theory),
    *(extra_tables.best, composed.composed, extra_tables.lightgcn_gowalla, extra_tables.parts),
)
SECTIONS = {section.__name__.replace("_", "-"): section for section in _SECTIONS}
"""The functions of the experiments that have a section of their own, by experiment."""
LISTED = 6
"""The number of groups of missing cells that a page names; it counts the rest."""
README_EXPERIMENT = "composed"
"""The experiment that the README shows."""
SHORT = {
    "ml-100k": "ML-100K (928)",
    "ml-100k-779": "ML-100K (779)",
    "ml-1m": "ML1M",
    "gowalla": "Gowalla",
    "amazon": "Amazon",
    "lightgcn-gowalla-whole": "LightGCN's Gowalla",
}
"""The datasets that the README shows, and their names there."""


def views(recipes: Recipes, store: Store, name: str) -> list[View]:
    """Return the experiment ``name``, or with ``all`` every one, with its recorded results."""
    paper = read_toml(recipes.folder / "reproduce" / "paper.toml")
    index = store.index(recipes.experiments)
    return [View(one, index, paper, recipes.folder) for one in recipes.named(name)]


@dataclass(frozen=True)
class Page:
    """The files of an experiment; its section is made once for all of them."""

    view: View

    @property
    def name(self) -> str:
        return self.view.experiment.name

    @cached_property
    def section(self) -> Section:
        """Its own section, or the general one, with notes on the hardware and on missing cells."""
        with self._format_errors():
            section = SECTIONS.get(self.name, extra_tables.general)(self.view)
            hardware = self.view.hardware_note() if section.hardware else []
            return replace(section, notes=[*section.notes, *hardware, *missing_notes(self.view)])

    @contextmanager
    def _format_errors(self) -> Iterator[None]:
        """Turn errors over unexpected fields of computed results into one that names the experiment."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as problem:
            raise ArtifactError(
                f"results of {self.name} do not have the expected fields ({type(problem).__name__}: {problem}); "
                "restore their file from a copy, or compute them again."
            ) from problem

    @property
    def pictured(self) -> bool:
        return self.section.draw is not None and bool(self.view.recorded)

    def files(self) -> dict[str, bytes]:
        """Return ``ID.md`` and ``ID.tex``, and ``ID.png`` and ``ID.svg`` if there is something to draw."""
        text = f"# {self.view.experiment.title}\n\n{self.block('')}"
        files = {f"{self.name}.md": text.encode(), f"{self.name}.tex": self.latex().encode()}
        if self.pictured:
            with self._format_errors():
                pictures = draw(self.section)
            files |= {f"{self.name}.{form}": content for form, content in pictures.items()}
        return files

    def block(self, folder: str) -> str:
        """Return the Markdown without the title; ``folder`` is the path to the picture."""
        title, parts = self.view.experiment.title, []
        if self.pictured:
            parts.append(f"![{title}]({folder}{self.name}.png)")
        for caption, table in self.section.tables:
            parts += [f"**{markdown_text(caption)}**", markdown_table(table)]
        parts.append("\n".join(f"- {markdown_text(note)}" for note in self.section.notes))
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self) -> str:
        """Return every table as LaTeX with ``booktabs``."""
        parts = [r"% Needs \usepackage{booktabs}."]
        for place, (caption, table) in enumerate(self.section.tables, start=1):
            caption = rf"\caption{{{latex_text(caption)}}}"
            parts += [r"\begin{table}", r"\centering", r"\small", latex_table(table), caption]
            parts += [rf"\label{{tab:{self.name}-{place}}}", r"\end{table}"]
        parts += [f"% {note}" for note in self.section.notes]
        return "\n".join(parts) + "\n"


def missing_notes(view: View) -> list[str]:
    """Return a note that names the missing cells without their seeds, and counts the rest."""
    missing, groups = len(view.missing), view.missing_groups
    if not missing:
        return []
    listed = [f"{name} ({count})" if count > 1 else name for name, count in list(groups.items())[:LISTED]]
    rest = sum(list(groups.values())[LISTED:])
    more = f" and {rest:,} more" if rest else ""
    return [f"Missing: {missing:,} of {counted(len(view.experiment.cells), 'cell')}: {', '.join(listed)}{more}."]


def draw(section: Section) -> dict[str, bytes]:
    """Return the picture as PNG and SVG; the same results give the same bytes of SVG."""
    refuse_without_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left

    assert section.draw is not None
    figure = Figure(figsize=section.size, layout="constrained")
    section.draw(figure)
    pictures = {}
    for form in ("png", "svg"):
        with rc_context({"svg.hashsalt": "dgcf"}), BytesIO() as content:
            figure.savefig(content, format=form, dpi=120, metadata={"Date": None} if form == "svg" else None)
            pictures[form] = content.getvalue()
    return pictures


# -- pages with generated parts ---------------------------------------------------------------------------------------


def fill(page: str, blocks: Mapping[str, str], where: str) -> str:
    """Return ``page`` with the text between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->`` replaced.

    A block without marks on the page is left out.
    """
    for name in re.findall(r"<!-- generated: (\S+) -->", page):
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            raise DataError(f"{where} does not open and end {name} with one mark each; write both marks once.")
        if name in blocks:
            head, _, rest = page.partition(start)
            page = f"{head}{start}\n{blocks[name].strip()}\n{end}{rest.partition(end)[2]}"
    return page


def recorded_note(shown: Sequence[View]) -> str:
    """Return how many cells are recorded; nothing if all are."""
    cells, missing = _counts(shown)
    if not missing:
        return ""
    return f"{cells - missing:,} of {cells:,} cells are recorded so far; each part below says what it lacks.\n"


def _counts(shown: Sequence[View]) -> tuple[int, int]:
    """Return the number of cells, and of those that are missing."""
    return sum(len(view.experiment.cells) for view in shown), sum(len(view.missing) for view in shown)


# -- the table of the README ------------------------------------------------------------------------------------------


def readme_block(shown: Sequence[View]) -> str:
    """Return the headline table, DGCF with item weights beside all else, and how many cells are recorded."""
    view = next(view for view in shown if view.experiment.name == README_EXPERIMENT)
    datasets = [data for data in view.names("data") if data in SHORT]
    printed = (view.paper["table1"].get(view.source(data).family, {}).get(REFERENCE) for data in datasets)
    paper = (MISSING if data is None else " / ".join(map(_short, data)) for data in printed)
    rows = [["dgcf, printed in the paper", *paper], *composed.headline(view, datasets)]
    table = markdown_table(Table.of(("model", *map(SHORT.__getitem__, datasets)), rows, 1))
    cells, missing = _counts(shown)
    recorded = f"{cells - missing:,} of {cells:,} cells" if missing else f"All {cells:,} cells"
    note = (
        "Recall@20 / NDCG@20 on test, train items masked, means over the seeds. Settings are chosen on validation; the "
        'models without "tuned" have their defaults. \\* DGCF with item weights is ahead with p < .05, paired over the '
        f"seeds, Holm's correction; without settings where the best ones are not recorded. {MISSING}: not "
        f"computed. {recorded} are recorded; "
        "[docs/reproduction.md](docs/reproduction.md) has all tables and figures, and `dgcf reproduce ID` makes them."
    )
    return f"{table}\n\n{note}\n"


def _short(value: float) -> str:
    """Return ``.3540``; no value here reaches 1."""
    return f"{value:.4f}".removeprefix("0")


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rendered:
    """The files that were written, and by experiment the missing cells with the reason."""

    experiment: str
    written: list[Path]
    missing: dict[str, dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "written": [str(path) for path in self.written]}


def write(recipes: Recipes, store: Store, name: str, project: Path) -> Rendered:
    """Write the files of an experiment, or with ``all`` of every one, and the generated parts of existing pages.

    Nothing is written before everything is rendered.
    """
    shown = views(recipes, store, name)
    pages = [Page(view) for view in shown]
    contents = {project / FOLDER / file: content for page in pages for file, content in page.files().items()}
    blocks = {page.name: page.block(f"{Path(FOLDER).name}/") for page in pages}
    if name == "all":
        blocks["recorded"] = recorded_note(shown)
    contents |= _filled(project / REPORT, blocks)
    if name == "all" and README_EXPERIMENT in {page.name for page in pages}:
        contents |= _filled(project / "README.md", {"results": readme_block(shown)})
    for path, content in contents.items():
        with atomic_file(path) as beside:
            beside.write_bytes(content)
    return Rendered(name, list(contents), {view.experiment.name: view.missing for view in shown if view.missing})


def _filled(path: Path, blocks: Mapping[str, str]) -> dict[Path, bytes]:
    """Return the new content of a page, if it exists and changes."""
    if not path.is_file():
        return {}
    before = path.read_text(encoding="utf-8")
    after = fill(before, blocks, str(path))
    return {} if after == before else {path: after.encode()}

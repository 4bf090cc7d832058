"""From results to documents: each experiment as Markdown, LaTeX and a picture, and the pages that collect them.

Nothing is computed here: what is not recorded is shown as missing, and named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

from dgcf.config import read_toml
from dgcf.errors import ArtifactError, DataError
from dgcf.experiments.plots import refuse_without_matplotlib
from dgcf.experiments.report import latex_table, latex_text, markdown_table, markdown_text
from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.report import figures, tables
from dgcf.experiments.reproduce.report.view import Chapter, View, counted
from dgcf.experiments.reproduce.results import Store

CHAPTERS: Mapping[str, Callable[[View], Chapter]] = {
    "tuning": tables.tuning,
    "table1": tables.table1,
    "table2": tables.table2,
    "table3": tables.table3,
    "table4": tables.table4,
    "loss-curve": figures.loss_curve,
    "layers": figures.layers,
    "oscillation-diff": figures.oscillation_diff,
    "correlation": figures.correlation,
    "pattern": figures.pattern,
    "depth": figures.depth,
    "density": figures.density,
    "drop-edge": figures.drop_edge,
    "epsilon": figures.epsilon,
    "time": tables.time,
    "theory": figures.theory,
    "best": tables.best,
    "lightgcn-gowalla": tables.lightgcn_gowalla,
    "parts": tables.parts,
}
NAMED = 6
"""How many groups of missing cells a page names before it counts the rest."""


def views(book: Recipes, store: Store, name: str) -> list[View]:
    """The experiments asked for, with all that is recorded of them."""
    paper = read_toml(book.recipes / "reproduce" / "paper.toml")
    index = store.index(book.experiments)
    return [View(one, index, paper, book.recipes) for one in book.chosen(name)]


@dataclass(frozen=True)
class Page:
    """An experiment as it is shown, made once for all the files that it is shown in."""

    view: View

    @property
    def name(self) -> str:
        return self.view.experiment.name

    @cached_property
    def chapter(self) -> Chapter:
        """Its own, or that of any experiment."""
        with self._explained():
            return CHAPTERS.get(self.name, tables.general)(self.view)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What was computed is of many shapes; whatever does not have its own is said of the file."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as problem:
            raise ArtifactError(
                f"results of {self.name} do not have the expected fields ({type(problem).__name__}: {problem}); "
                "restore their file from a copy, or compute them again."
            ) from problem

    @property
    def pictured(self) -> bool:
        return self.chapter.draw is not None and bool(self.view.recorded)

    @property
    def notes(self) -> list[str]:
        return [*self.chapter.notes, *missing_notes(self.view)]

    def files(self) -> dict[str, bytes]:
        """``ID.md`` and ``ID.tex``, and ``ID.png`` and ``ID.svg`` where there is something to draw."""
        text = f"# {self.view.experiment.title}\n\n{self.block('')}"
        found = {f"{self.name}.md": text.encode(), f"{self.name}.tex": self.latex().encode()}
        if self.pictured:
            with self._explained():
                pictures = drawn(self.chapter)
            found |= {f"{self.name}.{form}": content for form, content in pictures.items()}
        return found

    def block(self, folder: str) -> str:
        """It as Markdown without its title; ``folder`` is the way to its picture."""
        title, parts = self.view.experiment.title, []
        if self.pictured:
            parts.append(f"![{title}]({folder}{self.name}.png)")
        for caption, table in self.chapter.tables:
            parts += [f"**{markdown_text(caption)}**", markdown_table(table)]
        parts.append("\n".join(f"- {markdown_text(note)}" for note in self.notes))
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self) -> str:
        """Every table, for a paper that loads ``booktabs``."""
        parts = [r"% Needs \usepackage{booktabs}."]
        for place, (caption, table) in enumerate(self.chapter.tables, start=1):
            told = rf"\caption{{{latex_text(caption)}}}"
            parts += [r"\begin{table}", r"\centering", r"\small", latex_table(table), told]
            parts += [rf"\label{{tab:{self.name}-{place}}}", r"\end{table}"]
        parts += [f"% {note}" for note in self.notes]
        return "\n".join(parts) + "\n"


def missing_notes(view: View) -> list[str]:
    """Which cells are missing, by name and without their seeds, and how many more."""
    missing, groups = len(view.missing), view.missing_groups
    if not missing:
        return []
    named = [f"{name} ({count})" if count > 1 else name for name, count in list(groups.items())[:NAMED]]
    rest = sum(list(groups.values())[NAMED:])
    more = f" and {rest:,} more" if rest else ""
    return [f"Missing: {missing:,} of {counted(len(view.experiment.cells), 'cell')}: {', '.join(named)}{more}."]


def drawn(chapter: Chapter) -> dict[str, bytes]:
    """The picture as PNG and SVG; the same results give the same bytes of SVG."""
    refuse_without_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left

    assert chapter.draw is not None
    figure = Figure(figsize=chapter.size, layout="constrained")
    chapter.draw(figure)
    found = {}
    for form in ("png", "svg"):
        with rc_context({"svg.hashsalt": "dgcf"}), BytesIO() as content:
            figure.savefig(content, format=form, dpi=120, metadata={"Date": None} if form == "svg" else None)
            found[form] = content.getvalue()
    return found


# -- pages with generated parts ---------------------------------------------------------------------------------------


def fill(page: str, blocks: Mapping[str, str], where: str) -> str:
    """``page`` with what stands between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->`` replaced.

    What a person wrote around the marks stays; a block that has no marks on the page is left out.
    """
    opened = re.findall(r"<!-- generated: (\S+) -->", page)
    for name in opened:
        if page.count(f"<!-- generated: {name} -->") != 1 or page.count(f"<!-- end: {name} -->") != 1:
            raise DataError(f"{where} does not have one mark that opens and one that ends {name}; mend them by hand.")
        if name in blocks:
            head, _, rest = page.partition(f"<!-- generated: {name} -->")
            tail = rest.partition(f"<!-- end: {name} -->")[2]
            inside = f"<!-- generated: {name} -->\n{blocks[name].strip()}\n<!-- end: {name} -->"
            page = head + inside + tail
    return page


def recorded_note(shown: Sequence[View]) -> str:
    """How much there is of all the experiments shown; nothing to say once it is all."""
    cells, missing = sum(len(view.experiment.cells) for view in shown), sum(len(view.missing) for view in shown)
    if not missing:
        return ""
    return f"{cells - missing:,} of {cells:,} cells are recorded so far; each part below says what it lacks.\n"

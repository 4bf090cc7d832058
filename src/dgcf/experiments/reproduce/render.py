"""From results to documents: each experiment as Markdown, LaTeX and a picture, and the pages that collect them.

Nothing is computed here: what is not recorded is shown as missing, and named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dgcf.config import read_toml
from dgcf.errors import DataError
from dgcf.experiments.chart import refuse_without_matplotlib
from dgcf.experiments.report import latex_table, latex_text, markdown_table, markdown_text
from dgcf.experiments.reproduce import figures, tables
from dgcf.experiments.reproduce.plan import Book
from dgcf.experiments.reproduce.store import Store
from dgcf.experiments.reproduce.view import Chapter, View, counted
from dgcf.files import whole_file

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
}
NAMED = 12
"""How many missing cells a page names before it counts the rest."""


def views(book: Book, store: Store, name: str) -> list[View]:
    """The experiments asked for, with all that is recorded of them."""
    paper = read_toml(book.recipes / "reproduce" / "paper.toml")
    index = store.index(book.experiments)
    return [View(one, index, paper) for one in book.chosen(name)]


def render(view: View, folder: Path) -> list[Path]:
    """Write ``ID.md`` and ``ID.tex``, and ``ID.png`` and ``ID.svg`` where there is something to draw."""
    name, chapter = view.experiment.name, CHAPTERS[view.experiment.name](view)
    written = [folder / f"{name}.md", folder / f"{name}.tex"]
    pictured = chapter.draw is not None and bool(view.recorded)
    text = f"# {view.experiment.title}\n\n{block(view, chapter, '' if pictured else None)}"
    for path, content in zip(written, (text, latex(view, chapter)), strict=True):
        with whole_file(path) as beside:
            beside.write_text(content, encoding="utf-8")
    if pictured:
        written += draw(chapter, folder / name)
    return written


def block(view: View, chapter: Chapter, folder: str | None) -> str:
    """An experiment as Markdown without its title; ``folder`` is the way to its picture, None where it has none."""
    parts = []
    if folder is not None:
        parts.append(f"![{view.experiment.title}]({folder}{view.experiment.name}.png)")
    for caption, table in chapter.tables:
        parts += [f"**{markdown_text(caption)}**", markdown_table(table)]
    parts.append("\n".join(f"- {markdown_text(note)}" for note in [*chapter.notes, *missing_notes(view)]))
    return "\n\n".join(filter(None, parts)) + "\n"


def missing_notes(view: View) -> list[str]:
    """Which cells are missing, by name, and how many more."""
    missing = view.missing
    if not missing:
        return []
    named = ", ".join(list(missing)[:NAMED])
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return [f"Missing: {len(missing)} of {counted(len(view.experiment.cells), 'cell')}: {named}{more}."]


def latex(view: View, chapter: Chapter) -> str:
    """Every table of an experiment, for a paper that loads ``booktabs``."""
    parts = [r"% Needs \usepackage{booktabs}."]
    for place, (caption, table) in enumerate(chapter.tables, start=1):
        label = f"{view.experiment.name}-{place}"
        told = rf"\caption{{{latex_text(caption)}}}"
        parts += [r"\begin{table}", r"\centering", r"\small", latex_table(table), told, rf"\label{{tab:{label}}}"]
        parts.append(r"\end{table}")
    parts += [f"% {note}" for note in [*chapter.notes, *missing_notes(view)]]
    return "\n".join(parts) + "\n"


def draw(chapter: Chapter, stem: Path) -> list[Path]:
    """The picture as PNG and SVG; the same results give the same bytes of SVG."""
    refuse_without_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display is needed and no global state is left

    assert chapter.draw is not None
    figure = Figure(figsize=chapter.size, layout="constrained")
    chapter.draw(figure)
    written = []
    for form in ("png", "svg"):
        target = stem.with_name(f"{stem.name}.{form}")
        with rc_context({"svg.hashsalt": "dgcf"}), whole_file(target) as beside:
            figure.savefig(beside, format=form, dpi=120, metadata={"Date": None} if form == "svg" else None)
        written.append(target)
    return written


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


def fill_file(path: Path, blocks: Mapping[str, str]) -> bool:
    """The same for a file; whether it changed."""
    before = path.read_text(encoding="utf-8")
    after = fill(before, blocks, str(path))
    if after != before:
        with whole_file(path) as beside:
            beside.write_text(after, encoding="utf-8")
    return after != before


def recorded_note(shown: Sequence[View]) -> str:
    """How much there is of all the experiments shown; nothing to say once it is all."""
    cells, missing = sum(len(view.experiment.cells) for view in shown), sum(len(view.missing) for view in shown)
    if not missing:
        return ""
    return f"{cells - missing:,} of {cells:,} cells are recorded so far; each part below names those that it lacks.\n"


def page_blocks(shown: Sequence[View], folder: str = "reproduction/") -> dict[str, str]:
    """The blocks of ``docs/reproduction.md``, by experiment."""
    found = {}
    for view in shown:
        chapter = CHAPTERS[view.experiment.name](view)
        pictured = chapter.draw is not None and bool(view.recorded)
        found[view.experiment.name] = block(view, chapter, folder if pictured else None)
    return found

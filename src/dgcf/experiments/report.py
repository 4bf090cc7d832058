"""The tables of a comparison as Markdown, as LaTeX, or as a self-contained HTML page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.evaluate.significance import Comparison
from dgcf.experiments.plots import bars_svg, draw_bars, refuse_without_matplotlib
from dgcf.experiments.results import LEVEL, CompareResult, ModelResult
from dgcf.files import atomic_file
from dgcf.models.catalog import entry

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "plot": (".png", ".svg"),
    "latex": (".tex",),
    "markdown": (".md", ".markdown"),
    "html": (".html", ".htm"),
}


@dataclass(frozen=True)
class TableCell:
    """The text of a table cell; ``best`` is printed in bold, ``marked`` with the sign of a significant difference."""

    text: str
    best: bool = False
    marked: bool = False

    def format(self, escape: Callable[[str], str], bold: str, mark: str) -> str:
        """Return the escaped text, in the template ``bold`` if it is the best, with ``mark`` after it if marked."""
        text = escape(self.text)
        return (bold.format(text) if self.best else text) + (mark if self.marked else "")


Row = Sequence[TableCell | str]


@dataclass(frozen=True)
class Table:
    """A table for any format; the first ``names`` columns hold words, the others numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    names: int

    @classmethod
    def of(cls, header: Iterable[str], rows: Iterable[Row], names: int) -> Table:
        """Return a table of cells and texts; a text is a cell without marks."""
        cells = (tuple(TableCell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows)
        return cls(tuple(header), tuple(cells), names)


# -- content, the same for every format -------------------------------------------------------------------------------


def signed(number: float) -> str:
    """Return the number with its sign, U+2212 for minus."""
    return f"{number:+.4f}".replace("-", "−")


def interval(comparison: Comparison) -> str:
    return " … ".join(map(signed, comparison.interval))


def megabytes(model: ModelResult) -> str:
    return "–" if model.peak_mb is None else f"{model.peak_mb:,.0f}"


def models_table(result: CompareResult) -> Table:
    """Return a row for each model: its means over the seeds, and the time and memory of a run."""
    rows: list[Row] = []
    for model in result.models:
        values = [
            TableCell(str(model.test[name]), model.test[name].mean == result.best(name), model.differs(name))
            for name in result.metrics
        ]
        seeds = str(len(model.seeds)) if model.seeded else "any"
        rows.append((model.label, seeds, *values, f"{model.seconds:,.1f}", megabytes(model)))
    return Table.of(("model", "seeds", *result.metrics, "seconds", "peak MB"), rows, names=1)


def comparisons_table(result: CompareResult) -> Table:
    """Return a row for each test against the reference."""
    p_names = ("p (t)", "p (permutation)", "p (Holm)", "p (with seeds)")
    header = ("model", "metric", "difference", "95 % interval", "effect size", *p_names)
    rows: list[Row] = []
    for model in result.models:
        for test in model.comparisons:
            size = "–" if test.effect_size is None else f"{test.effect_size:+.3f}".replace("-", "−")
            p_values = (test.p_t, test.p_permutation, test.p_holm, test.p_seeds)
            difference = TableCell(signed(test.difference), marked=model.differs(test.metric))
            numbers = (interval(test), size, *("–" if p is None else f"{p:.2g}" for p in p_values))
            rows.append((model.label, test.metric, difference, *numbers))
    return Table.of(header, rows, names=2)


def notes(result: CompareResult) -> list[str]:
    """Return the sentences that belong beside the numbers."""
    reference = result.reference_label
    sentences = [
        f"Test split of {result.dataset} (fingerprint {result.fingerprint[:12]}): {result.users_evaluated:,} users, "
        f"all items ranked, mask {result.mask}.",
        f"Mean ± sample standard deviation over seeds; the best in bold. * differs from {reference}: paired sign-flip "
        f"permutation test over users, each averaged over the seeds, with p < {LEVEL:g} after Holm's correction over "
        f"{result.n_comparisons} comparison{'' if result.n_comparisons == 1 else 's'}; with several seeds of both "
        "models, also a t-test over users and seeds.",
        "The tests generalise to other users of this dataset and split, not to other data, splits or settings.",
        "Seconds: training and validation of one run, mean over the runs. Peak MB: highest resident memory of the "
        "process, libraries included.",
    ]
    return sentences + [f"{model.label}: {_describe_training(model)}." for model in result.models]


def _describe_training(model: ModelResult) -> str:
    """Return model, preset, changed settings and seeds. A solved model has no presets: all its settings are shown."""
    solved = entry(model.model).solved
    shown = model.settings if solved else model.changed
    words = [
        "" if model.label == model.model else f"model {model.model}",
        "solved directly" if solved else f"preset {model.preset}",
        ", ".join(f"{key} {value}" for key, value in shown.items()),
        f"seeds {', '.join(map(str, model.seeds))}" if model.seeded else "the same for every seed",
    ]
    return "; ".join(filter(None, words))


# -- formats ----------------------------------------------------------------------------------------------------------


def markdown(result: CompareResult) -> str:
    """Return two tables and the notes."""
    blocks = [f"# {_heading(result)}", markdown_table(models_table(result))]
    if result.n_comparisons:
        blocks += [f"## Against {markdown_text(result.reference_label)}", markdown_table(comparisons_table(result))]
    return "\n\n".join([*blocks, "\n".join(f"- {markdown_text(note)}" for note in notes(result))]) + "\n"


def markdown_table(table: Table) -> str:
    rule = ["---" if column < table.names else "---:" for column in range(len(table.header))]
    rows = [[cell.format(markdown_text, "**{}**", r"\*") for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(words)} |" for words in (table.header, rule, *rows))


def markdown_text(text: str) -> str:
    """Return the text with the characters of Markdown escaped."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def latex(result: CompareResult) -> str:
    """Return a table for ``booktabs``: the models, the tests below them, the notes as caption."""
    opening = [r"% Needs \usepackage{booktabs}.", r"\begin{table}", r"\centering", r"\small"]
    parts = [*opening, latex_table(models_table(result))]
    if result.n_comparisons:
        parts += [r"\par\medskip", latex_table(comparisons_table(result))]
    parts.append(rf"\caption{{{' '.join(map(latex_text, notes(result)))}}}")
    return "\n".join([*parts, r"\label{tab:comparison}", r"\end{table}"]) + "\n"


def latex_table(table: Table) -> str:
    """Return a ``tabular`` for ``booktabs``."""
    columns = "l" * table.names + "r" * (len(table.header) - table.names)
    rows = [[cell.format(latex_text, r"\textbf{{{}}}", "$^{*}$") for cell in row] for row in table.rows]
    header, *lines = (f"{' & '.join(words)} \\\\" for words in (map(latex_text, table.header), *rows))
    opening = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", header, r"\midrule"]
    return "\n".join([*opening, *lines, r"\bottomrule", r"\end{tabular}"])


_LATEX = (
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\ldots{}", "–": "--"}
    | {"<": "$<$", ">": "$>$", "≤": r"$\leq$", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "→": r"$\to$"}
    | {"∞": r"$\infty$", "‖": r"$\Vert$", "ᵢ": "$_i$", "ᵤ": "$_u$"}
    | {"ε": r"$\varepsilon$", "α": r"$\alpha$", "ρ": r"$\rho$", "π": r"$\pi$"}
)


def latex_text(text: str) -> str:
    """Return the text with the characters of LaTeX escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d5dae0; --paper: #ffffff; --bar: #4a7fb5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #9aa4b0; --line: #3a424c; --paper: #15181c; --bar: #6fa3d8; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.name, td.name { text-align: left; }
figure { margin: 1.5rem 0; }
li, figcaption { color: var(--soft); }
svg { max-width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .bar { fill: var(--bar); } svg .dot { fill: var(--ink); }
svg .range { stroke: var(--ink); stroke-width: 1.5; }
"""


def page(result: CompareResult) -> str:
    """Return an HTML page with style and figure inside, light or dark by the reader's preference; valid as XML."""
    parts = [f"<h1>{html.escape(_heading(result))}</h1>", _html_table(models_table(result)), bars_svg(result)]
    if result.n_comparisons:
        against = f"<h2>Against {html.escape(result.reference_label)}</h2>"
        parts += [against, _html_table(comparisons_table(result))]
    parts += ["<ul>", *(f"<li>{html.escape(note)}</li>" for note in notes(result)), "</ul>"]
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{html.escape(_heading(result))}</title>",
        f"<style>{STYLE}</style>",
    ]
    body = ["<body>", *parts, "</body>", "</html>"]
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', "<head>", *head, "</head>", *body]) + "\n"


def _html_table(table: Table) -> str:
    def row(tag: str, words: Iterable[str]) -> str:
        classes = [' class="name"' if column < table.names else "" for column in range(len(table.header))]
        cells = (f"<{tag}{name}>{word}</{tag}>" for name, word in zip(classes, words, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    lines = [row("th", map(html.escape, table.header))]
    lines += [row("td", (cell.format(html.escape, "<b>{}</b>", "*") for cell in cells)) for cells in table.rows]
    return "\n".join(['<div class="wide"><table>', *lines, "</table></div>"])


def _heading(result: CompareResult) -> str:
    return f"{len(result.models)} models on {result.dataset}"


# -- files ------------------------------------------------------------------------------------------------------------

TEXTS: Mapping[str, Callable[[CompareResult], str]] = {"latex": latex, "markdown": markdown, "html": page}


def refuse_targets(targets: Mapping[str, Path]) -> None:
    """Refuse files that could not be written later; ``targets`` maps ``plot``, ``latex``, … to files."""
    for what, target in targets.items():
        if target.suffix.lower() not in SUFFIXES[what]:
            ends = " or ".join(SUFFIXES[what])
            raise ConfigError(f"--{what} would be written to {target.name}; give a name that ends in {ends}.")
        if target.is_dir():
            raise ConfigError(f"--{what} {target} is a folder, expected a file to write; choose another name.")
    if "plot" in targets:
        refuse_without_matplotlib()


def write(result: CompareResult, targets: Mapping[str, Path]) -> None:
    """Write each file atomically, over an existing one."""
    for what, target in targets.items():
        if what == "plot":
            draw_bars(result, target)
        else:
            with atomic_file(target) as beside:
                beside.write_text(TEXTS[what](result), encoding="utf-8")

"""The table of a comparison to take along: Markdown, LaTeX, or a page of HTML that needs nothing but itself."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dgcf.errors import ConfigError
from dgcf.evaluate.significance import Comparison
from dgcf.experiments.plots import bars_svg, draw_bars, refuse_without_matplotlib
from dgcf.experiments.results import LEVEL, Spread, Standing, Standings
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
    """A piece of a table: ``best`` is set in bold, ``marked`` carries the sign of a significant difference."""

    text: str
    best: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """Text for any format, its first ``names`` columns words and the rest numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    names: int


# -- the same words for every format ----------------------------------------------------------------------------------


def mean_and_std(spread: Spread) -> str:
    return f"{spread.mean:.4f}" + ("" if spread.std is None else f" ± {spread.std:.4f}")


def signed(number: float) -> str:
    """With a sign, and a real minus."""
    return f"{number:+.4f}".replace("-", "−")


def interval(comparison: Comparison) -> str:
    return " … ".join(map(signed, comparison.interval))


def megabytes(row: Standing) -> str:
    return "–" if row.peak_mb is None else f"{row.peak_mb:,.0f}"


def seeds_of(row: Standing) -> str:
    return str(len(row.seeds)) if row.seeded else "any"


def standings_table(found: Standings) -> Table:
    """A row for each model: its means over the seeds, and what a run costs."""
    rows = []
    for row in found.rows:
        values = [
            TableCell(mean_and_std(row.test[name]), row.test[name].mean == found.best(name), row.differs(name))
            for name in found.metrics
        ]
        costs = (TableCell(f"{row.seconds:,.1f}"), TableCell(megabytes(row)))
        rows.append((TableCell(row.label), TableCell(seeds_of(row)), *values, *costs))
    return Table(("model", "seeds", *found.metrics, "seconds", "peak MB"), tuple(rows), names=1)


def comparisons_table(found: Standings) -> Table:
    """A row for each test against the reference."""
    p_values = ("p (t)", "p (permutation)", "p (Holm)", "p (with seeds)")
    header = ("model", "metric", "difference", "95 % interval", "effect size", *p_values)
    rows = []
    for row in found.rows:
        for one in row.comparisons:
            size = "–" if one.effect_size is None else f"{one.effect_size:+.3f}".replace("-", "−")
            found_p = (one.p_t, one.p_permutation, one.p_holm, one.p_seeds)
            told = ("–" if p is None else f"{p:.2g}" for p in found_p)
            words = (row.label, one.metric, signed(one.difference), interval(one), size, *told)
            rows.append(
                tuple(
                    TableCell(word, marked=column == 2 and row.differs(one.metric)) for column, word in enumerate(words)
                )
            )
    return Table(header, tuple(rows), names=2)


def notes(found: Standings) -> list[str]:
    """What must stand beside the numbers, in sentences."""
    reference = found.rows[found.reference].label
    told = [
        f"Test split of {found.dataset} (fingerprint {found.fingerprint[:12]}): {found.users_evaluated:,} users, all "
        f"items ranked, mask {found.mask}.",
        f"Means over seeds ± sample deviation between seeds; the best in bold. * differs from {reference}: paired "
        "sign-flip permutation test over users, each user's values averaged over the seeds, "
        f"p < {LEVEL:g} after Holm's correction over {found.n_comparisons} comparisons; and, where each has several "
        "seeds, also by a t-test that counts the spread between seeds.",
        "The tests speak of other users of this dataset under this split; they know nothing of other data, splits or "
        "settings.",
        "Seconds are those of one run, training and validation (mean over the runs); peak MB is the most resident "
        "memory of its process, libraries included.",
    ]
    return told + [f"{row.label}: {settings_of(row)}." for row in found.rows]


def settings_of(row: Standing) -> str:
    """How a row was trained: its model, preset, what is set otherwise, and the seeds. At once, presets say nothing."""
    solved = entry(row.model).solved
    shown = row.settings if solved else row.changed
    words = [
        "" if row.label == row.model else f"model {row.model}",
        "solved at once" if solved else f"preset {row.preset}",
        ", ".join(f"{key} {value}" for key, value in shown.items()),
        f"seeds {', '.join(map(str, row.seeds))}" if row.seeded else "the same for every seed",
    ]
    return "; ".join(filter(None, words))


# -- formats ----------------------------------------------------------------------------------------------------------


def markdown(found: Standings) -> str:
    """Two tables and the notes."""
    blocks = [f"# {_heading(found)}", markdown_table(standings_table(found))]
    if found.n_comparisons:
        blocks += [f"## Against {markdown_text(_reference(found))}", markdown_table(comparisons_table(found))]
    return "\n\n".join([*blocks, "\n".join(f"- {markdown_text(note)}" for note in notes(found))]) + "\n"


def markdown_table(table: Table) -> str:
    """The table alone."""

    def line(words: tuple[str, ...]) -> str:
        return f"| {' | '.join(words)} |"

    def cell(one: TableCell) -> str:
        text = markdown_text(one.text)
        return (f"**{text}**" if one.best else text) + (r"\*" if one.marked else "")

    rule = tuple("---" if column < table.names else "---:" for column in range(len(table.header)))
    return "\n".join([line(table.header), line(rule), *(line(tuple(map(cell, row))) for row in table.rows)])


def markdown_text(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def latex(found: Standings) -> str:
    """A table for a paper that loads ``booktabs``: the standings, the tests below them, the notes as caption."""
    parts = [r"% Needs \usepackage{booktabs}.", r"\begin{table}", r"\centering", r"\small"]
    parts.append(latex_table(standings_table(found)))
    if found.n_comparisons:
        parts += [r"\par\medskip", latex_table(comparisons_table(found))]
    parts.append(rf"\caption{{{' '.join(map(latex_text, notes(found)))}}}")
    return "\n".join([*parts, r"\label{tab:comparison}", r"\end{table}"]) + "\n"


def latex_table(table: Table) -> str:
    """The table alone, for ``booktabs``."""

    def line(words: tuple[str, ...]) -> str:
        return f"{' & '.join(words)} \\\\"

    def cell(one: TableCell) -> str:
        text = latex_text(one.text)
        return (rf"\textbf{{{text}}}" if one.best else text) + ("$^{*}$" if one.marked else "")

    columns = "l" * table.names + "r" * (len(table.header) - table.names)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(tuple(map(latex_text, table.header))),
            r"\midrule",
            *(line(tuple(map(cell, row))) for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "…": r"\ldots{}",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "×": r"$\times$",
    "‖": r"$\Vert$",
    "ᵢ": "$_i$",
    "ᵤ": "$_u$",
    "ε": r"$\varepsilon$",
    "α": r"$\alpha$",
    "ρ": r"$\rho$",
    "π": r"$\pi$",
}


def latex_text(text: str) -> str:
    """Text in which nothing is a command."""
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


def page(found: Standings) -> str:
    """One file of HTML, well-formed as XML too: style and picture inside, light or dark as the reader has it."""
    parts = [f"<h1>{html.escape(_heading(found))}</h1>", _html_table(standings_table(found)), bars_svg(found)]
    if found.n_comparisons:
        against = f"<h2>Against {html.escape(_reference(found))}</h2>"
        parts += [against, _html_table(comparisons_table(found))]
    parts += ["<ul>", *(f"<li>{html.escape(note)}</li>" for note in notes(found)), "</ul>"]
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{html.escape(_heading(found))}</title>",
        f"<style>{STYLE}</style>",
    ]
    body = ["<body>", *parts, "</body>", "</html>"]
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', "<head>", *head, "</head>", *body]) + "\n"


def _html_table(table: Table) -> str:
    def row(tag: str, words: list[str]) -> str:
        classes = [' class="name"' if column < table.names else "" for column in range(len(words))]
        cells = (f"<{tag}{name}>{word}</{tag}>" for name, word in zip(classes, words, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    def cell(one: TableCell) -> str:
        text = html.escape(one.text)
        return (f"<b>{text}</b>" if one.best else text) + ("*" if one.marked else "")

    lines = [row("th", [html.escape(word) for word in table.header])]
    lines += [row("td", [cell(one) for one in cells]) for cells in table.rows]
    return "\n".join(['<div class="wide"><table>', *lines, "</table></div>"])


def _heading(found: Standings) -> str:
    return f"{len(found.rows)} models on {found.dataset}"


def _reference(found: Standings) -> str:
    return found.rows[found.reference].label


# -- files ------------------------------------------------------------------------------------------------------------

TEXTS: Mapping[str, Callable[[Standings], str]] = {"latex": latex, "markdown": markdown, "html": page}


def refuse_targets(targets: Mapping[str, Path]) -> None:
    """Refuse before any work what could not be written after it; ``targets`` maps ``plot``, ``latex`` … to files."""
    for what, target in targets.items():
        if target.suffix.lower() not in SUFFIXES[what]:
            ends = " or ".join(SUFFIXES[what])
            raise ConfigError(f"--{what} would be written to {target.name}; give a name that ends in {ends}.")
        if target.is_dir():
            raise ConfigError(f"--{what} {target} is a folder, expected a file to write; choose another name.")
    if "plot" in targets:
        refuse_without_matplotlib()


def write(found: Standings, targets: Mapping[str, Path]) -> None:
    """Write each file whole; one that is there is replaced."""
    for what, target in targets.items():
        if what == "plot":
            draw_bars(found, target)
        else:
            with atomic_file(target) as beside:
                beside.write_text(TEXTS[what](found), encoding="utf-8")

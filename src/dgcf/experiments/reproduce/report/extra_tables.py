"""Tables beyond the paper's: tuning, the best settings, item weights, LightGCN's split, parts of DGCF, any recipe."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Row, Table, TableCell
from dgcf.experiments.reproduce.cells import Cell, Line, Trained, Trial
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.cells.computed import REFERENCE
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.report.tables import PROTOCOL_NOTE
from dgcf.experiments.reproduce.report.view import (
    MISSING,
    Section,
    View,
    difference,
    in_words,
    number,
    out_of,
    shown,
)
from dgcf.experiments.reproduce.select import Decision, decisions

ROW_NAMES = ("data", "model", "settings", "varied")
"""The columns that name the rows of an experiment without a section of its own."""


def tuning(view: View) -> Section:
    """The candidates for each model, and the winner."""
    tables = []
    made = decisions(view.experiment.trials, view.index)
    for source in dict.fromkeys(decision.source for decision in made):
        own = [decision for decision in made if decision.source == source]
        metric = own[0].candidates[0].recipe.train.metric
        header = ("file", "model", "what won", "candidates", f"validation {metric}", "epoch", "seconds in all")
        tables.append((source.title, Table.of(header, [_decision(one, view.recipes) for one in own], 3)))
    failed = [f"Failed: {line['key']} ({line['reason']})" for line in view.lines(Trial) if not line["validation"]]
    protocol = (
        "Chosen on validation alone, the same candidates for every model, each laid over the paper's settings and less "
        "what the model does not have; those that then coincide are one. Of several seeds the mean decides."
    )
    return Section(tables, [protocol, *view.experiment.notes, *failed])


def _decision(decision: Decision, recipes: Path) -> Row:
    """Return the row of a decision. An earlier one stands until all candidates that were added to it are recorded."""
    candidates, winner = decision.candidates, decision.winner
    count = out_of(sum(candidate.recorded for candidate in candidates), len(candidates))
    seconds = number(sum(line["seconds"] for candidate in candidates for line in candidate.lines), ",.0f")
    if winner is None:
        models = ", ".join(dict.fromkeys(candidate.recipe.name for candidate in candidates))
        stands = not decision.recorded and (recipes / decision.file).is_file()
        text = f"stands from before; {count} candidates are recorded" if stands else MISSING
        return (decision.file, models, text, count, MISSING, MISSING, seconds)
    changed = in_words(winner.cells[0].varied) or f"the {winner.recipe.preset} preset"
    epochs = ", ".join(map(str, winner.epochs))
    return (decision.file, winner.recipe.name, changed, count, number(winner.value), epochs, seconds)


def best(view: View) -> Section:
    """The best recipe of each dataset, beside the paper's DGCF and the target."""
    rows = []
    for data in view.names("data"):
        source = view.source(data)
        paper = view.paper["table1"].get(source.family, {}).get(REFERENCE, (None, None))
        targets = view.paper["best"].get(data, (None, None))
        row: list[TableCell | str] = [source.title, view.seeds(data=data)]
        for metric, printed, target in zip(METRICS, paper, targets, strict=True):
            value = view.mean(metric, data=data)
            row += [shown(value), number(printed), difference(value, printed), number(target)]
        rows.append(row)
    header = [name for metric in METRICS for name in (metric, "the paper's DGCF", "difference", "target")]
    table = Table.of(("dataset", "seeds", *header), rows, 1)
    return Section([("The best DGCF by validation", table)], [PROTOCOL_NOTE])


def lightgcn_gowalla(view: View) -> Section:
    """Our results beside the published ones, by recall; last those that use the order of the pairs."""
    ranked: list[tuple[bool, float, Row]] = []
    for name, numbers in view.paper["published"].items():
        ranked.append((False, -numbers[0], (name, "published", "", *map(number, numbers))))
    for data, settings, model in product(*map(view.names, ("data", "settings", "model"))):
        which = {"data": data, "settings": settings, "model": model}
        if not view.cells(**which):
            continue
        values = [view.mean(metric, **which) for metric in METRICS]
        ordered = bool(view.source(data).order_of)
        trained_on = "all of train" if data.endswith("-whole") else "less its validation part"
        trained_on += ", its order known" if ordered else ""
        row = (f"ours: {model}, {settings}", trained_on, view.seeds(**which), *map(shown, values))
        ranked.append((ordered, -values[0].mean if values[0] is not None else 1.0, row))
    ranked.sort(key=lambda row: row[:2])
    table = Table.of(("model", "trained on", "seeds", *METRICS), [row for *_, row in ranked], 2)
    notes = [
        PROTOCOL_NOTE,
        "Several of the published results picked the epoch on test; ours is chosen on the carved part.",
        "Its order known: recent pairs are drawn more often, in an order that the authors' files of Gowalla show and "
        "LightGCN's do not. No published result had that, so it is no comparison with them.",
    ]
    return Section([("LightGCN's split of Gowalla", table)], notes)


def parts(view: View) -> Section:
    """DGCF with and without each of its parts, by dataset and λ."""
    varied = ("self_loop", "gates", "cross")
    tables = []
    for data, l2 in product(view.names("data"), (None, *sorted(view.names("l2")))):
        rows = []
        for values in product(*map(view.names, varied)):
            which = {"data": data, "l2": l2, **dict(zip(varied, values, strict=True))}
            if view.cells(**which):
                marks = ("no" if value in (False, "none") else "yes" for value in values)
                rows.append((*marks, view.seeds(**which), *view.accuracy(**which)))
        title = f"{view.source(data).title}, λ {'as the paper has it' if l2 is None else f'{l2:g}'}"
        tables.append((title, Table.of(("self-loop", "gates", "cross-hop", "seeds", *METRICS), rows, 3)))
    return Section(tables, [PROTOCOL_NOTE])


def general(view: View) -> Section:
    """An experiment without a section of its own: what was decided, trained and computed."""
    decided = tuning(view) if view.experiment.trials else Section(notes=view.experiment.notes)
    tables, notes = list(decided.tables), list(decided.notes)
    if view.experiment.trials:
        notes += view.hardware_note()
    for kind in dict.fromkeys(type(cell) for cell in view.experiment.cells if not isinstance(cell, Trial)):
        header = ("seeds", *METRICS) if kind.averaged else ("computed",)
        by_name = grouped(view.cells(kind), lambda cell_and_line: _row_name(cell_and_line[0]))
        rows = [(*name, *_values(kind, [line for _, line in cells])) for name, cells in by_name.items()]
        caption = view.experiment.title if kind.averaged else f"{view.experiment.title}: {kind.kind}"
        tables.append((caption, Table.of((*ROW_NAMES, *header), rows, len(ROW_NAMES) + (not kind.averaged))))
    notes += [PROTOCOL_NOTE] if view.cells(Trained) else []
    return Section(tables, notes, hardware=not view.experiment.trials)


def _row_name(cell: Cell) -> tuple[str, ...]:
    """Return the words that name the row of cells that differ only by their seed."""
    return (cell.source.name, cell.model or MISSING, cell.settings or MISSING, in_words(cell.varied) or MISSING)


def _values(kind: type[Cell], lines: list[Line | None]) -> Row:
    """Return the means over the seeds, or the computed numbers and words in one text."""
    recorded = [line for line in lines if line is not None]
    if kind.averaged:
        tests = [line["test"]["train"] for line in recorded]
        means = (MeanStd.of([test[metric] for test in tests]) if tests else None for metric in METRICS)
        return [out_of(len(recorded), len(lines)), *map(shown, means)]
    computed = recorded[-1]["computed"] if recorded else {}
    return [in_words({k: v for k, v in computed.items() if not isinstance(v, dict | list)}) or MISSING]

"""The paper's tables, and those of our own, each with the paper's number and the difference beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dgcf.data.dataset import SPLITS
from dgcf.evaluate.significance import holm, t_test
from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Table, TableCell
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.recipe import REFERENCE
from dgcf.experiments.reproduce.report.view import (
    MISSING,
    Chapter,
    View,
    counted,
    hardware_note,
    hardware_words,
    less,
    number,
    out_of,
    shown,
    spread,
    words,
)
from dgcf.experiments.reproduce.results import Line
from dgcf.experiments.reproduce.select import Decision, decisions
from dgcf.experiments.results import LEVEL

RECALL = METRICS[0]
SETTINGS = {
    "tuned": "settings tuned on validation, alike for each model",
    "paper": "the paper's own settings",
    "official-code": "the authors' code, read literally",
    "best": "the best that validation found",
}
PROTOCOL_NOTE = (
    "Test split, all items ranked, the best epoch chosen on validation; train items masked unless said. Mean ± sample "
    "deviation over seeds; differences are ours less the paper's."
)


NAMED = ("data", "model", "settings", "varied")
"""By what the rows of an experiment are named that has no chapter of its own."""


# -- tuning ----------------------------------------------------------------------------------------------------------


def tuning(view: View) -> Chapter:
    """What was tried for each model, and what won."""
    tables, notes = [], list(view.experiment.notes)
    found = decisions(view.experiment.trials, view.index)
    for source in dict.fromkeys(one.source for one in found):
        own = [one for one in found if one.source == source]
        metric = own[0].candidates[0].recipe.train.metric
        header = ("file", "model", "what won", "candidates", f"validation {metric}", "epoch", "seconds in all")
        tables.append((source.title, Table(header, tuple(_decided(one, view.recipes) for one in own), 3)))
    for line in view.lines("trial"):
        if not line["validation"]:
            notes.append(f"Failed: {line['key']} ({line['reason']})")
    told = (
        "Chosen on validation alone, the same candidates for every model, each laid over the paper's settings and less "
        "what the model does not have; those that then coincide are one. Of several seeds the mean decides."
    )
    return Chapter(tables, [told, *notes, *hardware_note(view.recorded)])


def _decided(decision: Decision, recipes: Path) -> tuple[TableCell, ...]:
    """What won; where candidates were added to what was decided, that stands until they are all recorded."""
    tried, winner = decision.candidates, decision.winner
    done = sum(one.recorded for one in tried)
    seconds = sum(line["seconds"] for one in tried for line in one.lines)
    count = out_of(done, len(tried))
    if winner is None:
        models = ", ".join(dict.fromkeys(one.recipe.name for one in tried))
        stands = not decision.recorded and (recipes / decision.file).is_file()
        what = f"stands from before; {count} candidates are recorded" if stands else MISSING
        return (*words(decision.file, models, what, count, MISSING, MISSING), number(seconds, ",.0f"))
    varied = winner.cells[0].varied
    changed = _in_words(varied) or f"the {winner.recipe.preset} preset"
    epochs = ", ".join(map(str, winner.epochs))
    value = number(winner.value)
    return (*words(decision.file, winner.recipe.name, changed, count), value, *words(epochs), number(seconds, ",.0f"))


def _in_words(settings: Mapping[str, Any]) -> str:
    """``dim 128, layers 3``."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


# -- Table 1 ----------------------------------------------------------------------------------------------------------

TOLERANCE = 0.01
"""By what share a tuned cell may be below the paper's before it is named."""


def table1(view: View) -> Chapter:
    """A table for each dataset and origin of settings."""
    tables = []
    for data in view.names("data"):
        for settings in view.names("settings"):
            models = [model for model in view.names("model") if view.cells(data=data, model=model, settings=settings)]
            if models:
                tables.append((_settings_title(view, data, settings), _accuracy(view, data, settings, models)))
    notes = (
        PROTOCOL_NOTE,
        f"p: {REFERENCE} against the model, Holm's correction over the table; by a paired sign-flip permutation test "
        "over users where their values were kept, each averaged over the seeds, otherwise by a paired t-test over the "
        f"seeds. * p < {LEVEL:g}, and over the seeds too.",
        "The paper's ML-100K has 779 users and its split is lost; its numbers stand beside both of our versions. "
        "Each is tuned on its own validation parts.",
        _below_the_paper(view),
    )
    return Chapter(tables, [*notes, *hardware_note(view.recorded)])


def _settings_title(view: View, data: str, settings: str) -> str:
    """The dataset, whose settings, and what the recipe sets over them."""
    cell, _ = view.cells(data=data, settings=settings)[0]
    over = f", but {_in_words(cell.varied)}" if cell.varied else ""
    return f"{cell.source.title}: {SETTINGS.get(settings, settings)}{over}"


def _below_the_paper(view: View) -> str:
    """The tuned cells that do not reach what is printed, but for what rounding and seeds explain."""
    short = []
    for data, model in product(view.names("data"), view.names("model")):
        for metric, printed in _printed(view, data, model).items():
            found = view.spread(metric, data=data, model=model, settings="tuned")
            if found is not None and printed is not None and found.mean < (1 - TOLERANCE) * printed:
                short.append(f"{data} {model} {metric} {found.mean:.4f} ({printed:.4f})")
    named = "; ".join(short) or "none of what is trained"
    return f"Tuned, and more than {100 * TOLERANCE:g} % below what is printed: {named}."


def _printed(view: View, data: str, model: str) -> dict[str, float | None]:
    """What the paper has of a model, by metric."""
    family = view.cells(data=data)[0][0].source.family
    return dict(zip(METRICS, view.paper["table1"].get(family, {}).get(model, (None, None)), strict=True))


def _accuracy(view: View, data: str, settings: str, models: Sequence[str]) -> Table:
    tests = significance(view, data, settings, models)
    which = {"data": data, "settings": settings}
    best = {metric: _highest(view.spread(metric, model=model, **which) for model in models) for metric in METRICS}
    rows = []
    for model in models:
        which = {"data": data, "settings": settings, "model": model}
        row = words(model, view.seeds(**which))
        for metric, printed in _printed(view, data, model).items():
            found, p = view.spread(metric, **which), tests.get((model, metric), (None, False))
            mark = found is not None and found.mean == best[metric]
            row += [shown(found, best=mark, marked=p[1]), number(printed), less(found, printed), number(p[0], ".2g")]
        row += [shown(view.spread(metric, mask="train+validation", **which)) for metric in METRICS]
        rows.append(tuple(row))
    measured = [name for metric in METRICS for name in (metric, "paper", "difference", "p")]
    also = [f"{metric}, validation masked too" for metric in METRICS]
    return Table(("model", "seeds", *measured, *also), tuple(rows), names=1)


def _highest(found: Iterable[MeanStd | None]) -> float | None:
    """The highest mean; None where there are not two to compare, or one is missing that might be higher."""
    means = [None if one is None else one.mean for one in found]
    known = [mean for mean in means if mean is not None]
    return max(known) if len(known) > 1 and len(known) == len(means) else None


def significance(
    view: View, data: str, settings: str, models: Sequence[str]
) -> dict[tuple[str, str], tuple[float, bool]]:
    """p after Holm's correction of each model and metric against DGCF, and whether it is to be marked."""
    found: dict[tuple[str, str], tuple[float, float | None]] = {}
    for model in models:
        for metric in METRICS if model != REFERENCE else ():
            which = {"data": data, "settings": settings}
            computed = view.one("comparison", model=model, **which)
            if computed is not None:
                found[model, metric] = (computed[metric]["p_permutation"], computed[metric]["p_seeds"])
            elif (p := _over_seeds(view, metric, model, which)) is not None:
                found[model, metric] = (p, None)
    corrected = holm([p for p, _ in found.values()]).tolist()
    return {
        name: (p, p < LEVEL and (seeds is None or seeds < LEVEL))
        for (name, (_, seeds)), p in zip(found.items(), corrected, strict=True)
    }


def _over_seeds(view: View, metric: str, model: str, which: dict[str, Any]) -> float | None:
    """Paired by seed, which on random splits is by split; None below two seeds in common."""
    first, second = (view.values(metric, model=one, **which) for one in (REFERENCE, model))
    shared = sorted(set(first) & set(second))
    return t_test(np.array([second[seed] - first[seed] for seed in shared])) if len(shared) > 1 else None


# -- Tables 2 to 4, time ----------------------------------------------------------------------------------------------


def table2(view: View) -> Chapter:
    """Recall@20 of the last layer alone, by depth."""
    layers = view.names("layers")
    models = view.names("model")
    best = {depth: _highest(view.spread(RECALL, model=model, layers=depth) for model in models) for depth in layers}
    rows = []
    for model in models:
        row = words(model)
        for depth, printed in zip(layers, view.paper["table2"][model], strict=True):
            found = view.spread(RECALL, model=model, layers=depth)
            mark = found is not None and found.mean == best[depth]
            row += [shown(found, best=mark), number(printed), less(found, printed)]
        rows.append(tuple(row))
    header = [name for depth in layers for name in (counted(depth, "layer"), "paper", "difference")]
    caption = "Recall@20, the last layer alone ranked, the paper's own settings"
    return Chapter(
        [(caption, Table(("model", *header), tuple(rows), 1))], [PROTOCOL_NOTE, *hardware_note(view.recorded)]
    )


def table3(view: View) -> Chapter:
    """Counts of the datasets, and whether their parts were drawn alike; a count that is the paper's is not repeated."""
    columns = ("users", "items", "density", *SPLITS)
    rows, alike, notes = [], [], []
    for cell, line in view.cells("statistics"):
        printed = view.paper["table3"].get(cell.source.family)
        paper = None if printed is None else dict(zip(columns, printed, strict=True))
        found = None if line is None else line["computed"]
        title = words(cell.source.title)
        rows.append((*title, *(_count(found, paper, column) for column in columns)))
        alike.append(
            (*title, *(number(None if found is None else found["popularity"][part], ".1f") for part in SPLITS))
        )
        flaws = [] if found is None else _flaws(found)
        notes += [f"{cell.source.title}: {'; '.join(flaws)}."] if flaws else []
    notes.insert(0, "In brackets the paper's count where it is another. Pairs of ready-made splits as given.")
    notes.append(
        "Popular: how many other users have a pair's item in training, on average; alike for parts drawn alike."
    )
    return Chapter(
        [
            ("The datasets", Table(("dataset", *columns), tuple(rows), 1)),
            ("How popular the items of each part are", Table(("dataset", *SPLITS), tuple(alike), 1)),
        ],
        notes,
    )


def _count(found: dict[str, Any] | None, paper: dict[str, float] | None, column: str) -> TableCell:
    form = ".5f" if column == "density" else ","
    if found is None:
        return TableCell(MISSING)
    ours = format(found[column], form)
    printed = ours if paper is None else format(paper[column], form)
    return TableCell(ours if ours == printed else f"{ours} ({printed})")


def _flaws(found: dict[str, Any]) -> list[str]:
    leaks = {"train_validation": "validation", "train_test": "test"}
    told = [f"{found['leaks'][name]:,} {part} pairs are also in train" for name, part in leaks.items()]
    told.append(f"{found['leaks']['validation_test']:,} pairs are both in validation and in test")
    told.append(f"{found['duplicates']['train']:,} training pairs are repeats")
    return [text for text in told if not text.startswith("0 ")]


def table4(view: View) -> Chapter:
    """Edges and seconds by ε."""
    paper, rows = view.paper["table4"], []
    for place, epsilon in enumerate(paper["epsilon"]):
        edges, timed = view.one("edges", epsilon=epsilon), view.one("epochs", epsilon=epsilon)
        ratio = MISSING if edges is None else "∞" if edges["ratio"] is None else f"{edges['ratio']:.1f}"
        rows.append(
            (
                *words(f"{epsilon:g}", *_counted(edges, "direct_edges", paper["direct_edges"])),
                *words(*_counted(edges, "cross_edges", paper["cross_edges"][place]), ratio, paper["ratio"][place]),
                number(None if timed is None else timed["seconds_per_epoch"], ".4f"),
                number(paper["seconds"][place], ".1f"),
            )
        )
    header = ("ε", "direct edges", "paper", "cross-hop edges", "paper", "ratio", "paper", "s/epoch", "paper")
    notes = [
        "Seconds an epoch with 4 layers; the paper's on a GeForce GTX 1080 Ti.",
        "The paper prints 445,225 cross-hop edges and the ratio 1.6 for ε = 0.001; 445,225 / 296,598 is 1.5.",
    ]
    return Chapter([("What ε does on ML1M", Table(header, tuple(rows), 1))], notes + hardware_note(view.recorded))


def _counted(found: dict[str, Any] | None, name: str, paper: int) -> tuple[str, str]:
    return (MISSING if found is None else f"{found[name]:,}", f"{paper:,}")


def time(view: View) -> Chapter:
    """Seconds an epoch, and how many times faster than the paper's."""
    rows = []
    for cell, line in view.cells("epochs"):
        printed = view.paper["time"].get(cell.source.family)
        seconds = None if line is None else line["computed"]["seconds_per_epoch"]
        place = MISSING if line is None else hardware_words(line["hardware"])
        faster = None if seconds is None or printed is None else printed / seconds
        rows.append(
            (*words(cell.source.title, place), number(seconds, ".4f"), number(printed, ".1f"), number(faster, ",.0f"))
        )
    header = ("dataset", "hardware", "s/epoch", "paper (GTX 1080 Ti)", "times faster")
    notes = ["The median of the epochs after the first, validation not counted; the paper's own settings, 4 layers."]
    return Chapter([("Seconds an epoch of DGCF, 4 layers", Table(header, tuple(rows), 1))], notes)


# -- beyond -----------------------------------------------------------------------------------------------------------


def best(view: View) -> Chapter:
    """The best recipe of each dataset, beside the paper's DGCF and the mark that it is meant to reach."""
    rows = []
    for data in view.names("data"):
        source = view.cells(data=data)[0][0].source
        paper = view.paper["table1"].get(source.family, {}).get(REFERENCE, (None, None))
        mark = view.paper["best"].get(data, (None, None))
        row = words(source.title, view.seeds(data=data))
        for metric, printed, aim in zip(METRICS, paper, mark, strict=True):
            found = view.spread(metric, data=data)
            row += [shown(found), number(printed), less(found, printed), number(aim)]
        rows.append(tuple(row))
    header = [name for metric in METRICS for name in (metric, "the paper's DGCF", "difference", "target")]
    table = Table(("dataset", "seeds", *header), tuple(rows), 1)
    return Chapter([("The best DGCF by validation", table)], [PROTOCOL_NOTE, *hardware_note(view.recorded)])


def lightgcn_gowalla(view: View) -> Chapter:
    """Ours beside the published results, by recall; last what knows more than they did."""
    ranked: list[tuple[bool, float, tuple[TableCell, ...]]] = []
    for name, values in view.paper["published"].items():
        ranked.append((False, -values[0], (*words(name, "published", ""), *map(number, values))))
    for data in view.names("data"):
        for settings in view.names("settings"):
            for model in view.names("model"):
                which = {"data": data, "settings": settings, "model": model}
                if not view.cells(**which):
                    continue
                found = [view.spread(metric, **which) for metric in METRICS]
                where = "all of train" if data.endswith("-whole") else "less its validation part"
                ordered = bool(view.cells(**which)[0][0].source.order_of)
                where += ", its order known" if ordered else ""
                place = -found[0].mean if found[0] is not None else 1.0
                label = words(f"ours: {model}, {settings}", where, view.seeds(**which))
                ranked.append((ordered, place, (*label, *map(shown, found))))
    ranked.sort(key=lambda row: row[:2])
    table = Table(("model", "trained on", "seeds", *METRICS), tuple(row for *_, row in ranked), 2)
    notes = [
        PROTOCOL_NOTE,
        "Several of the published results picked the epoch on test; ours is chosen on the carved part.",
        "Its order known: recent pairs are drawn more often, in an order that the authors' files of Gowalla show and "
        "LightGCN's do not. No published result had that, so it is no comparison with them.",
    ]
    return Chapter([("LightGCN's split of Gowalla", table)], notes + hardware_note(view.recorded))


def parts(view: View) -> Chapter:
    """DGCF with and without each of its parts, by dataset and λ."""
    varied = ("self_loop", "gates", "cross")
    tables = []
    for data, l2 in product(view.names("data"), (None, *sorted(view.names("l2")))):
        rows = []
        for there in product(*(view.names(name) for name in varied)):
            which = {"data": data, "l2": l2, **dict(zip(varied, there, strict=True))}
            if not view.cells(**which):
                continue
            marks = ("no" if one in (False, "none") else "yes" for one in there)
            found = (shown(view.spread(metric, **which)) for metric in METRICS)
            rows.append((*words(*marks, view.seeds(**which)), *found))
        title = f"{view.cells(data=data)[0][0].source.title}, λ {'as the paper has it' if l2 is None else f'{l2:g}'}"
        tables.append((title, Table(("self-loop", "gates", "cross-hop", "seeds", *METRICS), tuple(rows), 3)))
    return Chapter(tables, [PROTOCOL_NOTE, *hardware_note(view.recorded)])


# -- whatever else lies among the recipes -----------------------------------------------------------------------------


def general(view: View) -> Chapter:
    """An experiment that has no chapter of its own: what was decided, what was trained, what was computed."""
    decided = tuning(view) if view.experiment.trials else Chapter(notes=[*view.experiment.notes])
    tables, notes = list(decided.tables), list(decided.notes)
    for kind in dict.fromkeys(cell.kind for cell in view.experiment.cells if cell.kind != "trial"):
        header = ("seeds", *METRICS) if kind == "trained" else ("computed",)
        rows = [(*words(*name), *_told(kind, lines)) for name, lines in _groups(view, kind).items()]
        caption = view.experiment.title if kind == "trained" else f"{view.experiment.title}: {kind}"
        tables.append((caption, Table((*NAMED, *header), tuple(rows), len(NAMED) + (kind != "trained"))))
    notes += [PROTOCOL_NOTE] if view.cells("trained") else []
    return Chapter(tables, notes if view.experiment.trials else [*notes, *hardware_note(view.recorded)])


def _groups(view: View, kind: str) -> dict[tuple[str, ...], list[Line | None]]:
    """The lines of what differs by the seed alone, by the words that name the row."""
    found: dict[tuple[str, ...], list[Line | None]] = {}
    for cell, line in view.cells(kind):
        varied = ", ".join(f"{name} {value}" for name, value in cell.varied.items())
        name = (cell.source.name, cell.model or MISSING, cell.settings or MISSING, varied or MISSING)
        found.setdefault(name, []).append(line)
    return found


def _told(kind: str, lines: Sequence[Line | None]) -> list[TableCell]:
    """Means over the seeds; or what was computed, as far as it is single numbers and words."""
    done = [line for line in lines if line is not None]
    if kind == "trained":
        return [
            *words(out_of(len(done), len(lines))),
            *(shown(spread([line["test"]["train"][metric] for line in done])) for metric in METRICS),
        ]
    found = done[-1]["computed"].items() if done else ()
    return words(", ".join(f"{name} {value}" for name, value in found if not isinstance(value, dict | list)) or MISSING)

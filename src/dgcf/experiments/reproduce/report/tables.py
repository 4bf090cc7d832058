"""The paper's tables, each with the paper's number and the difference beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from dgcf.data.dataset import SPLITS
from dgcf.evaluate.significance import holm, t_test
from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Table, TableCell
from dgcf.experiments.reproduce.cells import Comparison, Edges, Epochs, Statistics
from dgcf.experiments.reproduce.cells.computed import REFERENCE
from dgcf.experiments.reproduce.execute import describe_hardware
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.report.view import MISSING, Section, View, difference, in_words, number, shown
from dgcf.experiments.results import LEVEL
from dgcf.text import counted

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
TOLERANCE = 0.01
"""The share by which a tuned cell of Table 1 may be below the paper's number before it is named."""


# -- Table 1 ----------------------------------------------------------------------------------------------------------


def table1(view: View) -> Section:
    """Accuracy of every model: a table for each dataset and origin of settings."""
    tables = []
    for data, settings in product(view.names("data"), view.names("settings")):
        models = [model for model in view.names("model") if view.cells(data=data, model=model, settings=settings)]
        if models:
            cell, _ = view.cells(data=data, settings=settings)[0]
            over = f", but {in_words(cell.varied)}" if cell.varied else ""
            title = f"{cell.source.title}: {SETTINGS.get(settings, settings)}{over}"
            tables.append((title, _accuracy(view, data, settings, models)))
    notes = (
        PROTOCOL_NOTE,
        f"p: {REFERENCE} against the model, Holm's correction over the table; by a paired sign-flip permutation test "
        "over users where their values were kept, each averaged over the seeds, otherwise by a paired t-test over the "
        f"seeds. * p < {LEVEL:g}, and over the seeds too.",
        "The paper's ML-100K has 779 users and its split is lost; its numbers stand beside both of our versions. "
        "Each is tuned on its own validation parts.",
        _below_the_paper(view),
    )
    return Section(tables, notes)


def highest(values: Iterable[MeanStd | None]) -> float | None:
    """Return the highest mean; None if there are fewer than two, or one is missing that might be higher."""
    means = [None if value is None else value.mean for value in values]
    known = [mean for mean in means if mean is not None]
    return max(known) if len(known) > 1 and len(known) == len(means) else None


def _below_the_paper(view: View) -> str:
    """Return a note on the tuned cells that are below the paper by more than rounding and seeds explain."""
    below = []
    for data, model in product(view.names("data"), view.names("model")):
        for metric, printed in _printed(view, data, model).items():
            value = view.mean(metric, data=data, model=model, settings="tuned")
            if value is not None and printed is not None and value.mean < (1 - TOLERANCE) * printed:
                below.append(f"{data} {model} {metric} {value.mean:.4f} ({printed:.4f})")
    listed = "; ".join(below) or "none of what is trained"
    return f"Tuned, and more than {100 * TOLERANCE:g} % below what is printed: {listed}."


def _printed(view: View, data: str, model: str) -> dict[str, float | None]:
    """Return the paper's numbers of a model by metric."""
    family = view.source(data).family
    return dict(zip(METRICS, view.paper["table1"].get(family, {}).get(model, (None, None)), strict=True))


def _accuracy(view: View, data: str, settings: str, models: Sequence[str]) -> Table:
    tests = significance(view, data, settings, models)
    which = {"data": data, "settings": settings}
    best = {metric: highest(view.mean(metric, model=model, **which) for model in models) for metric in METRICS}
    rows = []
    for model in models:
        which = {"data": data, "settings": settings, "model": model}
        row: list[TableCell | str] = [model, view.seeds(**which)]
        for metric, printed in _printed(view, data, model).items():
            value, (p, marked) = view.mean(metric, **which), tests.get((model, metric), (None, False))
            row += [shown(value, best=best[metric], marked=marked), number(printed), difference(value, printed)]
            row.append(number(p, ".2g"))
        row += [shown(view.mean(metric, mask="train+validation", **which)) for metric in METRICS]
        rows.append(row)
    measured = [name for metric in METRICS for name in (metric, "paper", "difference", "p")]
    also = [f"{metric}, validation masked too" for metric in METRICS]
    return Table.of(("model", "seeds", *measured, *also), rows, names=1)


def significance(
    view: View, data: str, settings: str, models: Sequence[str]
) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return p after Holm's correction of each model and metric against DGCF, and whether to mark it."""
    tests: dict[tuple[str, str], tuple[float, float | None]] = {}
    which = {"data": data, "settings": settings}
    for model, metric in product([model for model in models if model != REFERENCE], METRICS):
        computed = view.computed(Comparison, model=model, **which)
        if computed is not None:
            tests[model, metric] = (computed[metric]["p_permutation"], computed[metric]["p_seeds"])
        elif (p := _over_seeds(view, metric, model, which)) is not None:
            tests[model, metric] = (p, None)
    corrected = holm([p for p, _ in tests.values()]).tolist()
    return {
        name: (p, p < LEVEL and (seeds is None or seeds < LEVEL))
        for (name, (_, seeds)), p in zip(tests.items(), corrected, strict=True)
    }


def _over_seeds(view: View, metric: str, model: str, which: dict[str, Any]) -> float | None:
    """Return p of a test paired by seed, which on random splits is by split; None below two common seeds."""
    first, second = (view.values(metric, model=name, **which) for name in (REFERENCE, model))
    shared = sorted(set(first) & set(second))
    return t_test(np.array([second[seed] - first[seed] for seed in shared])) if len(shared) > 1 else None


# -- Tables 2 to 4, time ----------------------------------------------------------------------------------------------


def table2(view: View) -> Section:
    """Recall@20 of the last layer alone, by depth."""
    layers, models = view.names("layers"), view.names("model")
    best = {depth: highest(view.mean(RECALL, model=model, layers=depth) for model in models) for depth in layers}
    rows = []
    for model in models:
        row: list[TableCell | str] = [model]
        for depth, printed in zip(layers, view.paper["table2"][model], strict=True):
            value = view.mean(RECALL, model=model, layers=depth)
            row += [shown(value, best=best[depth]), number(printed), difference(value, printed)]
        rows.append(row)
    header = [name for depth in layers for name in (counted(depth, "layer"), "paper", "difference")]
    caption = "Recall@20, the last layer alone ranked, the paper's own settings"
    notes = [PROTOCOL_NOTE]
    return Section([(caption, Table.of(("model", *header), rows, 1))], notes)


def table3(view: View) -> Section:
    """Counts of the datasets, and the popularity of the items of each part."""
    columns = ("users", "items", "density", *SPLITS)
    counts, popularity, flaws = [], [], []
    for cell, line in view.cells(Statistics):
        printed = view.paper["table3"].get(cell.source.family)
        paper = None if printed is None else dict(zip(columns, printed, strict=True))
        computed = None if line is None else line["computed"]
        title = cell.source.title
        counts.append((title, *(_count(computed, paper, column) for column in columns)))
        means = (None if computed is None else computed["popularity"][part] for part in SPLITS)
        popularity.append((title, *(number(mean, ".1f") for mean in means)))
        if texts := [] if computed is None else _flaws(computed):
            flaws.append(f"{cell.source.title}: {'; '.join(texts)}.")
    notes = [
        "In brackets the paper's count where it is another. Pairs of ready-made splits as given.",
        *flaws,
        "Popular: how many other users have a pair's item in training, on average; alike for parts drawn alike.",
    ]
    tables = [
        ("The datasets", Table.of(("dataset", *columns), counts, 1)),
        ("How popular the items of each part are", Table.of(("dataset", *SPLITS), popularity, 1)),
    ]
    return Section(tables, notes, hardware=False)


def _count(computed: Mapping[str, Any] | None, paper: Mapping[str, float] | None, column: str) -> str:
    """Return our count, with the paper's in brackets if it differs."""
    if computed is None:
        return MISSING
    form = ".5f" if column == "density" else ","
    ours = format(computed[column], form)
    printed = ours if paper is None else format(paper[column], form)
    return ours if ours == printed else f"{ours} ({printed})"


def _flaws(computed: Mapping[str, Any]) -> list[str]:
    leaks = computed["leaks"]
    counts = {
        "validation pairs are also in train": leaks["train_validation"],
        "test pairs are also in train": leaks["train_test"],
        "pairs are both in validation and in test": leaks["validation_test"],
        "training pairs are repeats": computed["duplicates"]["train"],
    }
    return [f"{count:,} {text}" for text, count in counts.items() if count]


def table4(view: View) -> Section:
    """Edges and seconds by ε."""
    paper, rows = view.paper["table4"], []
    for place, epsilon in enumerate(paper["epsilon"]):
        edges, timed = view.computed(Edges, epsilon=epsilon), view.computed(Epochs, epsilon=epsilon)
        names = ("direct_edges", "cross_edges")
        direct, cross = (MISSING if edges is None else f"{edges[name]:,}" for name in names)
        ratio = MISSING if edges is None else "∞" if edges["ratio"] is None else f"{edges['ratio']:.1f}"
        seconds = None if timed is None else timed["seconds_per_epoch"]
        row = [f"{epsilon:g}", direct, f"{paper['direct_edges']:,}", cross, f"{paper['cross_edges'][place]:,}"]
        row += [ratio, paper["ratio"][place], number(seconds), number(paper["seconds"][place], ".1f")]
        rows.append(row)
    header = ("ε", "direct edges", "paper", "cross-hop edges", "paper", "ratio", "paper", "s/epoch", "paper")
    notes = [
        "Seconds an epoch with 4 layers; the paper's on a GeForce GTX 1080 Ti.",
        "The paper prints 445,225 cross-hop edges and the ratio 1.6 for ε = 0.001; 445,225 / 296,598 is 1.5.",
    ]
    return Section([("What ε does on ML1M", Table.of(header, rows, 1))], notes)


def time(view: View) -> Section:
    """Seconds per epoch, and the speed-up over the paper."""
    rows = []
    for cell, line in view.cells(Epochs):
        printed = view.paper["time"].get(cell.source.family)
        seconds = None if line is None else line["computed"]["seconds_per_epoch"]
        machine = MISSING if line is None else describe_hardware(line["hardware"])
        faster = None if seconds is None or printed is None else printed / seconds
        numbers = (number(seconds, ".4f"), number(printed, ".1f"), number(faster, ",.0f"))
        rows.append((cell.source.title, machine, *numbers))
    header = ("dataset", "hardware", "s/epoch", "paper (GTX 1080 Ti)", "times faster")
    notes = ["The median of the epochs after the first, validation not counted; the paper's own settings, 4 layers."]
    return Section([("Seconds an epoch of DGCF, 4 layers", Table.of(header, rows, 1))], notes, hardware=False)

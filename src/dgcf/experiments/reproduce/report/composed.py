"""What item weights add: DGCF with and without them, the other models with and without, and the item weights alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dgcf.evaluate.significance import holm, t_test
from dgcf.experiments.report import Row, Table
from dgcf.experiments.reproduce.cells import Line, Trained
from dgcf.experiments.reproduce.cells.base import grouped
from dgcf.experiments.reproduce.cells.computed import REFERENCE
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.report.tables import PROTOCOL_NOTE
from dgcf.experiments.reproduce.report.view import MISSING, Section, View, in_words, mean_std, number, out_of, shown

NONE = "none"
HEADLINE: Sequence[tuple[str, str, str, bool]] = (
    ("popularity", "popularity", "plain", False),
    ("item-knn", "item-knn", "plain", False),
    ("ease", "ease", "plain", False),
    ("ials", "ials", "plain", False),
    ("gf-cf", "gf-cf", "plain", False),
    ("bspm", "bspm", "plain", False),
    ("chebycf", "chebycf", "plain", False),
    ("bpr-mf, tuned", "bpr-mf", "tuned", False),
    ("lightgcn, tuned", "lightgcn", "tuned", False),
    ("dgcf, the paper's settings", REFERENCE, "paper", False),
    ("dgcf, tuned", REFERENCE, "tuned", False),
    ("dgcf, best settings", REFERENCE, "best", False),
    ("dgcf + item weights, no settings", REFERENCE, "default", True),
    ("dgcf + item weights, best settings", REFERENCE, "best", True),
)
"""The rows of the README: their words, the model, where its settings come from, and whether item weights are added."""
LEVEL = 0.05
"""Below this p a row of the README is marked."""


@dataclass(frozen=True)
class Variant:
    """The cells that differ only by their seed: ``added`` names their item weights, ``words`` says what varies else.

    ``lines`` holds None for a cell that is not recorded.
    """

    model: str
    settings: str
    added: str
    words: str
    lines: tuple[Line | None, ...]

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.model, "" if self.settings == "plain" else self.settings, self.words)))

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return a test metric by seed."""
        return {line["seed"]: line["test"]["train"][metric] for line in self.lines if line is not None}


def composed(view: View) -> Section:
    """One table per dataset, with the significance of each difference from DGCF with item weights."""
    tables = []
    for data in view.names("data"):
        source = view.source(data)
        rows = list[Row]()
        if (paper := view.paper["table1"].get(source.family, {}).get(REFERENCE)) is not None:
            rows.append((f"{REFERENCE}, printed in the paper", NONE, "", *map(number, paper), *[MISSING] * 2))
        every = list(variants(view, data))
        tested = over_seeds(every, _ours(every))
        for place, one in enumerate(every):
            values = [one.by_seed(metric) for metric in METRICS]
            means = (shown(mean_std(list(by_seed.values()))) for by_seed in values)
            p = (number(tested.get((place, metric)), ".2g") for metric in METRICS)
            rows.append((one.name, one.added, out_of(len(values[0]), len(one.lines)), *means, *p))
        header = ("model", "item weights", "seeds", *METRICS, *(f"p, {metric}" for metric in METRICS))
        tables.append((source.title, Table.of(header, rows, 2)))
    notes = [
        PROTOCOL_NOTE,
        "Item weights: what is added to the scores of the trained embeddings; auto: parts and numbers chosen on "
        "validation with each seed. Models without embeddings are item weights alone.",
        f"p: the row against the first recorded {REFERENCE} with item weights, by a t-test paired over the seeds, with "
        "Holm's correction over the table. A model that is solved without a seed has one value for all of them.",
    ]
    return Section(tables, notes)


def variants(view: View, data: str) -> Iterator[Variant]:
    """Yield the rows of a dataset, in the order of the recipe."""
    groups = grouped(view.cells(data=data), lambda pair: (pair[0].model, pair[0].settings, str(pair[0].varied)))
    for group in groups.values():
        cell = group[0][0]
        assert isinstance(cell, Trained)
        words = in_words({key: value for key, value in cell.varied.items() if key != "blend"})
        added = NONE if cell.recipe is None else cell.recipe.blend.blend
        yield Variant(cell.model, cell.settings, added, words, tuple(line for _, line in group))


def _ours(every: Sequence[Variant]) -> int | None:
    """Return the place of the first DGCF with item weights that is recorded; None if none is."""
    places = (place for place, one in enumerate(every) if one.model == REFERENCE and one.added != NONE)
    return next((place for place in places if any(every[place].lines)), None)


def over_seeds(every: Sequence[Variant], ours: int | None) -> Mapping[tuple[int, str], float]:
    """Return p after Holm's correction of each row and metric against the row ``ours``."""
    if ours is None:
        return {}
    tests = dict[tuple[int, str], float]()
    for (place, one), metric in product(enumerate(every), METRICS):
        first, second = every[ours].by_seed(metric), one.by_seed(metric)
        if len(second) == 1 and len(first) > 1:
            second = dict.fromkeys(first, next(iter(second.values())))
        shared = sorted(set(first) & set(second))
        if place != ours and len(shared) > 1:
            tests[place, metric] = t_test(np.array([second[seed] - first[seed] for seed in shared]))
    return dict(zip(tests, holm(list(tests.values())).tolist(), strict=True))


def headline(view: View, datasets: Sequence[str]) -> list[list[str]]:
    """Return the rows of the README: both metrics on every dataset, marked where DGCF with item weights is ahead.

    ``*`` marks a metric that is lower with p below ``LEVEL``.
    """
    rows = [[words] for words, *_ in HEADLINE]
    for data in datasets:
        every = list(variants(view, data))
        ours = _ours(every)
        tested = over_seeds(every, ours)
        for row, (_, model, settings, added) in zip(rows, HEADLINE, strict=True):
            alike = (
                place
                for place, one in enumerate(every)
                if (one.model, one.settings, one.added != NONE) == (model, settings, added) and any(one.lines)
            )
            place = next(alike, None)
            row.append(MISSING if place is None else " / ".join(_marked(every, ours, place, tested)))
    return rows


def _marked(
    every: Sequence[Variant], ours: int | None, place: int, tested: Mapping[tuple[int, str], float]
) -> Iterator[str]:
    for metric in METRICS:
        mean = mean_std(list(every[place].by_seed(metric).values()))
        assert mean is not None
        text = f"{mean.mean:.4f}".removeprefix("0")
        best = None if ours is None else mean_std(list(every[ours].by_seed(metric).values()))
        lower = best is not None and mean.mean < best.mean and tested.get((place, metric), 1.0) < LEVEL
        yield text + "*" * lower

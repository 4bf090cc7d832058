"""The results in the README: one table of recall and NDCG, every model on every dataset, the paper's beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from dgcf.experiments.report import Table, markdown_table
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.report.view import MISSING, View

SHORT = {"ml-100k": "ML-100K (928)", "ml-100k-779": "ML-100K (779)", "ml-1m": "ML1M", "amazon": "Amazon"}
SHOWN = ("table1", "best")
"""The experiments that it shows."""
ORDER = ("tuned", "paper")
"""The origins of settings: the tuned ones if they are trained, otherwise the paper's."""
UNTUNED = "°"
"""Marks results with the paper's settings."""


def readme_block(shown: Sequence[View]) -> str:
    """Return Table 1 in short, `best` below it, and how many cells are recorded."""
    by_name = {view.experiment.name: view for view in shown}
    first, best = (by_name[name] for name in SHOWN)
    datasets = first.names("data")
    rows = [(model, *(_cell(first, data, model) for data in datasets)) for model in first.names("model")]
    rows.append(("best", *(_values(best, data, "dgcf", "best") for data in datasets)))
    header = ("model", *(SHORT.get(data, data.capitalize()) for data in datasets))
    table = markdown_table(Table.of(header, rows, 1))
    cells = sum(len(view.experiment.cells) for view in shown)
    missing = sum(len(view.missing) for view in shown)
    stand_ins = f"; {UNTUNED} the paper's own, where those are all that is trained" if UNTUNED in table else ""
    recorded = f"{cells - missing:,} of {cells:,} cells" if missing else f"All {cells:,} cells"
    note = (
        "Recall@20 / NDCG@20 on test, train items masked, means over the seeds; in brackets the paper's. Settings "
        f"tuned on validation{stand_ins}, as many candidates for each model; best: DGCF, with many more of them. "
        f"{recorded} are recorded; [docs/reproduction.md](docs/reproduction.md) has all tables and figures, and "
        "`dgcf reproduce ID` makes them."
    )
    return f"{table}\n\n{note}\n"


def _cell(view: View, data: str, model: str) -> str:
    printed = view.paper["table1"].get(view.source(data).family, {}).get(model)
    paper = MISSING if printed is None else " / ".join(map(_short, printed))
    for settings in ORDER:
        ours = _values(view, data, model, settings)
        if ours != MISSING:
            return f"{ours}{UNTUNED * (settings == 'paper')} ({paper})"
    return f"{MISSING} ({paper})"


def _values(view: View, data: str, model: str, settings: str) -> str:
    values = [view.mean(metric, data=data, model=model, settings=settings) for metric in METRICS]
    means = [_short(value.mean) for value in values if value is not None]
    return " / ".join(means) if len(means) == len(values) else MISSING


def _short(value: float) -> str:
    """Return ``.3540``; no value here reaches 1."""
    return f"{value:.4f}".removeprefix("0")

"""The table and the picture of ``benchmarks.replay``, from its recorded lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import markdown

Record = dict[str, Any]
PAGE, PICTURE = Path("docs/update.md"), Path("docs/images/replay.svg")
NAMES = {
    "fold-in": "fold-in only",
    "warm": "warm start",
    "retrained": "full retraining",
}
TITLES = {"ml-1m": "MovieLens 1M", "drifting": "drifting log"}
BEGIN, END = "<!-- generated: replay -->", "<!-- end: replay -->"


def render(results: Path) -> None:
    """Write the picture, and the table into the page."""
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    picture(records, PICTURE)
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(records)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def days_of(records: Sequence[Record], log: str, way: str) -> dict[int, Record]:
    """Return the record of each day on which a way was measured."""
    return {record["day"]: record for record in records if record.get("way") == way and record["log"] == log}


def table(records: Sequence[Record]) -> str:
    """Return the means over the days on which the model was retrained, and the differences from retraining."""
    rows = []
    for log in dict.fromkeys(record["log"] for record in records):
        full = days_of(records, log, "retrained")
        for way, name in NAMES.items():
            days = days_of(records, log, way)
            if not full.keys() <= days.keys():
                continue
            ndcg, recall, seconds = (mean(days, full, key) for key in ("ndcg@20", "recall@20", "seconds"))
            difference = ndcg / mean(full, full, "ndcg@20") - 1
            cost = seconds / mean(full, full, "seconds")
            compared = (
                ["–", "1"] if way == "retrained" else [f"{difference:+.1%} ± {error(days, full):.1%}", f"{cost:.2f}"]
            )
            rows.append([TITLES[log], name, f"{ndcg:.4f}", f"{recall:.4f}", compared[0], f"{seconds:.1f}", compared[1]])
        base = next(record for record in records if record["kind"] == "base" and record["log"] == log)
        ratio = base["seconds"] / mean(full, full, "seconds")
        rows.append([TITLES[log], "both stages, before", "", "", "", f"{base['seconds']:.1f}", f"{ratio:.2f}"])
    header = ["log", "way", "NDCG@20", "Recall@20", "NDCG@20, relative", "s a day", "cost, relative"]
    return markdown(header, rows)


def mean(days: dict[int, Record], of: dict[int, Record], key: str) -> float:
    return float(np.mean([days[day][key] for day in of]))


def error(days: dict[int, Record], full: dict[int, Record]) -> float:
    """Return the standard error of the mean difference over the days, relative to the mean of retraining."""
    differences = [days[day]["ndcg@20"] - full[day]["ndcg@20"] for day in full]
    spread = np.std(differences, ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else np.nan
    return float(spread / mean(full, full, "ndcg@20"))


def picture(records: Sequence[Record], path: Path) -> None:
    """Draw quality and cost of each way by day, a column for each log."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dgcf"
    from matplotlib import pyplot as plt

    logs = list(dict.fromkeys(record["log"] for record in records))
    figure, axes = plt.subplots(2, len(logs), figsize=(5 * len(logs), 6), sharex="col", squeeze=False)
    measures: dict[str, Callable[[Record], float]] = {
        "NDCG@20": lambda record: record["ndcg@20"],
        "seconds": lambda record: record["seconds"],
    }
    for column, log in enumerate(logs):
        for row, (label, value) in enumerate(measures.items()):
            axis = axes[row][column]
            for way, name in NAMES.items():
                days = days_of(records, log, way)
                marker = "o" if way == "retrained" else None
                axis.plot(
                    [day + 1 for day in days], [value(record) for record in days.values()], marker=marker, label=name
                )
            axis.set_ylabel(label)
        axes[0][column].set_title(TITLES[log])
        axes[1][column].set_xlabel("day")
        axes[1][column].set_yscale("log")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)

"""Show datasets: the catalogue, how a file was read, and the statistics of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from dgcf.cli.terminal import notify, out, warn
from dgcf.data import Dataset, catalog
from dgcf.data.statistics import Statistics


def draw_list(datasets: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the known datasets, and where they were searched for."""
    table = Table("name", "local", "description")
    for dataset in datasets:
        table.add_row(dataset["name"], "yes" if dataset["local"] else "no", dataset["summary"])
    out.print(table)
    home = catalog.data_home()
    notify(f"Searched {f'{home} (DGCF_DATA_HOME) and ' if home else ''}{catalog.cache_home()}.")


def draw_files(name: str, files: Mapping[str, Path]) -> None:
    """Print the path of each file of a fetched dataset."""
    if not files:
        out.print(f"{name} is generated; there is nothing to fetch.")
    for role, path in files.items():
        out.print(f"{role}: {path}", soft_wrap=True)


def draw_prepared(dataset: Dataset, statistics: Statistics, folder: Path) -> None:
    """Print how the file was read, what the filters removed, and the statistics of the result."""
    draw_reading(dataset)
    for step in dataset.record.get("filters", []):
        if step["pairs"]:
            removed = f"{step['pairs']:,} rows, {step['users']:,} users, {step['items']:,} items"
            notify(f"{step['filter']}: removed {removed}")
    draw_statistics(statistics)
    out.print(f"written to {folder}", soft_wrap=True)


def draw_reading(dataset: Dataset) -> None:
    """Print the detected format of each file, so that a wrong guess can be corrected with options."""
    for file in dataset.record.get("read", []):
        columns = ", ".join(f"{role} = {name!r}" for role, name in file.get("columns", {}).items())
        header = {True: ", with a header", False: ", without a header"}.get(file.get("header"), "")
        cut = f", cut at {file['delimiter']!r}" if "delimiter" in file else ""
        notify(f"read as {file['format']}{cut}{header}{': ' if columns else ''}{columns}")


def draw_statistics(s: Statistics) -> None:
    """Print the counts as a table, then the warnings."""
    table = Table(title=s.name, show_header=False)
    counts = {"users": s.users, "items": s.items, "train": s.train, "validation": s.validation, "test": s.test}
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    table.add_row("density", f"{s.density:.5f}")
    for name in ("users", "items"):
        spread = ", ".join(f"{share} {value:g}" for share, value in s.degrees[name].items() if share != "mean")
        table.add_row(f"training pairs of {name}", f"mean {s.degrees[name]['mean']:.1f}; quantiles {spread}")
    popular = [f"{part} {value:.1f}" for part, value in s.popularity.items() if value is not None]
    table.add_row("mean popularity of a pair's item", ", ".join(popular))
    table.add_row("order of a user's pairs", "kept" if s.ordered else "not kept (see --keep-order)")
    table.add_row("fingerprint", Text(s.fingerprint, overflow="fold"))
    if s.known_as:
        table.add_row("known as", s.known_as)
    out.print(table)
    for message in s.warnings:
        warn(message)

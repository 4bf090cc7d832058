"""``make demo``: fetch MovieLens 100K, prepare it, describe it, and show what everybody likes.

Without a way to get MovieLens it uses the generated dataset, and says so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from dgcf.cli.data import describe, draw
from dgcf.cli.terminal import out, say
from dgcf.data import Dataset, load
from dgcf.errors import DataError

FOLDER = Path("demo/ml-100k")


def main() -> None:
    dataset = _dataset()
    dataset.save(FOLDER, overwrite=True)
    draw(describe(dataset))
    _show_popular(Dataset.load(FOLDER))
    say(f"The prepared dataset lies in {FOLDER}; `dgcf data stats {FOLDER}` describes it again.")


def _dataset() -> Dataset:
    try:
        return load("ml-100k", say=say)
    except DataError as problem:
        say(f"MovieLens 100K cannot be had here: {problem}\nUsing the generated dataset `planted` instead.")
        return load("planted")


def _show_popular(dataset: Dataset, k: int = 10) -> None:
    degrees = dataset.train.item_degrees
    table = Table("", "title", "users", title=f"The {k} most popular titles")
    for rank, item in enumerate(np.argsort(-degrees, kind="stable")[:k].tolist(), start=1):
        table.add_row(str(rank), dataset.items.title_of(item), f"{degrees[item]:,}")
    out.print(table)


if __name__ == "__main__":
    main()

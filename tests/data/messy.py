"""A retail export as shops have it: empty customers, cancellations, day-first dates, codes with blanks, titles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

WHERE = "Quantity > 0"
OPTIONS = ("--missing", "skip", "--where", WHERE)
"""The two options that read the export."""
_COLOURS = ("WHITE", "RED", "SMALL", "LARGE", "VINTAGE", "HANGING", "PAPER", "GLASS")
_THINGS = ("HEART", "LANTERN", "BAG", "MUG", "CANDLE", "HOLDER", "BOX", "CLOCK")
_WORDS = (*_COLOURS, *_THINGS)
_COUNTRIES = ("United Kingdom", "France", "Germany", "EIRE", "Côte d'Ivoire")


@dataclass(frozen=True)
class Shape:
    """The size of an export, and the shares of its lines without a customer and of cancellations."""

    lines: int = 50_000
    users: int = 900
    items: int = 600
    missing: float = 0.25
    cancelled: float = 0.02


def messy_export(shape: Shape = Shape(), seed: int = 0) -> pd.DataFrame:
    """Return the export as a frame of texts, as its CSV file holds them.

    Users have tastes: each buys mostly from a few neighbouring groups of items, so that models have something to learn.
    """
    rng = np.random.default_rng(seed)
    n = shape.lines
    user = np.minimum(rng.geometric(4 / shape.users, n) - 1, shape.users - 1)
    groups = max(shape.items // 20, 1)
    group = (user * 7 + rng.integers(0, 3, n)) % groups
    own = group * 20 + np.minimum(rng.geometric(0.15, n) - 1, 19)
    item = np.where(rng.random(n) < 0.8, own, rng.integers(0, shape.items, n)) % shape.items
    cancelled = rng.random(n) < shape.cancelled
    quantity = rng.integers(1, 13, n) * np.where(cancelled, -1, 1)
    invoice = np.sort(rng.integers(0, n // 15 + 1, n)) + 536_365
    # Rows of one invoice have one time; the year has both days above 12 and below.
    minutes = (invoice - 536_365) * 365 * 24 * 60 // (n // 15 + 1)
    when = pd.Timestamp("2010-12-01 08:26") + pd.to_timedelta(minutes, unit="min")
    titles = np.array([title_of(place) for place in range(shape.items)])
    codes = np.array([code_of(place) for place in range(shape.items)])
    return pd.DataFrame(
        {
            "InvoiceNo": [f"C{number}" if out else str(number) for number, out in zip(invoice, cancelled, strict=True)],
            "StockCode": codes[item],
            "Description": np.where(rng.random(n) < 0.01, "damaged, returned", titles[item]),
            "Quantity": quantity.astype(str),
            "InvoiceDate": [f"{t.day}/{t.month}/{t.year} {t.hour}:{t.minute:02d}" for t in when],
            "UnitPrice": [f"{price:.2f}" for price in rng.gamma(2.0, 2.0, n)],
            "CustomerID": np.where(rng.random(n) < shape.missing, "", (user + 12_346).astype(str)),
            "Country": np.array(_COUNTRIES)[user % len(_COUNTRIES)],
        }
    )


def code_of(item: int) -> str:
    """Return the code of an item: digits, a letter after them, or words with blanks."""
    return (f"{10_000 + item}", f"{10_000 + item}A", f"PADS {item} x", f"gift_0001_{item}")[item % 4]


def title_of(item: int) -> str:
    """Return the title of an item, with quotes and commas."""
    first, second, third = (_WORDS[(item // size) % len(_WORDS)] for size in (1, 16, 256))
    return f'{first} {second}, "{third}" No. {item}' if item % 2 else f"{first} {second} {third} {item}"


def write_export(path: Path, shape: Shape = Shape(), seed: int = 0) -> pd.DataFrame:
    """Write the export as a CSV file, and return its frame of texts."""
    frame = messy_export(shape, seed)
    frame.to_csv(path, index=False)
    return frame


def clean_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that ``OPTIONS`` keep, by pandas."""
    return frame[(frame["Quantity"].astype(int) > 0) & (frame["CustomerID"] != "")]

"""Write a generated retail export with the flaws of a real one: ``python examples/shop_export.py shop.csv``.

A quarter of the lines has no customer. Cancellations have negative quantities and an invoice number with a C. Dates
have the day first. Codes of articles are text, some with blanks. Descriptions stand beside the codes and vary. The
customers have tastes: each buys mostly from a few themes, such as RED RETROSPOT. A seed always gives the same file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country")
COLOURS = ("RED", "BLUE", "GREEN", "PINK", "IVORY", "BLACK", "SILVER", "WOODEN")
# fmt: off
MOTIFS = (
    "RETROSPOT", "HEART", "STAR", "ROSE", "OWL", "ANCHOR", "POLKADOT", "GINGHAM", "SKULL", "FAIRY", "CIRCUS",
    "SPACEBOY", "STRAWBERRY", "DOLLY", "VINTAGE", "PAISLEY", "BUTTERFLY", "WOODLAND", "ALPHABET", "JUNGLE", "SAVANNA",
    "LAVENDER", "CHERRY", "MERMAID", "PIRATE", "ROBOT", "TULIP", "DAISY", "BIRD", "APPLE", "CAT", "CLOUD",
)
THINGS = (
    "MUG", "LUNCH BOX", "CAKE STAND", "LANTERN", "CLOCK", "BUNTING", "APRON", "TEA TOWEL", "CANDLE", "JUG", "PLATE",
    "BOWL", "NAPKINS", "DOORMAT", "CUSHION", "UMBRELLA", "WASH BAG", "PENCIL CASE", "PHOTO FRAME", "BACKPACK",
)
# fmt: on
COUNTRIES = ("United Kingdom", "France", "Germany", "EIRE", "Côte d'Ivoire")
LINES_OF_INVOICE, FIRST_INVOICE, FIRST_CUSTOMER = 15, 536_365, 12_346


@dataclass(frozen=True)
class Shape:
    """The size of an export, the shares of lines without a customer and of cancelled invoices, and the number of themes
    that a customer prefers."""

    lines: int = 50_000
    users: int = 900
    items: int = 600
    missing: float = 0.25
    cancelled: float = 0.02
    tastes: int = 3


def rows(shape: Shape = Shape(), seed: int = 0) -> list[Sequence[str]]:
    """Return the lines of the export in the order of ``COLUMNS``, by time."""
    rng = np.random.default_rng(seed)
    n, themes = shape.lines, max(shape.items // len(THINGS), 1)
    invoices = n // LINES_OF_INVOICE + 1
    invoice = np.sort(rng.integers(0, invoices, n))
    # A few customers buy much; an invoice has one customer.
    user = np.minimum(rng.geometric(4 / shape.users, invoices) - 1, shape.users - 1)[invoice]
    theme = (user * 7 + rng.integers(0, shape.tastes, n)) % themes
    own = theme * len(THINGS) + np.minimum(rng.geometric(0.15, n) - 1, len(THINGS) - 1)
    item = np.where(rng.random(n) < 0.8, own, rng.integers(0, shape.items, n)) % shape.items
    cancelled = (rng.random(invoices) < shape.cancelled)[invoice]
    anonymous = (rng.random(invoices) < shape.missing)[invoice]
    quantity = rng.integers(1, 13, n) * np.where(cancelled, -1, 1)
    minutes = invoice * (365 * 24 * 60) // invoices
    when = np.datetime64("2010-12-01T08:26") + minutes.astype("timedelta64[m]")
    price, odd = rng.gamma(2.0, 2.0, n), rng.random(n) < 0.01
    columns = (invoice, item, quantity, when, price, user, cancelled, anonymous, odd)
    return [
        (
            f"{'C' if out else ''}{FIRST_INVOICE + number}",
            code_of(article),
            "damaged, returned" if strange else title_of(article),
            str(pieces),
            f"{time.day}/{time.month}/{time.year} {time.hour}:{time.minute:02d}",
            f"{cost:.2f}",
            "" if unknown else str(FIRST_CUSTOMER + customer),
            COUNTRIES[customer % len(COUNTRIES)],
        )
        for number, article, pieces, time, cost, customer, out, unknown, strange in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def code_of(item: int) -> str:
    """Return the code of an article: digits, digits with a letter, or words with blanks."""
    return (f"{10_000 + item}", f"{10_000 + item}A", f"SP {item} x", f"gift_0001_{item}")[item % 4]


def title_of(item: int) -> str:
    """Return the description of an article; some have commas and quotes."""
    theme, thing = divmod(item, len(THINGS))
    colour, motif = COLOURS[theme % len(COLOURS)], MOTIFS[theme // len(COLOURS) % len(MOTIFS)]
    return f'{THINGS[thing]}, {colour} "{motif}"' if item % 7 == 3 else f"{colour} {motif} {THINGS[thing]}"


def write(path: Path, shape: Shape = Shape(), seed: int = 0) -> Path:
    """Write the export as a CSV file, and return its path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows(shape, seed))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, metavar="PATH")
    for name, text in (("lines", "lines"), ("users", "customers"), ("items", "articles")):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape, name), help=f"number of {text}")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write(args.path, Shape(args.lines, args.users, args.items), args.seed)
    print(f"wrote {args.path}: {args.lines:,} lines")


if __name__ == "__main__":
    main()

"""Fuzz the readers: any file gives the dataset of a plain parse, or is refused in one sentence.

``python -m tests.fuzz.readers --count 20000 --seed 0`` runs the long form; ``--only INDEX`` repeats one input.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import json
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from dgcf.data import Dataset, load
from dgcf.data.prepare import Preparation
from dgcf.data.readers import ReadOptions
from dgcf.data.splits import Split
from dgcf.data.titles import read_titles
from dgcf.errors import DgcfError
from tests.fuzz.inputs import Case, Rows, make_case

WHOLE = Preparation(split=Split("none"))
LONGEST_SECONDS = 5.0
LARGEST_MEMORY = 2 << 30


def failure_of(case: Case, folder: Path) -> tuple[str, bool]:
    """Return the problem in reading a case (empty if none), and whether it was refused."""
    path = folder / case.name
    path.write_bytes(case.content)
    started = time.process_time()
    try:
        if case.titles:
            titles = read_titles(path, case.options.encoding)
            problem = (
                "" if all(isinstance(text, str) for text in (*titles, *titles.values())) else "titles are not text"
            )
        else:
            problem = _disagreement(load(path, WHOLE, case.options), case)
        refused = False
    except DgcfError as refusal:
        refused, problem = True, "" if "\n" not in str(refusal) else f"refused in several lines: {refusal}"
        if case.pairs is not None:
            problem = f"a valid file was refused: {refusal}"
    except Exception:
        refused, problem = False, traceback.format_exc()
    finally:
        path.unlink()
    if time.process_time() - started > LONGEST_SECONDS:
        problem = problem or f"took {time.process_time() - started:.1f} s"
    return problem, refused


def _disagreement(dataset: Dataset, case: Case) -> str:
    """Return the differences between a dataset and its file."""
    json.dumps(dict(dataset.record), ensure_ascii=False).encode()
    users, items = dataset.users.texts, dataset.items.texts
    splits = (dataset.train, dataset.validation, dataset.test)
    pairs = {(users[u], items[i]) for part in splits for u, i in zip(part.user_idx, part.indices, strict=True)}
    if case.pairs is not None and pairs != case.pairs:
        return f"read {sorted(pairs - case.pairs)[:3]}, expected {sorted(case.pairs - pairs)[:3]}"
    how = dataset.record["read"][0]
    if how["format"] == "table":
        return ""
    rows = plain_pairs(case.content, how, case.options)
    if pairs != set(rows) or dataset.record["rows"] != len(rows):
        return (
            f"read {dataset.record['rows']} rows as {how}, a plain parse has {len(rows)}; only read: "
            f"{sorted(pairs - set(rows))[:3]}, only in the file: {sorted(set(rows) - pairs)[:3]}"
        )
    return ""


# A plain parse ----------------------------------------------------------------------------------------------------


def plain_pairs(content: bytes, how: dict[str, Any], options: ReadOptions) -> list[tuple[str, str]]:
    """Return all rows of user and item of a text file, given the detected format."""
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    codec = {"utf-8": "utf-8", "windows-1252": "cp1252"}.get(options.encoding, options.encoding)
    # Blank lines before the first one are skipped.
    text = re.sub(r"^(?:[ \t]*(?:\r\n|\n|\r))+", "", content.decode(codec).removeprefix("\ufeff"))
    if how["format"] == "adjacency":
        lists = [re.split("[ \t]+", line.strip(" \t")) for line in re.split("\r\n|\n|\r", text)]
        return [(user, item) for user, *rest in lists for item in rest]
    quote = how["format"] == "csv" and len(how["delimiter"]) == 1
    rows = plain_rows(text, how["delimiter"], quote)
    header = rows.pop(0) if how["header"] else [f"column {place}" for place in range(len(rows[0]))]
    if how["format"] in ("u.data", "ratings.dat"):
        header = ["user", "item", "rating", "timestamp"]
    user, item = (header.index(how["columns"][role]) for role in ("user", "item"))
    pairs = [(row[user], row[item]) for row in rows]
    return [(user_id.strip(" \t"), item_id.strip(" \t")) for user_id, item_id in pairs] if options.trim_ids else pairs


def plain_rows(text: str, delimiter: str, quoted: bool) -> Rows:
    """Cut a text into rows and fields, character by character; empty lines are skipped."""
    rows: Rows = []
    row: list[str] = []
    place = 0
    while place < len(text):
        field, place = _field(text, place, delimiter, quoted)
        row.append(field)
        if text.startswith(delimiter, place):
            place += len(delimiter)
            if place < len(text):
                continue
            row.append("")
        place += 2 if text.startswith("\r\n", place) else 1
        if row != [""]:
            rows.append(row)
        row = []
    return rows


def _field(text: str, place: int, delimiter: str, quoted: bool) -> tuple[str, int]:
    """Return the field that begins at ``place``, and its end."""
    # DuckDB drops one blank before a quote; after more blanks they and the quote are part of the value.
    opening = re.compile('"' if delimiter == " " else ' ?"').match(text, place) if quoted else None
    if opening:
        closed = re.compile('((?:[^"]|"")*)"').match(text, opening.end())
        if closed is None:
            raise AssertionError("a quote is not closed")
        end = closed.end()
        while delimiter != " " and text.startswith(" ", end):
            end += 1
        return closed[1].replace('""', '"'), end
    end = place
    while end < len(text) and text[end] not in "\r\n" and not text.startswith(delimiter, end):
        end += 1
    return text[place:end], end


# The command ------------------------------------------------------------------------------------------------------


def run(count: int, seed: int, first: int = 0) -> tuple[int, list[str]]:
    """Read ``count`` inputs; return the number of refused ones and the failures."""
    refused, failures = 0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(prefix="dgcf-fuzz-") as folder:
        for index in range(first, first + count):
            faulthandler.dump_traceback_later(120, exit=True)
            problem, was_refused = failure_of(make_case(seed, index), Path(folder))
            refused += was_refused
            if problem:
                failures.append(f"input {index} of seed {seed}: {problem}")
    faulthandler.cancel_dump_traceback_later()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if peak * 1024 > LARGEST_MEMORY and peak > before:
        failures.append(f"memory reached {peak:,} KiB")
    return refused, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat the input of this index, and show it")
    arguments = parser.parse_args()
    if arguments.only is not None:
        print(make_case(arguments.seed, arguments.only))
    first, count = (0, arguments.count) if arguments.only is None else (arguments.only, 1)
    refused, failures = run(count, arguments.seed, first)
    for failure in failures[:20]:
        print(failure, file=sys.stderr)
    print(f"reader inputs: {count}, refused: {refused}, failures: {len(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())

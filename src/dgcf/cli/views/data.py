"""Show datasets: the catalogue, how a file was read, and the statistics of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from dgcf.cli.terminal import Table, notify, out, warn
from dgcf.data import Dataset, catalog
from dgcf.data.statistics import Statistics
from dgcf.text import counted


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
    draw_statistics(statistics)
    out.print(f"written to {folder}", soft_wrap=True)


def draw_reading(dataset: Dataset) -> None:
    """Print how each file of a dataset was read, so that a wrong guess can be corrected."""
    draw_record(dataset.record)


def draw_record(record: Mapping[str, Any]) -> None:
    """Print how the record of a dataset says that files were read, and what the filters removed."""
    for file in record.get("read", []):
        columns = ", ".join(f"{role} = {name!r}" for role, name in file.get("columns", {}).items())
        header = {True: ", with a header", False: ", without a header"}.get(file.get("header"), "")
        cut = f", cut at {file['delimiter']!r}" if "delimiter" in file else ""
        times = f"; times {file['times']}" if "times" in file else ""
        notify(f"read as {file['format']}{cut}{header}{': ' if columns else ''}{columns}{times}")
    if titles := record.get("titles"):
        _draw_titles(titles)
    for step in record.get("filters", []):
        if step["pairs"]:
            notify(f"{step['filter']}: removed {_removed(step)}")


def _removed(step: Mapping[str, Any]) -> str:
    """Return what a filter removed in words."""
    nouns = {"pairs": "row", "users": "user", "items": "item"}
    return ", ".join(counted(step[what], noun) for what, noun in nouns.items())


def _draw_titles(titles: Mapping[str, Any]) -> None:
    """Print which column the titles of the items come from."""
    column = titles["column"]
    if not titles["used"]:
        notify(
            f"{column!r} was not used as titles: most items have several texts; to use it, pass --title-col {column}"
        )
        return
    several = counted(titles["several"], "item") + (" has" if titles["several"] == 1 else " have")
    choice = f"; {several} several, of which the most frequent is used" if titles["several"] else ""
    notify(f"titles of {counted(titles['items'], 'item')} from {column!r}{choice}")


def draw_statistics(s: Statistics, *, with_filters: bool = False) -> None:
    """Print the counts as a table, with what each filter removed if it is not shown elsewhere, then the warnings."""
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
    for row in _history(s, with_filters=with_filters):
        table.add_row(*row)
    table.add_row("fingerprint", Text(s.fingerprint, overflow="fold"))
    if s.known_as:
        table.add_row("known as", s.known_as)
    out.print(table)
    for message in s.warnings:
        warn(message)


def _history(s: Statistics, *, with_filters: bool) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table on how the dataset was made."""
    if "time" in s.values:
        yield "times of pairs", "kept"
    if s.weights:
        spread = ", ".join(f"{name} {s.weights[name]:g}" for name in ("min", "mean", "max"))
        origin = f"{s.weights['from']}, {s.weights['transform']}: " if "from" in s.weights else ""
        yield "weights of pairs", f"{origin}{spread}"
    if with_filters and s.rows is not None:
        yield "made from", f"{s.rows:,} rows of {s.source}" if s.source else f"{s.rows:,} rows"
    for step in s.filters if with_filters else ():
        if step["pairs"]:
            yield "removed", f"{step['filter']}: {_removed(step)}"
    if s.split:
        yield "split", _split_in_words(s.split)
    if s.held_out:
        counts = f"{s.held_out['validation']:,} of validation and {s.held_out['test']:,} of test in train"
        if others := s.held_out["test_validation"]:
            counts += f", {others:,} more of test in validation"
        done = {"drop": "left out", "keep": "kept", "mask": "kept, not evaluated"}.get(s.held_out["repeats"], "")
        yield "held-out pairs of an earlier part", f"{counts}: {done}"
    if s.updates:
        kinds = {
            "new_pairs": "new pair",
            "new_users": "new user",
            "new_items": "new item",
            "expired_pairs": "expired pair",
        }
        total = ", ".join(counted(sum(one[name] for one in s.updates), noun) for name, noun in kinds.items())
        yield "updates", f"{len(s.updates)} ({total}); pairs of all parts before are in train"


def _split_in_words(split: Mapping[str, Any]) -> str:
    """Return a split such as ``temporal, cut 2011-11-01; validation: 0.1 of train, temporal, seed 0``."""
    words = [str(split["method"])] if "method" in split else []
    for name, value in split.items():
        if name not in ("method", "carved"):
            shown = "/".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"{name.replace('_', ' ')} {shown}")
    carved = split.get("carved")
    if not isinstance(carved, Mapping):
        return ", ".join(words)
    share, method, seed = (carved.get(name) for name in ("share", "method", "seed"))
    return f"{', '.join(words)}; validation: {share} of train, {method}, seed {seed}"

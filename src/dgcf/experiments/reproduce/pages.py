"""What ``dgcf reproduce --render`` writes: the files of each experiment, the report, and the README's results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dgcf.experiments.reproduce.plan import Book
from dgcf.experiments.reproduce.render import fill_file, page_blocks, recorded_note, render, views
from dgcf.experiments.reproduce.store import Store
from dgcf.experiments.reproduce.summary import readme_block

REPORT = "docs/reproduction.md"


@dataclass(frozen=True)
class Rendered:
    """The files written, and by experiment the cells that are missing and why."""

    written: list[Path]
    missing: dict[str, dict[str, str]]


def write(book: Book, store: Store, name: str, project: Path) -> Rendered:
    """Draw one experiment, or with ``all`` every one; then the generated parts of the pages that are there."""
    shown = views(book, store, name)
    written = [path for view in shown for path in render(view, project / "docs" / "reproduction")]
    report, readme = project / REPORT, project / "README.md"
    blocks = page_blocks(shown)
    if name == "all":
        blocks["recorded"] = recorded_note(shown)
    if report.is_file() and fill_file(report, blocks):
        written.append(report)
    if name == "all" and readme.is_file() and fill_file(readme, {"results": readme_block(shown)}):
        written.append(readme)
    return Rendered(written, {view.experiment.name: view.missing for view in shown if view.missing})

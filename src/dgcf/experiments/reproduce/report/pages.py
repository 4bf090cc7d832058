"""What ``dgcf reproduce --render`` writes: the files of each experiment, the report, and the README's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgcf.experiments.reproduce.recipe import Recipes
from dgcf.experiments.reproduce.report.readme import SHOWN, readme_block
from dgcf.experiments.reproduce.report.render import Page, fill, recorded_note, views
from dgcf.experiments.reproduce.results import Store
from dgcf.files import atomic_file

REPORT, FOLDER = "docs/reproduction.md", "docs/reproduction"


@dataclass(frozen=True)
class Rendered:
    """The files written, and by experiment the cells that are missing and why."""

    written: list[Path]
    missing: dict[str, dict[str, str]]


def write(book: Recipes, store: Store, name: str, project: Path) -> Rendered:
    """Draw one experiment, or with ``all`` every one; then the generated parts of the pages that are there.

    Nothing is written before all of it is made.
    """
    shown = views(book, store, name)
    made = [Page(view) for view in shown]
    contents = {project / FOLDER / file: content for page in made for file, content in page.files().items()}
    blocks = report_blocks(made)
    if name == "all":
        blocks["recorded"] = recorded_note(shown)
    contents |= _filled(project / REPORT, blocks)
    if name == "all" and {*SHOWN} <= {page.name for page in made}:
        contents |= _filled(project / "README.md", {"results": readme_block(shown)})
    for path, content in contents.items():
        with atomic_file(path) as beside:
            beside.write_bytes(content)
    return Rendered(list(contents), {view.experiment.name: view.missing for view in shown if view.missing})


def report_blocks(made: Sequence[Page]) -> dict[str, str]:
    """The generated parts of the report, by experiment."""
    return {page.name: page.block(f"{Path(FOLDER).name}/") for page in made}


def _filled(path: Path, blocks: Mapping[str, str]) -> dict[Path, bytes]:
    """What becomes of a page, unless it is not there or stays as it is."""
    if not path.is_file():
        return {}
    before = path.read_text(encoding="utf-8")
    after = fill(before, blocks, str(path))
    return {} if after == before else {path: after.encode()}

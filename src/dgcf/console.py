"""A console without markup, and a progress bar on it; rich is imported, so import this where something is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from dgcf.text import printable, printable_line


class PlainConsole(Console):
    """A console without markup, that shows control characters as escapes."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


SHORT = 10
"""The width of a bar on a line that also has to hold text."""


def time_left() -> Sequence[ProgressColumn]:
    return TextColumn("ETA"), TimeRemainingColumn()


class Bar:
    """A progress bar, removed at its end; it shows nothing if the console is not a terminal.

    Before the bar stand a spinner and ``description``, after it ``detail`` and the ``times``.
    """

    def __init__(
        self,
        console: Console,
        description: str,
        total: float | None = None,
        completed: float = 0,
        *,
        times: Sequence[ProgressColumn] | None = None,
        width: int = 40,
    ) -> None:
        description_column, detail_column = (
            TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[detail]")
        )
        columns = (SpinnerColumn(), description_column, BarColumn(width), detail_column)
        times = (TimeElapsedColumn(), TimeRemainingColumn()) if times is None else times
        self.display = Progress(*columns, *times, console=console, transient=True, disable=not console.is_terminal)
        text = printable_line(description)
        self._task = self.display.add_task(text, total=total, completed=completed, detail="")  # type: ignore[arg-type]

    def start(self) -> Self:
        self.display.start()
        return self

    def stop(self) -> None:
        self.display.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def update(self, completed: float | None = None, total: float | None = None, **texts: str) -> None:
        """Set the counts that are not None, and the texts ``description`` and ``detail`` if they are given."""
        shown: dict[str, Any] = {name: printable_line(text) for name, text in texts.items()}
        self.display.update(self._task, completed=completed, total=total, **shown)

    def advance(self) -> None:
        """Count one more."""
        self.display.advance(self._task)

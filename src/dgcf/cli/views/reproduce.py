"""How the work of ``dgcf reproduce`` is shown: a bar over its cells on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from dgcf.cli.terminal import notify, progress
from dgcf.experiments.reproduce.runner import Watcher, describe


class Lines(Watcher):
    """For pipes and logs."""

    def began(self, todo: int, known: int) -> None:
        notify(f"cells: {known} recorded, {todo} to compute")

    def note(self, text: str) -> None:
        notify(text)

    def finished(self, line: Mapping[str, Any]) -> None:
        notify(describe(line))

    def taken_over(self, line: Mapping[str, Any], origin: str) -> None:
        notify(describe(line, origin))


class Bar(Lines):
    """The same above a bar that ends with the last cell."""

    def __init__(self) -> None:
        self.stack, self.done, self.todo = ExitStack(), 0, 0

    def began(self, todo: int, known: int) -> None:
        super().began(todo, known)
        self.done, self.todo = 0, todo
        if todo:
            self.update = self.stack.enter_context(progress("cells", todo))

    def finished(self, line: Mapping[str, Any]) -> None:
        super().finished(line)
        self.elsewhere(line)

    def taken_over(self, line: Mapping[str, Any], origin: str) -> None:
        super().taken_over(line, origin)
        self.elsewhere(line)

    def elsewhere(self, line: Mapping[str, Any]) -> None:
        self.done += 1
        if self.todo:
            self.update(min(self.done, self.todo), self.todo)

    def ended(self) -> None:
        self.stack.close()

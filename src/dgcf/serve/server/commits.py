"""The newest commit of a server, in the memory that its workers share."""

from __future__ import annotations

from dgcf.serve.events.commits import Commits
from dgcf.serve.server.board import Board, Field, Slot


class SharedCommits(Commits):
    """The newest commit of all workers; each writes its own slot."""

    def __init__(self, board: Board, slot: Slot) -> None:
        super().__init__()
        self._board, self._slot = board, slot

    def note(self, number: int) -> None:
        super().note(number)
        self._slot.set(Field.COMMIT, super().newest())

    def newest(self) -> int:
        return max(super().newest(), *self._board.values(Field.COMMIT))

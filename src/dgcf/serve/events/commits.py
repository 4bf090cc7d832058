"""The newest commit of a server, which all its processes see at once."""

from __future__ import annotations


class Commits:
    """The number of the newest commit of this process; a server of several processes shares it by a subclass."""

    def __init__(self) -> None:
        self._newest = 0

    def note(self, number: int) -> None:
        """Take note of a commit, before it is acknowledged; one thread calls this."""
        self._newest = max(self._newest, number)

    def newest(self) -> int:
        """Return the newest commit."""
        return self._newest

"""The records of a run, one line per epoch: appended, chained by checksums, truncated to a checkpoint."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dgcf.errors import ArtifactError, DataError
from dgcf.files import atomic_file
from dgcf.stored import Chain, InvalidFileError, chain_line, open_member, read_chain, read_member

RECORD_BYTES = 2**28
"""The largest file that is read: a million epochs."""
_ADVICE = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space")


class Records:
    """A file with a line for every finished epoch; each line has the fields ``required``.

    With ``checked=False`` lines without a checksum are read, too.
    """

    def __init__(self, path: Path, required: tuple[str, ...], *, checked: bool) -> None:
        self.path, self.required, self.checked = path, required, checked
        self._check: str | None = None  # of the last line, once it was read

    def append(self, record: Mapping[str, Any]) -> None:
        if self._check is None:
            self._check = self.read().check
        line, check = chain_line(record, self._check)
        append_text(self.path, line)
        self._check = check

    def read(self, at_least: int = 0) -> Chain:
        """Return the intact lines: all before the first that is damaged or not of its epoch.

        Fewer than ``at_least``, the number that a checkpoint counts as done, are refused.
        """
        try:
            data = read_member(self.path, RECORD_BYTES) if os.path.lexists(self.path) else b""
        except (OSError, InvalidFileError) as problem:
            raise ArtifactError(f"{self.path} cannot be read ({problem}); restore it from a copy.") from problem
        chain = read_chain(data, dict[str, float], checked=self.checked)
        for number, record in enumerate(chain.records, 1):
            if record.get("epoch") != number or not all(name in record for name in self.required):
                chain = Chain(chain.records[: number - 1], problem=f"line {number} is not of epoch {number}")
                break
        if len(chain.records) < at_least:
            why = f" ({chain.problem})" if chain.problem else ""
            raise ArtifactError(
                f"{self.path} ends at epoch {len(chain.records)}{why}, but the checkpoint is of epoch {at_least}; "
                "restore it from a copy, or train again."
            )
        return chain

    def cut(self, epochs: int) -> None:
        """Keep only the first ``epochs`` lines; create the file if there is none."""
        chain = self.read(epochs)
        self._check = chain.check
        if self.path.exists() and len(chain.records) == epochs and self.path.stat().st_size == chain.end:
            return
        text, self._check = "", ""
        for record in chain.records[:epochs]:
            line, self._check = chain_line(record, self._check)
            text += line
        with atomic_file(self.path) as beside:
            beside.write_text(text, encoding="utf-8")

    def sync(self) -> None:
        """Wait until every line is on the disk."""
        if self.path.exists():
            with open_member(self.path, "ab") as file:
                os.fsync(file.fileno())


def append_text(path: Path, text: str) -> None:
    """Append whole lines to a file. A line that a full disk leaves incomplete is removed when the run is resumed."""
    try:
        with open_member(path, "ab") as file:
            file.write(text.encode())
    except (OSError, InvalidFileError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        advice = _ADVICE.get(getattr(problem, "errno", None) or 0, "repair the folder")
        raise DataError(f"cannot write {path}: {reason}; {advice}, then continue with --resume.") from problem

"""Progress as plain lines."""

from __future__ import annotations

from dgcf.experiments.progress import ProgressLines


def test_a_line_for_each_event() -> None:
    lines: list[str] = []
    progress = ProgressLines("cells", lines.append)
    progress.started(2, 5)
    progress.job_ended("first")
    progress.job_ended("second", "best 0.5 in first")
    progress.job_ended()
    progress.note("A remark.")
    progress.started(7, None)
    progress.ended()
    assert lines == [
        "cells: 2 recorded, 3 to run",
        "first",
        "second; best 0.5 in first",
        "A remark.",
        "cells: 7 recorded",
    ]

"""Run verbs in this process, which saves importing torch each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dgcf.cli import application


def invoke(*words: str | Path) -> dict[str, Any]:
    """Return the JSON object that a verb prints."""
    done = CliRunner().invoke(application(), [*map(str, words), "--json"])
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def refusal(*words: str | Path) -> str:
    """Return the sentence of a verb that fails."""
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exit_code in (1, 2), done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr

"""Messages in Python name arguments where those of the command line name options."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import fields

from dgcf.data.columns import ReadOptions
from dgcf.errors import DgcfError

_FLAGS = {"--day-first": "day_first=True", "--month-first": "day_first=False", "--no-header": "header=False"}
_FLAGS |= {f"--{name}-ids": f"{name}_ids=True" for name in ("text", "trim")}
_NAMES = {field.name for field in fields(ReadOptions)} | {"window", "epochs", "held_out", "on"}
# A command in backticks stays as it is. The value of an option is quoted text, or one of --missing.
_OPTION = re.compile(r"`[^`]*`|--set (?=\w)|(--[a-z]+(?:-[a-z]+)*)(?:( skip\b)| (?=[\"']))?")


def as_arguments(text: str) -> str:
    """Return a message with the arguments of ``fit``, ``update`` and ``evaluate`` in place of options.

    >>> as_arguments("name it with --user-col, or pass --missing skip; see `dgcf data --help`.")
    "name it with user_col, or pass missing='skip'; see `dgcf data --help`."
    """
    return _OPTION.sub(_argument, text)


def _argument(match: re.Match[str]) -> str:
    option_text, option = match[0], match[1]
    if option is None:
        return "" if option_text.startswith("--set") else option_text
    name = option.removeprefix("--").replace("-", "_")
    if option in _FLAGS or name not in _NAMES:
        return _FLAGS.get(option, option) + option_text.removeprefix(option)
    if match[2]:
        return f"{name}='skip'"
    return f"{name}=" if option_text.endswith(" ") else name


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Name arguments in the messages of errors that are raised inside."""
    try:
        yield
    except DgcfError as problem:
        problem.args = (as_arguments(str(problem)),)
        raise

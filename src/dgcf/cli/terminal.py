"""The terminal: print results on stdout, and remarks, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import rich.table
import typer
from rich.text import Text
from typer import Option
from typer.core import TyperGroup

from dgcf import console
from dgcf.cli.failures import INTERRUPTED, Failure, failure_of, ignore_signals, stop_on_signals
from dgcf.cli.streams import ResultNotWrittenError, secure_streams
from dgcf.text import printable_json, printable_line

AsJson = Annotated[bool, Option("--json", help="Print the result as one JSON object on stdout.")]


_process = ""  # of several processes, the number of one that is not the first
out = console.PlainConsole()
err = console.PlainConsole(stderr=True)


class Table(rich.table.Table):
    """A table whose cells are folded where the terminal is narrow, and never cut: ids stay complete."""

    def add_column(self, header: Any = "", *words: Any, **options: Any) -> None:
        super().add_column(header, *words, **{"overflow": "fold", **options})


def bold(text: str) -> Text:
    """Return a text in bold; between double asterisks if stdout shows no styles, as a pipe or with NO_COLOR."""
    plain = not out.is_terminal or out.color_system is None or out.no_color
    return Text(f"**{text}**") if plain else Text(text, style="bold")


def notify(message: str) -> None:
    """Print a remark on stderr."""
    err.print(printable_line(message), soft_wrap=True)


def be_silent(rank: int) -> None:
    """Show nothing but errors of this process, by its number: the first one reports on the work that they share."""
    global _process
    out.quiet = err.quiet = True
    _process = f"process {rank}: "


def warn(message: str) -> None:
    """Print a warning on stderr."""
    _label("warning:", "yellow", message)


def _label(word: str, colour: str, message: str) -> None:
    err.print(Text.assemble((word, colour), " ", printable_line(message)), soft_wrap=True)


def emit(result: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print a result on stdout, as JSON or by calling ``show``."""
    if out.quiet:
        return
    if as_json:
        _print_json(result)
    else:
        show()


def _print_json(result: Mapping[str, Any]) -> None:
    """Print one line of JSON, with escapes if stdout is not UTF-8."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(_finite(result), ensure_ascii=not unicode, allow_nan=False)
    sys.stdout.write(printable_json(text) + "\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Bar(console.Bar):
    """A progress bar on stderr."""

    def __init__(
        self, description: str, total: float | None = None, completed: float = 0, *, short: bool = False
    ) -> None:
        """``short``: leave room for long texts on a line of 80 columns."""
        how: dict[str, Any] = {"times": console.time_left(), "width": console.SHORT} if short else {}
        super().__init__(err, description, total, completed, **how)


@contextlib.contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Callable[[float, float | None], None]]:
    """Show a bar, and yield its function ``update(completed, total)``."""
    with Bar(description, total) as bar:
        yield bar.update


class HelpIfAlone(TyperGroup):
    """A group of verbs that prints its help if no verb is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))


class Verbs(HelpIfAlone):
    """The group of all verbs, which reports what a verb raises."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of the help; typer has groups after single verbs."""
        from dgcf.cli import VERBS

        return [verb for verb in VERBS if verb in self.commands]

    def invoke(self, ctx: Any) -> Any:
        arguments = [*ctx._protected_args, *ctx.args]
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as problem:
            raise typer.Exit(report(problem, self, arguments)) from None


def run(app: typer.Typer) -> None:
    """Run the command line and exit; an error of the user is one sentence and a non-zero code, not a traceback."""
    secure_streams()
    stop_on_signals()
    warnings.showwarning = lambda message, *position, **options: warn(str(message))  # one line, without a position
    command = typer.main.get_command(app)
    try:
        code = command.main(standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as problem:  # before or after the verb
        code = report(problem, command, sys.argv[1:])
    ignore_signals()  # a late Ctrl-C must not change the exit code
    sys.exit(code if isinstance(code, int) else 0)


def report(problem: BaseException, command: Any, arguments: Sequence[str]) -> int:
    """Print an error as one sentence, with ``--json`` also as an object on stdout, and return the exit code."""
    name, silent = type(problem).__name__, out.quiet
    failure = failure_of(problem, lambda: _command_path(command, arguments))
    if silent and failure is not None and (failure.code == INTERRUPTED or getattr(problem, "shown_elsewhere", False)):
        return failure.code
    err.quiet = False
    if failure is None or os.environ.get("DGCF_DEBUG"):
        err.print("".join(traceback.format_exception(problem)).rstrip(), soft_wrap=True)
    if failure is None:
        failure = Failure("internal", f"{name}: {problem}; this is a bug in dgcf, please report it.")
    if failure.code == INTERRUPTED:
        notify(failure.message)
    else:
        _label("error:", "red", _process + failure.message)
    if "--json" in arguments and not silent and not isinstance(problem, ResultNotWrittenError):
        with contextlib.suppress(OSError):
            _print_json(failure.to_dict())
    return failure.code


def _command_path(command: Any, arguments: Sequence[str]) -> str:
    """Return the arguments that name a command, such as ``dgcf data prepare``."""
    path = "dgcf"
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        path += f" {argument}"
    return path

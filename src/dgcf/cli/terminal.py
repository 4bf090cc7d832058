"""How every verb speaks: results on stdout, everything else on stderr, one sentence for what went wrong."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer.core import TyperGroup

from dgcf.errors import DgcfError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]

STOPPED = "stopped by the keyboard; nothing was left half-written."

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """A remark to the person at the keyboard; never part of the result."""
    err.print(message, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    err.print(f"[yellow]warning:[/] {_escaped(message)}", soft_wrap=True)


def emit(result: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print a result: the whole of it as JSON, or as ``show`` draws it for a person."""
    if as_json:
        sys.stdout.write(json.dumps(_finite(result), ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        show()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float, float | None], None]]:
    """A bar on stderr while something takes its time; silent where stderr is not a terminal.

    Gives a function ``update(completed, total)``.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda completed, whole: bar.update(task, completed=completed, total=whole)


class Verbs(TyperGroup):
    """The group of all verbs: our own errors become one sentence, and Ctrl-C too (typer would leave without a word)."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DgcfError as problem:
            raise typer.Exit(fail(str(problem), 1)) from None
        except KeyboardInterrupt:
            raise typer.Exit(fail(STOPPED, 130)) from None
        except RuntimeError as problem:
            if "Query interrupted" not in str(problem):  # how DuckDB says that it heard Ctrl-C
                raise
            raise typer.Exit(fail(STOPPED, 130)) from None


def run(app: typer.Typer) -> None:
    """Run the command line; whatever the user can mend is one sentence and a non-zero exit, never a traceback."""
    # Ids are any text; a terminal that cannot show a letter is no reason to fail.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    command = typer.main.get_command(app)
    try:
        code = command.main(standalone_mode=False)
        sys.stdout.flush()
    except OSError as problem:
        # Whoever read our output may have gone (`… | head`), or its disk is full; either way nobody reads the rest.
        gone = isinstance(problem, BrokenPipeError)
        code = 0 if gone else fail(f"cannot write the result: {problem.strerror or problem}; free some space.", 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as problem:
        code = _usage(problem, command)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(problem: Exception, command: Any) -> int:
    """The command line's own refusals, known by what they carry: typer brings its own click, of which this is none."""
    context = getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError" and context is not None:
        typer.echo(context.get_help(), err=True)
        return 2
    if type(problem).__name__ == "Abort":
        return fail(STOPPED, 130)
    if not hasattr(problem, "format_message"):
        raise problem
    message = " ".join(str(problem.format_message()).split()).rstrip(".")
    path = context.command_path if context is not None else _asked(command)
    return fail(f"{message}; `{path} --help` shows what is expected.", int(getattr(problem, "exit_code", 2)))


def _asked(command: Any) -> str:
    """The verb that was called, for a refusal that does not say: the words that name a command."""
    path = "dgcf"
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path += f" {word}"
    return path


def fail(message: str, code: int) -> int:
    """Say what went wrong, in one sentence; the exit code."""
    err.print(f"[red]error:[/] {_escaped(message)}", soft_wrap=True)
    return code


def _escaped(message: str) -> str:
    from rich.markup import escape

    return escape(message)

"""The options of reading a file, written once: a verb that asks for ``read`` gets all of them on its command line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dgcf.data.readers import FORMATS, ReadOptions

PANEL = "How to read a file"


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL, show_default=False)


def _options(
    format: Annotated[str | None, _option("--format", text=f"One of {', '.join(FORMATS)}; found by default.")] = None,
    user_col: Annotated[
        str | None, _option("--user-col", text="Column of the user: a name, or a place from 0.")
    ] = None,
    item_col: Annotated[str | None, _option("--item-col", text="Column of the item.")] = None,
    rating_col: Annotated[str | None, _option("--rating-col", text="Column of the rating; `none` ignores it.")] = None,
    timestamp_col: Annotated[
        str | None, _option("--timestamp-col", text="Column of the time; `none` ignores it.")
    ] = None,
    delimiter: Annotated[str | None, _option("--delimiter", text="What separates the columns.")] = None,
    header: Annotated[bool | None, _option("--header/--no-header", text="Whether the first line is a header.")] = None,
    encoding: Annotated[
        str, _option("--encoding", text="utf-8 (default), latin-1, windows-1252, utf-16, utf-16-le or utf-16-be.")
    ] = "utf-8",
    text_ids: Annotated[bool, _option("--text-ids", text="Take ids as mere text, negative numbers included.")] = False,
    trim_ids: Annotated[bool, _option("--trim-ids", text="Cut blanks off the ends of ids.")] = False,
) -> None:
    """The fields of ``ReadOptions`` as the command line has them; only the signature is used."""


def reads_a_file(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace a verb's parameter ``read`` by the options of reading; the verb gets them as one ``ReadOptions``."""
    own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name != "read"]
    reading = list(inspect.signature(_options, eval_str=True).parameters.values())

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        read = ReadOptions(**{option.name: given.pop(option.name) for option in reading})
        verb(read=read, **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *reading)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run

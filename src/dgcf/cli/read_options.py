"""The options of reading a file, defined once for all verbs that have a parameter ``read``."""

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
    format: Annotated[str | None, _option("--format", text=f"{', '.join(FORMATS)}; detected by default.")] = None,
    user_col: Annotated[
        str | None, _option("--user-col", text="Column of the user: a name, or an index from 0.")
    ] = None,
    item_col: Annotated[str | None, _option("--item-col", text="Column of the item.")] = None,
    rating_col: Annotated[str | None, _option("--rating-col", text="Column of the rating; `none` ignores it.")] = None,
    timestamp_col: Annotated[
        str | None, _option("--timestamp-col", text="Column of the time; `none` ignores it.")
    ] = None,
    delimiter: Annotated[str | None, _option("--delimiter", text="Column separator.")] = None,
    header: Annotated[bool | None, _option("--header/--no-header", text="Whether the first line is a header.")] = None,
    encoding: Annotated[
        str, _option("--encoding", text="utf-8 (default), latin-1, windows-1252, utf-16, utf-16-le or utf-16-be.")
    ] = "utf-8",
    text_ids: Annotated[bool, _option("--text-ids", text="Take ids as text, negative numbers included.")] = False,
    trim_ids: Annotated[bool, _option("--trim-ids", text="Strip spaces around ids.")] = False,
) -> None:
    """Hold the fields of ``ReadOptions`` as options; only the signature is used."""


def with_read_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace a verb's parameter ``read`` by the options of reading, and pass them on as one ``ReadOptions``."""
    own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name != "read"]
    reading = list(inspect.signature(_options, eval_str=True).parameters.values())

    @functools.wraps(verb)
    def run(**options: Any) -> None:
        read = ReadOptions(**{option.name: options.pop(option.name) for option in reading})
        verb(read=read, **options)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *reading)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run

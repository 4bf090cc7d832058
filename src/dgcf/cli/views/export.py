"""Show where an export was written, and how much of the exact lists it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgcf.cli.terminal import out, warn


def draw(result: Mapping[str, Any]) -> None:
    """Print the place of an export, and the check of a vector database."""
    out.print(f"written to {_place(result)}", soft_wrap=True)
    if "load" in result:
        out.print(f"load it with {result['load']}", soft_wrap=True)
    if "check" not in result:
        return
    check, searched = result["check"], result.get("parameters") or {}
    how = ", ".join([str(result["index"]), *(f"{name} {value}" for name, value in searched.items())])
    out.print(
        f"recall@{check['k']} {check['recall']:.4f} against the exact lists of {check['users']:,} users (seen items "
        f"included); {check['recall_of_vectors']:.4f} against the exact inner products (index {how})",
        soft_wrap=True,
    )
    if result["lost"]:
        warn(f"the vectors give {result['scores']}, but lack {result['lost']}.")


def _place(result: Mapping[str, Any]) -> str:
    names = result.get("tables") or result.get("collections")
    where = [result.get(key) for key in ("out", "url", "uri", "host")]
    place = next((str(each) for each in where if each), "the database")
    return f"{' and '.join(names)} in {place}" if names else place

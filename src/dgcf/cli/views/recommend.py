"""Show recommendations and neighbours as ranked tables, and the explanation of a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgcf.cli.terminal import Table, notify, out

if TYPE_CHECKING:
    from dgcf.recommend import Explanation


def draw(answer: Mapping[str, Any]) -> None:
    """Print the recommendations for one user, then the notes."""
    liked = ", ".join(item["title"] for item in answer.get("items", []))
    user = "a new user" if answer["user"] is None else f"user {answer['user']}"
    _draw_ranked(answer["recommendations"], f"For {user}{f' who likes {liked}' if liked else ''}", answer["notes"])


def draw_users(answer: Mapping[str, Any]) -> None:
    """Print the recommendations for several users, then the notes."""
    for entry in answer["users"]:
        _draw_ranked(entry["recommendations"], f"For user {entry['user']}", ())
    for note in answer["notes"]:
        notify(f"note: {note}")


def draw_similar(answer: Mapping[str, Any]) -> None:
    """Print the nearest neighbours of an item or a user, then the notes."""
    side = "item" if "item" in answer else "user"
    rows = [{**row, "item": row[side]} for row in answer["similar"]]
    _draw_ranked(rows, f"Similar to {answer['title'] or answer[side]}", answer["notes"])


def draw_batch(result: Mapping[str, Any], n_items: int, target: Path) -> None:
    """Print what was written for all users."""
    if result["k"] > n_items:
        notify(f"note: k is {result['k']}, but there are {n_items:,} items; the lists are shorter.")
    if result["resumed"]:
        notify(f"note: {result['resumed']} chunks of an interrupted command were reused.")
    for note in result["notes"]:
        notify(f"note: {note}")
    out.print(
        f"{result['rows']:,} recommendations for {result['users']:,} users in {result['seconds']:.1f} s, "
        f"written to {target}",
        soft_wrap=True,
    )


def _draw_ranked(rows: Sequence[Mapping[str, Any]], title: str, notes: Sequence[str]) -> None:
    """Print rows with rank, item, score, and title if there are titles; then the reasons, which are sentences."""
    titled = any(row["title"] for row in rows)
    table = Table(title=title)
    table.add_column("", justify="right")
    table.add_column("id")
    if titled:
        table.add_column("title")
    table.add_column("score", justify="right")
    for row in rows:
        table.add_row(str(row["rank"]), str(row["item"]), *([row["title"]] if titled else []), f"{row['score']:.4f}")
    out.print(table)
    for row in rows:
        if "why" in row:
            out.print(f"{row['rank']}. {row['why']}", soft_wrap=True)
    for note in notes:
        notify(f"note: {note}")


def draw_explanation(explanation: Explanation, top: int, chart: Path | None) -> None:
    """Print an explanation with its ``top`` largest parts of each kind; 0 is all."""
    out.print(explanation.text(), soft_wrap=True)
    table = (explanation.top(top) if top else explanation).table()
    out.print(table.to_rich(len(table)))
    layers = ", ".join(f"{number}: {value:.4f}" for number, value in enumerate(explanation.by_layer))
    out.print(f"by layer: {layers}; unexplained: {explanation.residual:.1e}", soft_wrap=True)
    if chart is not None:
        out.print(f"chart written to {chart}", soft_wrap=True)

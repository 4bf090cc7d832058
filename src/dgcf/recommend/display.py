"""A recommender as one line of text, and as HTML for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from dgcf.recommend.heldout import metrics_table

if TYPE_CHECKING:
    from dgcf.recommend.recommender import Recommender

_HEADLINE = ("ndcg@", "recall@")


def text(rec: Recommender) -> str:
    """Return one line: the model; its size and a metric if it is fitted, else the parameters that were given."""
    if not rec.__sklearn_is_fitted__():
        given = {name: getattr(rec, name) for name in ("preset", "seed") if getattr(rec, name) != _USUAL[name]}
        words = [repr(rec.model), *(f"{name}={value!r}" for name, value in {**given, **rec.given}.items())]
        return f"<Recommender({', '.join(words)}), not fitted>"
    return f"<Recommender {_headline(rec)}>"


def page(rec: Recommender) -> str:
    """Return an HTML table of the metrics on each split, below the headline."""
    if not rec.__sklearn_is_fitted__():
        return f"<p>{html.escape(text(rec))}</p>"
    splits = {split: metrics for split, metrics in rec.metrics.items() if metrics}
    return metrics_table(_size(rec), splits)


def _size(rec: Recommender) -> str:
    known = rec.snapshot
    name = known.about.get("dataset", {}).get("name", "")
    return f"{rec.model}: {known.n_users:,} users, {known.n_items:,} items{f' of {name}' if name else ''}"


def _headline(rec: Recommender) -> str:
    words = [_size(rec)]
    for split, metrics in rec.metrics.items():
        best = next((name for start in _HEADLINE for name in metrics if name.startswith(start)), None)
        words += [] if best is None else [f"{split} {best} {metrics[best]:.4f}"]
    return "; ".join(words)


_USUAL = {"preset": "default", "seed": 0}

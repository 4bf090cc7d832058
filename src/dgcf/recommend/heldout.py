"""What a recommender can be measured on, and its metrics."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgcf.recommend.snapshot import Snapshot

if TYPE_CHECKING:
    from dgcf.data import Dataset
    from dgcf.evaluate.evaluation import Evaluation


@dataclass(frozen=True)
class HeldOut:
    """The dataset that a recommender was fitted to, or a function that loads it; None if it is not known.

    ``everything``: the recommender was trained on the pairs of all splits. ``require`` raises an error if it cannot be
    measured on the dataset.
    """

    dataset: Dataset | Callable[[], Dataset] | None = None
    everything: bool = False
    require: Callable[[], None] = lambda: None

    def load(self) -> Dataset | None:
        """Return the dataset as the recommender was trained on it; None if it is not known."""
        from dgcf.data.everything import everything

        dataset = self.dataset() if callable(self.dataset) else self.dataset
        return everything(dataset) if dataset is not None and self.everything else dataset


class Measurement(Mapping[str, float]):
    """The means of an evaluation by metric, such as ``measured["recall@20"]``; ``evaluation`` has the rest."""

    def __init__(self, evaluation: Evaluation, model: str) -> None:
        self.evaluation, self.model = evaluation, model

    @property
    def split(self) -> str:
        """The split with the relevant items."""
        return self.evaluation.split

    @property
    def mask(self) -> str:
        """The splits whose items were hidden."""
        return self.evaluation.mask

    @property
    def users_evaluated(self) -> int:
        return self.evaluation.users_evaluated

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data, as `dgcf evaluate --json` has it."""
        return self.evaluation.to_dict()

    def __getitem__(self, metric: str) -> float:
        return self.evaluation.means[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evaluation.means)

    def __len__(self) -> int:
        return len(self.evaluation.means)

    @property
    def _protocol(self) -> str:
        return f"{self.model}, {self.split}, mask {self.mask}, {self.users_evaluated:,} users"

    def __repr__(self) -> str:
        return f"<{self._protocol}: {', '.join(f'{name} {value:.4f}' for name, value in self.items())}>"

    def _repr_html_(self) -> str:
        return metrics_table(self._protocol, {self.split: self})


def validation_metrics(snapshot: Snapshot) -> dict[str, float]:
    """Return the validation metrics of the best epoch; empty if nothing was held out."""
    recorded = snapshot.about.get("metrics")
    recorded = recorded if isinstance(recorded, Mapping) else {}
    return {name: float(value) for name, value in recorded.items() if "@" in name and isinstance(value, int | float)}


def metrics_table(title: str, splits: Mapping[str, Mapping[str, float]]) -> str:
    """Return an HTML table with a row for each metric and a column for each split."""
    names = list(dict.fromkeys(name for values in splits.values() for name in values))
    head = "".join(f"<th>{html.escape(word)}</th>" for word in ("metric", *splits))
    rows = [
        f"<td>{html.escape(name)}</td>"
        + "".join(f"<td>{values[name]:.4f}</td>" if name in values else "<td></td>" for values in splits.values())
        for name in names
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

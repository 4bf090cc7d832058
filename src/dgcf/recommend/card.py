"""The model card: what a trained model is, from which data, and how it was measured; as JSON data and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dgcf.recommend.heldout import Measurement, validation_metrics

if TYPE_CHECKING:
    from dgcf.recommend.recommender import Recommender
    from dgcf.recommend.snapshot import Snapshot

_COUNTS = ("new_pairs", "new_users", "new_items", "expired_pairs")


def model_card(recommender: Recommender) -> dict[str, Any]:
    """Return the card of a fitted or loaded recommender as JSON data; what is not known is None.

    ``data``: name, fingerprint, numbers of users, items and training pairs, ``window`` (the first and the last time of
    the training pairs) and ``split``. ``metrics`` is a list with the split, mask, cut-offs and values of each
    measurement. ``updated_from`` identifies the model that an update continued.
    """
    snapshot, about = recommender.snapshot, recommender.snapshot.about
    embeddings = snapshot.ranking.embeddings
    return {
        "model": snapshot.model,
        "preset": about.get("preset"),
        "seed": about.get("seed"),
        "epochs": about.get("epochs"),
        "dim": None if embeddings is None else embeddings.dim,
        "item_weights": snapshot.ranking.item_weights is not None,
        "settings": {**about.get("settings", {}), **about.get("blend", {})},
        "data": _data(snapshot),
        "metrics": [*_validation(snapshot), *map(_measured, recommender.measurements.values())],
        "trained_at": about.get("trained_at"),
        "dgcf": about.get("dgcf"),
        "updated_from": _parent(about.get("update")),
    }


def _data(snapshot: Snapshot) -> dict[str, Any]:
    dataset, train = snapshot.about.get("dataset", {}), snapshot.train
    window = dataset.get("window")
    return {
        "name": dataset.get("name"),
        "fingerprint": dataset.get("fingerprint"),
        "users": snapshot.n_users,
        "items": snapshot.n_items,
        "pairs": len(train),
        "window": {"first": window[0], "last": window[1]} if window else None,
        "split": dataset.get("split"),
    }


def _validation(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the measurement by which the best epoch was chosen; none if nothing was held out."""
    values = validation_metrics(snapshot)
    if not values:
        return []
    cut_offs = sorted({int(name.rpartition("@")[2]) for name in values})
    return [{"split": "validation", "mask": "train", "k": cut_offs, "users": None, "values": values}]


def _measured(measurement: Measurement) -> dict[str, Any]:
    return {
        "split": measurement.split,
        "mask": measurement.mask,
        "k": list(measurement.evaluation.ks),
        "users": measurement.users_evaluated,
        "values": dict(measurement),
    }


def _parent(update: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the parent of an update by name and hashes, and the numbers of pairs, users and items that changed."""
    if update is None:
        return None
    parent = update.get("parent", {})
    identity = {name: parent.get(name) for name in ("name", "weights", "fingerprint")}
    return {**identity, **{name: update.get(name) for name in _COUNTS}}


def card_markdown(card: Mapping[str, Any], name: str | None = None, load: str | None = None) -> str:
    """Return a card as Markdown with a YAML front matter, as model hubs read it.

    ``name``: the heading, by default the model and its data; ``load``: what ``dgcf.load`` is called with.
    """
    data = card["data"]
    title = name or f"{card['model']} on {data['name'] or 'user-item pairs'}"
    parts = [
        _front_matter(card, title),
        f"# {_line(title)}",
        f"A recommender of `dgcf`: the model `{card['model']}`, trained on {data['pairs']:,} pairs of "
        f"{data['users']:,} users and {data['items']:,} items.",
        "## Data",
        _table(_data_rows(data)),
        "## Metrics",
        _metrics(card["metrics"]),
        *(["## Update", _table(card["updated_from"])] if card["updated_from"] else []),
        "## Model",
        _table({name: card[name] for name in ("model", "preset", "seed", "epochs", "dim", "trained_at", "dgcf")}),
        "## Settings",
        _table(card["settings"]) if card["settings"] else "The settings are not recorded.",
        "## Use",
        _use(load or "model.dgcf"),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(card: Mapping[str, Any], title: str) -> str:
    """Return the front matter; each value is JSON, which is YAML, so that any name is quoted."""
    entries: dict[str, Any] = {
        "library_name": "dgcf",
        "tags": ["recommender-system", "collaborative-filtering", card["model"]],
    }
    data, first = card["data"], next(iter(reversed(card["metrics"])), None)
    if first is not None:
        dataset = {"type": data["name"] or "unknown", "name": data["name"] or "unknown", "split": first["split"]}
        metrics = [{"type": metric, "value": value} for metric, value in first["values"].items()]
        task = {"type": "recommendation", "name": f"ranking of all items, mask {first['mask']}"}
        result = {"task": task, "dataset": dataset, "metrics": metrics}
        entries["model-index"] = [{"name": title, "results": [result]}]
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
    return "\n".join(["---", *lines, "---"])


def _data_rows(data: Mapping[str, Any]) -> dict[str, Any]:
    window, split = data["window"], data["split"]
    return {
        "name": data["name"],
        "fingerprint": data["fingerprint"],
        "first and last training pair": None if window is None else f"{window['first']} to {window['last']}",
        "training pairs": f"{data['pairs']:,}",
        "users": f"{data['users']:,}",
        "items": f"{data['items']:,}",
        "split": None if split is None else json.dumps(split, ensure_ascii=False),
    }


def _metrics(measurements: list[dict[str, Any]]) -> str:
    """Return a table for each measurement, under its protocol."""
    if not measurements:
        return "Nothing was held out, so that no metric was measured."
    tables = []
    for one in measurements:
        users = "" if one["users"] is None else f", {one['users']:,} users"
        best = " By this the epoch was chosen." if one["split"] == "validation" else ""
        head = f"On the split {one['split']}, all items ranked without those of {one['mask']}{users}.{best}"
        tables.append(f"{head}\n\n{_table({name: f'{value:.4f}' for name, value in one['values'].items()})}")
    return "\n\n".join(tables)


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {_line(str(name))} | {_line(_shown(value))} |" for name, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _shown(value: Any) -> str:
    return "not known" if value is None else value if isinstance(value, str) else json.dumps(value)


def _line(text: str) -> str:
    """Return text for one line or cell of Markdown; marks that would end it or start HTML are written as entities."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return " ".join(escaped.split())


def _use(load: str) -> str:
    return (
        f"```python\nimport dgcf\n\nrec = dgcf.load({json.dumps(load)})\n"
        'rec.recommend("USER", k=10)\nrec.recommend_for(["ITEM", "ITEM"], k=10)  # a new user\n```'
    )

"""What the page shows of a model: its description, and the data of its charts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from dgcf.ranking.arrays import Floats, Side
from dgcf.recommend.foldin import FoldIn
from dgcf.recommend.snapshot import Snapshot
from dgcf.serve.engine.served import Served
from dgcf.version import __version__

STEPS = 20
MOST_NODES = 20_000
"""Graphs with more nodes show no walk: the matrix of messages would take long to build."""
_BINS = 8
_NOT_METRICS = ("epoch", "loss")


def describe(served: Served) -> dict[str, Any]:
    """Return what a model is: settings, metrics, data, version."""
    snapshot, about = served.snapshot, served.snapshot.about
    dataset = about.get("dataset", {})
    metrics = {name: value for name, value in about.get("metrics", {}).items() if name not in _NOT_METRICS}
    return {
        "version": served.version,
        "model": snapshot.model,
        "preset": about.get("preset"),
        "seed": about.get("seed"),
        "settings": {**about.get("settings", {}), **about.get("blend", {})},
        "metrics": metrics,
        "mask": "validation pairs; training items are not ranked" if metrics else None,
        "dataset": {"name": dataset.get("name"), "fingerprint": dataset.get("fingerprint")},
        "sha256": served.sha256,
        "loaded": served.loaded.isoformat(timespec="seconds"),
        "users": snapshot.n_users,
        "items": snapshot.n_items,
        "pairs": len(snapshot.train),
        "dgcf": about.get("dgcf", __version__),
        "card": served.card,
    }


def charts(served: Served) -> dict[str, Any]:
    """Return the data of the charts; None where the model has nothing to show."""
    snapshot = served.snapshot
    return {
        "model": served.version,
        "gates": _gates(snapshot),
        "oscillation": _oscillation(served),
        "loss": _loss(served.source, snapshot),
        "blend": _blend(snapshot),
    }


def _gates(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the gates of nodes by their degree, in bins of about as many nodes."""
    if snapshot.layers is None or snapshot.layers.gate_logits is None:
        return None
    degrees: dict[Side, NDArray[Any]] = {
        "user": snapshot.train.user_degrees,
        "item": snapshot.train.item_degrees,
    }
    bins = []
    for side, degree in degrees.items():
        first = 0 if side == "user" else snapshot.n_users
        trained = np.flatnonzero(degree)
        edges = np.unique(np.quantile(degree[trained], np.linspace(0, 1, _BINS + 1)).astype(int))
        place = np.clip(np.searchsorted(edges, degree[trained], side="right") - 1, 0, max(len(edges) - 2, 0))
        for layer in range(1, len(snapshot.layers.gate_logits) + 1):
            gate = snapshot.layers.gate(layer, first + trained)
            for number in np.unique(place).tolist():
                own, of = gate[place == number], degree[trained][place == number]
                low, high = np.quantile(own, [0.1, 0.9]).tolist()
                bins.append(
                    {"side": side, "layer": layer, "degree_low": int(of.min()), "degree_high": int(of.max())}
                    | {"nodes": len(own), "mean": float(own.mean()), "low": low, "high": high}
                )
    return {"bins": bins, "note": "Bars span the 10th to the 90th percentile of the nodes of a degree."}


def _oscillation(served: Served) -> dict[str, Any] | None:
    """Return the gaps of successive steps of a random walk on L, and on the operator of the model."""
    snapshot = served.snapshot
    if snapshot.rule is None or snapshot.layers is None:
        return None
    train, n = snapshot.train, snapshot.n_users + snapshot.n_items
    if n > MOST_NODES:
        return None
    rows, columns = train.user_idx.astype(np.int64), train.indices.astype(np.int64)
    scale = 1.0 / np.sqrt(train.user_degrees[rows].astype(float) * train.item_degrees[columns])
    half = coo_array((scale, (rows, snapshot.n_users + columns)), shape=(n, n))
    L = csr_array(half + half.T)
    labels = connected_components(L, directed=False)[1]
    nodes = np.flatnonzero(labels == np.bincount(labels).argmax())
    own = _operator(served.prepared.folding, nodes)
    name = "+".join(
        [*(["L"] if snapshot.rule.direct else []), *(["Lc"] if snapshot.rule.cross else [])]
        + (["I"] if snapshot.rule.self_loop else [])
    )
    gaps = {"L": _gaps(csr_array(L[nodes][:, nodes])), name: _gaps(csr_array(own[nodes][:, nodes]))}
    return {"gaps": gaps, "note": "‖x(t) − x(t+1)‖₁ of a walk from the uniform distribution, on the largest component."}


def _operator(folding: FoldIn, nodes: NDArray[Any]) -> csr_array:
    """Return the rows of M of some nodes, as a matrix of all nodes."""
    n_users, n = folding.snapshot.n_users, folding.snapshot.n_users + folding.snapshot.n_items
    data, row, column = list[Floats](), list[NDArray[Any]](), list[NDArray[Any]]()
    for node in nodes.tolist():
        side: Side = "user" if node < n_users else "item"
        index = node - (0 if side == "user" else n_users)
        of = folding.neighbours.row(side, folding.neighbours.of(side, index), index)
        across = of.across + (n_users if side == "user" else 0)
        alike = of.alike + (0 if side == "user" else n_users)
        columns = np.concatenate([across, alike, [node]])
        data.append(np.concatenate([of.across_weight, of.alike_weight, [of.own]]))
        row.append(np.full(len(columns), node))
        column.append(columns)
    entries = np.concatenate(data), (np.concatenate(row), np.concatenate(column))
    return csr_array(coo_array(entries, shape=(n, n)))


def _gaps(matrix: csr_array) -> list[float]:
    transition = csr_array(matrix / np.maximum(matrix.sum(axis=0), 1e-300)[None, :])
    x = np.full(matrix.shape[0], 1.0 / matrix.shape[0])
    gaps = []
    for _ in range(STEPS):
        following = transition @ x
        gaps.append(float(np.abs(x - following).sum()))
        x = following
    return gaps


def _loss(source: Path, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return loss and metric by epoch, of a model that was given as its run folder."""
    path = source / "metrics.jsonl"
    if "refresh" in snapshot.about or not path.is_file():  # the folder is that of the model before
        return None
    metric = str(snapshot.about.get("settings", {}).get("metric", "ndcg@20"))
    epochs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
            epochs.append({"epoch": int(record["epoch"]), "loss": record.get("loss"), "metric": record.get(metric)})
        except (ValueError, KeyError, TypeError):
            continue
    if not epochs:
        return None
    return {"epochs": epochs, "metric": metric, "best": snapshot.about.get("epochs")}


def _blend(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the parts of a composed ranking and their weights."""
    blend = snapshot.about.get("blend") or {}
    names = re.findall(r"[^+(]+(?:\([^)]*\))?", str(blend.get("blend") or ""))
    weights = str(blend.get("blend_weights") or "").split("+")
    if not names or len(names) != len(weights):
        return None
    parts = [{"name": "embeddings", "weight": 1.0}]
    parts += [{"name": name, "weight": float(weight)} for name, weight in zip(names, weights, strict=True)]
    return {"parts": parts}

"""The benchmark of defaults: its generated logs, and its tables as functions of the records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.defaults import DATASETS, best_baseline, latest, planned, tables
from benchmarks.generated import Log, movies, retail
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from dgcf.data import load

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("draw", [retail, movies])
def test_a_seed_gives_the_same_log_and_another_seed_another(draw: Callable[..., Log]) -> None:
    one, same, other = draw(200, 150, seed=1), draw(200, 150, seed=1), draw(200, 150, seed=2)
    assert np.array_equal(one.user_idx, same.user_idx)
    assert np.array_equal(one.item_idx, same.item_idx)
    assert not (len(one) == len(other) and np.array_equal(one.item_idx, other.item_idx))


@pytest.mark.parametrize(("name", "draw"), [("retail", retail), ("movies", movies)])
def test_recorded_results_are_of_the_generated_log(tmp_path: Path, name: str, draw: Callable[..., Log]) -> None:
    sizes = {"retail": (4000, 3600, 120_000), "movies": (3000, 2000, 200_000)}
    log, (n_users, n_items, n_pairs) = draw(), sizes[name]
    keys = log.user_idx * n_items + log.item_idx
    assert (np.diff(keys) > 0).all()  # each pair once, ascending
    assert np.array_equal(np.unique(log.user_idx), np.arange(n_users))
    assert log.item_idx.max() < n_items
    assert len(log) == pytest.approx(n_pairs, rel=0.03)

    dataset = load(log.write(tmp_path / f"{name}.csv"))
    assert sum(len(dataset.split(split)) for split in ("train", "validation", "test")) == len(log)
    recorded = {record["fingerprint"] for record in committed() if record["dataset"] == name}
    assert recorded == {dataset.fingerprint}


def test_a_shop_sells_complements_and_clusters_and_few_items_most_often() -> None:
    log = retail()
    sold = np.sort(np.bincount(log.item_idx, minlength=3600))[::-1]
    assert sold[:360].sum() > 0.35 * len(log)  # a tenth of the items
    assert sold[0] < 0.2 * 4000  # and yet nothing that everybody buys
    bought = csr_array((np.ones(len(log)), (log.user_idx, log.item_idx)), shape=(4000, 3600))
    together = (bought.T @ bought).toarray()
    expected = np.outer(np.diag(together), np.diag(together)) / 4000
    np.fill_diagonal(together, 0)
    often = np.diag(expected) ** 0.5 > 1
    lift = (together / np.maximum(expected, 1e-9))[often].max(axis=1)
    assert np.median(lift) > 5  # most items have another that is bought with them far more often than by chance


def test_tastes_of_a_film_service_are_of_low_rank() -> None:
    log = movies()
    X = csr_array((np.ones(len(log)), (log.user_idx, log.item_idx)), shape=(3000, 2000)).toarray()
    expected = np.outer(X.mean(axis=1), X.mean(axis=0)) / X.mean()
    residual = (X - expected) / np.sqrt(expected)
    values = np.sort(svds(residual, k=24, v0=np.ones(2000), return_singular_vectors=False) ** 2)[::-1]
    assert values[:12].sum() > 3 * values[12:].sum()


def record(dataset: str, model: str, variant: str, quality: float, **more: Any) -> dict[str, Any]:
    metrics = {"recall@20": quality + 0.1, "ndcg@20": quality}
    tuned = {"trials": 30, "tuning_seconds": 12.3, "tuned": ["l2"]} if variant == "tuned" else {}
    return {
        "dataset": dataset,
        "fingerprint": "f",
        "model": model,
        "variant": variant,
        "settings": {"l2": 123.456, "other": 1},
        "seed": 0,
        "mask": "train",
        "users": 1234,
        "metrics": {"validation": metrics, "test": metrics},
        "seconds": 0.5,
        **tuned,
        **more,
    }


def test_a_table_shows_each_kind_once_and_the_best_baseline() -> None:
    records = [
        record("shop", "ease", "default", 0.9, fingerprint="of an earlier edition"),
        record("shop", "ease", "default", 0.2),
        record("shop", "ease", "tuned", 0.25),
        record("shop", "dgcf", "default", 0.1),
        record("other", "ials", "default", 0.3),
        record("shop", "dgcf", "default", 0.3),
    ]
    shown = tables(records)
    assert shown == tables([json.loads(json.dumps(entry)) for entry in records])
    shop, other = shown.split("\n\nother: ")
    assert shop.splitlines() == [
        "shop: mask train, 1,234 users",
        "",
        "| model | settings | test recall@20 | test ndcg@20 | validation ndcg@20 | s | s of tuning |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ease | defaults | 0.3000 | 0.2000 | 0.2000 | 0.5 |  |",
        "| ease | l2=123.5 | **0.3500** | **0.2500** | **0.2500** | 0.5 | 12 |",
        "| dgcf | defaults | 0.4000 | 0.3000 | 0.3000 | 0.5 |  |",
        "",
        "dgcf without settings ÷ best baseline: test recall@20 1.143, test ndcg@20 1.200, validation ndcg@20 1.200.",
    ]
    assert "without settings" not in other
    assert len(latest(records)) == 4


def test_the_model_under_test_is_no_baseline_and_not_tuned() -> None:
    assert best_baseline([record("shop", "dgcf", "default", 0.3)]) == {}
    models = ["popularity", "ease", "dgcf"]
    assert planned(models, skip_tuned=False) == [
        ("popularity", "default"),
        ("ease", "default"),
        ("ease", "tuned"),
        ("dgcf", "default"),
    ]
    assert {variant for _, variant in planned(models, skip_tuned=True)} == {"default"}


def committed() -> list[dict[str, Any]]:
    lines = (ROOT / "results" / "defaults.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_committed_results_hold_all_baselines_of_all_data_sets() -> None:
    kinds = {(entry["dataset"], entry["model"], entry["variant"]) for entry in committed()}
    baselines = planned(["popularity", "item-knn", "ease", "ials"], skip_tuned=False)
    assert {(name, *kind) for name in DATASETS for kind in baselines} <= kinds
    for entry in committed():
        assert entry["variant"] == "default" or entry["trials"] == 30
        assert entry["seed"] == 0
        assert entry["mask"] == "train"

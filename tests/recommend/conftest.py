"""What the tests of recommend share: models with random weights on random graphs, and their dense oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.data.synthetic import planted
from dgcf.ranking.layer0_map import RIDGE
from dgcf.recommend import Recommender, Snapshot
from dgcf.recommend.capture import capture
from dgcf.train import build, resolve
from dgcf.train.trainer import ranked_embeddings

Dense = NDArray[np.float64]
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dgcf", {"epsilon": 0.0}),
    ("dgcf", {"epsilon": 0.2, "gates": "shared"}),
    ("dgcf", {"epsilon": "auto", "readout": "last"}),
    ("dgcf", {"cross": "matrix-free"}),
    ("dgcf", {"epsilon": 0.1, "loss": "softmax"}),
    ("dgcf", {"epsilon": 0.1, "self_loop": False, "cross_below_one": True}),
    ("dgcf-chp", {"epsilon": 0.1}),
    ("dgcf-la", {}),
    ("lightgcn", {"layers": 3}),
    ("bpr-mf", {}),
)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def random_pairs(n_users: int, n_items: int, density: float, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    met = rng.random((n_users, n_items)) < density * rng.random(n_items) ** 0.5
    met[rng.integers(n_users), rng.integers(n_items)] = True
    users, items = np.nonzero(met)
    return Pairs.from_indices(users, items, n_users, n_items)


def random_dataset(n_users: int = 9, n_items: int = 11, seed: int = 0, density: float = 0.5, **ids: Any) -> Dataset:
    """A random graph, isolated nodes included, with some pairs held out."""
    users = Vocabulary.from_ids("user", ids.get("users", range(n_users)), ids.get("kind", "integer"))
    items = Vocabulary.from_ids("item", ids.get("items", range(n_items)), ids.get("kind", "integer"))
    if "titles" in ids:
        items = items.with_titles(ids["titles"])
    train = random_pairs(n_users, n_items, density, seed)
    others = np.setdiff1d(random_pairs(n_users, n_items, 0.2, seed + 1).keys(), train.keys())
    held = Pairs.from_keys(others, n_users, n_items)
    return Dataset("random", users, items, train, Pairs.empty(n_users, n_items), held)


def untrained(dataset: Dataset, model: str = "dgcf", seed: int = 0, **settings: Any) -> Snapshot:
    """A snapshot of a model with random weights and widely spread gates; no test depends on training."""
    recipe = resolve(model, preset="plain", settings={"dim": 6, **settings})
    net, propagation = build(dataset, recipe, seed=seed)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    ranking = ranked_embeddings(net, propagation, recipe.train)
    return capture(net, propagation, ranking, dataset, recipe, {"seed": seed, "epochs": 0, "metrics": {}})


def dense_layer0_map(users: Dense, items: Dense, train: Pairs) -> Dense:
    """The blocks (3, dim, dim) of the map from a user's items to the user's layer 0, written out user by user."""
    dim, degree = items.shape[1], np.maximum(train.item_degrees, 1)
    scaled = [degree[:, None] ** -power * items.astype(np.float64) for power in (0.0, 0.5, 1.0)]
    lengths = [float(np.sqrt((rows**2).sum(1).mean())) for rows in scaled]
    known = [user for user in range(train.n_users) if len(train[user])]
    X = np.array(
        [np.concatenate([r[train[u]].mean(0) / n for r, n in zip(scaled, lengths, strict=True)]) for u in known]
    )
    E, plain = users[known].astype(np.float64), X[:, :dim]
    start = np.zeros((3 * dim, dim))
    start[:dim] = np.eye(dim) * (plain * E).sum() / (plain**2).sum()
    ridge = RIDGE * (X**2).sum(1).mean()
    fitted = np.linalg.inv(X.T @ X + ridge * np.eye(3 * dim)) @ (X.T @ E + ridge * start)
    return np.asarray(fitted.reshape(3, dim, dim) / np.array(lengths)[:, None, None])


def dense_matrix(train: Pairs, snapshot: Snapshot) -> Dense:
    """``M = L + Lc + I`` of the paper written out with explicit loops over nothing but A."""
    rule = snapshot.rule
    assert rule is not None
    R = np.asarray(train.to_scipy().todense(), dtype=np.float64)
    n_users, n_items = R.shape
    A = np.block([[np.zeros((n_users, n_users)), R], [R.T, np.zeros((n_items, n_items))]])
    C = A @ A
    with np.errstate(divide="ignore"):
        d = np.where(A.sum(1) > 0, 1 / np.sqrt(A.sum(1)), 0)
        dc = np.where(C.sum(1) > 0, 1 / np.sqrt(C.sum(1)), 0)
    Lc = dc[:, None] * C * dc
    Lc[np.isclose(Lc, 1.0)] = 1.0
    Lc = np.where(Lc > (rule.epsilon or 0.0), Lc, 0.0)
    if rule.cross_below_one:
        Lc = np.where(Lc < 1.0, Lc, 0.0)
    return d[:, None] * A * d + rule.cross * Lc + rule.self_loop * np.eye(len(A))


def gates_of(snapshot: Snapshot) -> Dense:
    """α, (L, N)."""
    assert snapshot.layers is not None
    return np.stack([snapshot.layers.gate(layer) for layer in range(1, snapshot.layers.depth + 1)])


@st.composite
def graphs(draw: st.DrawFn) -> Dataset:
    """Random datasets of a few nodes, any density."""
    return random_dataset(
        draw(st.integers(2, 8)),
        draw(st.integers(2, 9)),
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from([0.15, 0.5, 1.0])),
    )


@pytest.fixture(scope="session")
def films() -> Dataset:
    return planted(n_users=150, n_items=160)


@pytest.fixture(scope="session")
def fitted(films: Dataset) -> Recommender:
    """A recommender that has learned planted tastes."""
    settings = {"layers": 2, "dim": 16, "epochs": 60, "learning_rate": 1e-2, "l2": 1e-2}
    return Recommender("dgcf", preset="plain", device="cpu", **settings).fit(films)

"""Drop-edge: a pure function of its key, the same in NumPy and torch, with the right rate and no visible pattern."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgcf.errors import ConfigError
from dgcf.graph import EdgeDrop, MessageDrop
from dgcf.graph.edge_dropout import CHUNK, hash_tensor, mix32, position_hashes

EDGES = 200_000
NUMBERS = np.arange(EDGES)
HASHES = mix32(NUMBERS)


def kept(drop: EdgeDrop) -> np.ndarray:
    return drop.kept(HASHES).astype(np.float64)


def test_the_formula_of_the_docs_in_plain_integers_gives_the_same_draws() -> None:
    drop = EdgeDrop(0.3, seed=7, step=11, layer=2)
    k0, k1 = drop.keys

    def word(e: int) -> int:
        x = ((e ^ e >> 16) * 0x7FEB352D) % 2**32
        x = ((x ^ x >> 15) * 0x846CA68B) % 2**32
        z = (((x ^ x >> 16) ^ k0) * k1) % 2**32
        return ((z ^ z >> 16) * 0x9E3779B9) % 2**32

    assert k1 % 2 == 1
    assert drop.kept(HASHES)[:500].tolist() == [word(e) >= int(0.3 * 2**32) for e in range(500)]


@given(
    st.floats(0, 0.999), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 100), st.integers(0, 2**31 - 2000)
)
def test_torch_on_a_device_draws_what_numpy_draws(p: float, seed: int, step: int, layer: int, first: int) -> None:
    drop = EdgeDrop(p, seed, step, layer)
    numbers = np.arange(first, first + 1000)
    on_device = drop._kept_on_device(hash_tensor(numbers, torch.device("cpu")))
    assert on_device.numpy().tolist() == drop.kept(mix32(numbers)).tolist()


def test_position_hashes() -> None:
    rows = np.array([0, 5, 5, 2**31 - 1])
    expected = [
        [int(mix32(np.array([row]))[0]) ^ int(mix32(np.array([2**32 - 1 - j]))[0]) for j in range(3)] for row in rows
    ]
    assert position_hashes(torch.from_numpy(rows), 3).numpy().view(np.uint32).tolist() == expected


@given(st.floats(0, 0.999), st.integers(0, 2**40), st.integers(0, 100))
def test_message_dropout_is_the_same_on_a_device(p: float, seed: int, layer: int) -> None:
    drop, rows = MessageDrop(p, seed, 3, layer), torch.arange(7, 60, 3)
    assert torch.equal(drop.kept_at(rows, 8), drop._kept_on_device(position_hashes(rows, 8)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_zeroes_and_keeps_to_the_bit(dtype: torch.dtype) -> None:
    """Across the borders of the chunks in which it works."""
    numbers = np.arange(2 * CHUNK + 17)
    values = torch.randn(len(numbers), generator=torch.Generator().manual_seed(1)).to(dtype)
    drop = EdgeDrop(0.4, 0, 0)
    masked = drop.mask(values, hash_tensor(numbers, torch.device("cpu")))
    kept = torch.from_numpy(drop.kept(mix32(numbers)))
    assert torch.equal(masked, torch.where(kept, values, torch.zeros((), dtype=dtype)))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_rate_is_p_within_five_standard_errors(p: float) -> None:
    error = math.sqrt(p * (1 - p) / EDGES)
    for step in range(10):
        assert abs(1 - kept(EdgeDrop(p, 3, step)).mean() - p) < 5 * error


def test_draws_of_other_keys_and_of_neighbouring_edges_are_uncorrelated() -> None:
    base = EdgeDrop(0.5, seed=1, step=1, layer=1)
    others = [replace(base, seed=2), replace(base, step=2), replace(base, layer=2), replace(base, step=3, layer=0)]
    first = kept(base) - 0.5
    for other in others:
        assert abs((first * (kept(other) - 0.5)).mean()) < 0.25 * 5 / math.sqrt(EDGES)
    for lag in (1, 2, 3, 64, 4096, 65536):
        assert abs((first[lag:] * first[:-lag]).mean()) < 0.25 * 5 / math.sqrt(EDGES - lag)


def test_the_number_kept_in_small_groups_is_binomial() -> None:
    """Groups of 20 neighbouring edges, as a row of the matrix has them; chi-squared over the counts."""
    p, size = 0.3, 20
    chi_squared, cells = 0.0, 0
    for step in range(20):
        counts = kept(EdgeDrop(p, 9, step)).reshape(-1, size).sum(axis=1)
        for k in range(8, 20):
            expected = len(counts) * math.comb(size, k) * (1 - p) ** k * p ** (size - k)
            chi_squared += (np.count_nonzero(counts == k) - expected) ** 2 / expected
            cells += 1
    assert abs(chi_squared - cells) < 5 * math.sqrt(2 * cells)


def test_every_edge_is_dropped_about_equally_often_over_the_steps() -> None:
    steps = 400
    dropped = sum(1 - EdgeDrop(0.2, 4, step).kept(HASHES[:2000]) for step in range(steps))
    z = (dropped - 0.2 * steps) / math.sqrt(0.16 * steps)
    assert abs(float((z**2).mean()) - 1) < 5 * math.sqrt(2 / 2000)


def test_the_mix_is_a_bijection_on_a_block_of_numbers() -> None:
    assert len(np.unique(mix32(np.arange(1 << 20)))) == 1 << 20


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"p": 1.0}, "the drop probability is 1.0"),
        ({"p": -0.1}, "the drop probability is -0.1"),
        ({"p": math.nan}, "the drop probability is nan"),
        ({"step": -1}, "step -1"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_an_impossible_drop_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        replace(EdgeDrop(0.1, 0, 0), **change)  # type: ignore[arg-type]

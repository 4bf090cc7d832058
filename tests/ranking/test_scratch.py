"""Kept memory: of each thread its own, as large as asked for, and not kept if it is large."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dgcf.data.pairs import Pairs
from dgcf.ranking import scratch
from dgcf.ranking.scratch import Scratch
from dgcf.ranking.topk import EmbeddingIndex, top_k


def test_memory_is_reused_and_grows() -> None:
    own = Scratch()
    first = own.array("a", (3, 4), np.float32)
    assert (first.shape, first.dtype) == ((3, 4), np.float32)
    assert np.shares_memory(own.array("a", (2, 5), np.float32), first)
    larger = own.array("a", (5, 5), np.float32)
    assert larger.shape == (5, 5)
    assert not np.shares_memory(larger, first)
    assert not np.shares_memory(own.array("b", (3, 4), np.float64), larger)


def test_large_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LARGEST", 100)
    own = Scratch()
    assert not np.shares_memory(own.array("a", (200,), np.float32), own.array("a", (200,), np.float32))


def test_threads_that_search_at_once_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    index = EmbeddingIndex(rng.normal(size=(3_000, 8)).astype(np.float32))
    queries = [rng.normal(size=(20, 8)).astype(np.float32) for _ in range(4)]
    hidden = Pairs.empty(20, 3_000)
    alone = [top_k(index, query, hidden, 10).item_idx for query in queries]
    wrong: list[int] = []

    def search(number: int) -> None:
        for _ in range(20):
            if (top_k(index, queries[number], hidden, 10).item_idx != alone[number]).any():
                wrong.append(number)

    threads = [threading.Thread(target=search, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong

"""Cut-offs that a ranking cannot have: refused before memory is touched."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dgcf import memory
from dgcf.data.synthetic import planted
from dgcf.errors import ConfigError, NotEnoughMemoryError
from dgcf.evaluate.evaluator import Evaluator
from dgcf.evaluate.metrics import parse_metric, require_cut_offs
from dgcf.evaluate.validation import validator


@pytest.mark.parametrize("k", [10**9, 2**63, 2**80, 1001])
def test_cut_off_beyond_the_items_is_refused(k: int) -> None:
    films = planted(n_users=20, n_items=40)
    with pytest.raises(ConfigError, match=rf"^the cut-off k is {k}, but 40 items can be ranked; give k up to"):
        Evaluator(films, ks=(10, k))


def test_usual_cut_offs_pass_on_small_data_and_any_cut_off_within_the_items() -> None:
    assert require_cut_offs([1000, 20, np.int64(20)], 10) == (20, 1000)  # type: ignore[list-item]
    assert require_cut_offs([50_000], 50_000) == (50_000,)


@pytest.mark.parametrize("ks", [(), (0,), (-1,), (2.5,), (True,), ("20",)])
def test_cut_off_that_is_not_a_positive_integer_is_refused(ks: Any) -> None:
    with pytest.raises(ConfigError, match=r"give one or more whole numbers from 1 on\.$"):
        require_cut_offs(ks, 100)


@pytest.mark.parametrize("text", ["0", "020", "+20", "-1", "2.5", "", "٢٠", "1_000", "9" * 30, "9" * 5000])
def test_metric_without_a_usable_cut_off_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"has no valid cut-off; write the metric as recall@20\.$"):
        parse_metric(f"recall@{text}")


def test_validation_at_a_cut_off_beyond_the_items_is_refused() -> None:
    with pytest.raises(ConfigError, match="the cut-off k is 1000000000"):
        validator(planted(n_users=20, n_items=40), "recall@1000000000")


def test_ranking_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    films = planted(n_users=200, n_items=2000)
    n_users = len(Evaluator(films, ks=(20, 1000)).user_idx)
    with pytest.raises(
        NotEnoughMemoryError, match=rf"ranking 1,500 items for {n_users} users needs about .*; give a smaller k"
    ) as refusal:
        Evaluator(films, ks=(1500,))
    needed = re.search(r"about ([\d.]+) MB", str(refusal.value))
    assert needed is not None
    assert float(needed[1]) * 1e6 >= n_users * 1500 * (8 + 4 + 1), "less than an item, a score and a hit for each rank"

"""Tests of the names that ``dgcf.train`` exports."""

from __future__ import annotations

import dgcf.train


def test_each_is_an_alias_of_seed_job() -> None:
    assert dgcf.train.Each is dgcf.train.SeedJob

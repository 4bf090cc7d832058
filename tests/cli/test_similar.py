"""``dgcf similar`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_similar_items_and_users_are_ranked_by_cosine(dgcf_json: Any, dgcf: Any, film_run: Path) -> None:
    answer = dgcf_json("similar", film_run, "--item", "i00004", "-k", "3")
    assert answer["item"] == "i00004"
    assert [set(row) for row in answer["similar"]] == [{"item", "title", "score", "rank"}] * 3
    assert all(-1 <= row["score"] <= 1 for row in answer["similar"])
    assert "i00004" not in [row["item"] for row in answer["similar"]]
    assert [row["rank"] for row in dgcf_json("similar", film_run, "--user", "u00004")["similar"]] == list(range(1, 11))
    assert "Similar to u00004" in dgcf("similar", film_run, "--user", "u00004").stdout


def test_options_without_one_item_or_user_are_refused(refused: Any, film_run: Path) -> None:
    assert "expected either an item or a user" in refused("similar", film_run)
    assert "expected either an item or a user" in refused("similar", film_run, "--item", "i00001", "--user", "u00001")

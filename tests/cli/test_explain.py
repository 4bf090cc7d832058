"""``dgcf explain`` in real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_parts_add_up_to_the_score(dgcf_json: Any, film_run: Path, tmp_path: Path) -> None:
    item = dgcf_json("recommend", film_run, "--user", "u00007", "-k", "1")["recommendations"][0]
    answer = dgcf_json("explain", film_run, "--user", "u00007", "--item", item["title"], "--plot", cwd=tmp_path)
    assert answer["score"] == item["score"]
    assert abs(answer["residual"]) <= 1e-5 * max(1, abs(answer["score"]))
    assert sum(part["value"] for part in answer["parts"]) == pytest.approx(answer["score"], abs=1e-5)
    assert {part["kind"] for part in answer["parts"]} == {"item", "user", "prior"}
    assert all(sum(part["layers"]) == pytest.approx(part["value"]) for part in answer["parts"])
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    short = dgcf_json("explain", film_run, "--user", "u00007", "--item", item["item"], "--top", "2")
    assert len(short["parts"]) <= 7
    assert sum(part["value"] for part in short["parts"]) == pytest.approx(answer["score"], abs=1e-5)


def test_explanation_is_shown_in_words(dgcf: Any, film_run: Path) -> None:
    done = dgcf("explain", film_run, "--items", "i00001", "--item", "i00009")
    assert done.returncode == 0, done.stderr
    assert "because you liked" in done.stdout
    assert "unexplained:" in done.stdout


def test_top_0_shows_all_parts(dgcf: Any, dgcf_json: Any, film_run: Path) -> None:
    words = ("explain", film_run, "--user", "u00007", "--item", "i00009")
    parts = dgcf_json(*words)["parts"]
    rows = [line.split("│") for line in dgcf(*words, "--top", "0", timeout=60).stdout.splitlines() if "│" in line]
    rows = [row for row in rows if row[1].strip()]  # long titles take two lines
    assert len(rows) == len(parts) > 20
    assert [row[2].strip() for row in rows if row[1].strip() == "item"] == [
        str(part["id"]) for part in parts if part["kind"] == "item"
    ]
    short = dgcf(*words).stdout
    assert "others" in short
    assert short.count("│") < dgcf(*words, "--top", "0").stdout.count("│")
    assert dgcf_json(*words, "--top", "0")["parts"] == parts


def test_missing_user_is_refused(refused: Any, film_run: Path) -> None:
    assert "no user was given" in refused("explain", film_run, "--item", "i00001")

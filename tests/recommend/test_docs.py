"""The Python example of the documentation page runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "recommend.md"


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    films = ["Toy Story", "Aladdin", "Fargo", "Star Wars", *(f"Film {n}" for n in range(20))]
    users = ["anna", "bert", *(f"person {n}" for n in range(40))]
    met = np.random.default_rng(0).random((len(users), len(films))) < 0.4
    rows = "".join(f"{users[u]},{films[i]}\n" for u, i in zip(*np.nonzero(met), strict=True))
    (tmp_path / "ratings.csv").write_text("user,item\n" + rows)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"new_releases": films[4:12], "sold_out": ["Film 1"]}
    exec(compile(example, str(PAGE), "exec"), names)
    assert len(names["rec"].recommend(["anna", "bert"], k=3)) == 6
    assert (tmp_path / "films.dgcf").is_file()

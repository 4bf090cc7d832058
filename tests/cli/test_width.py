"""Tables fit 60 columns, and nothing in them is cut off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dgcf.cli import application, terminal
from dgcf.data.pairs import Pairs
from dgcf.data.synthetic import planted

SHORT = ("--set", "epochs=2", "--set", "blend=none", "--no-baselines", "--device", "cpu")
VERBS = {
    "train": "train export.csv --seeds 2 --out run2 --set epochs=2 --set blend=none --no-baselines --device cpu",
    "recommend": "recommend run --user CUSTOMER-0000000003 --why",
    "users": "recommend run --user CUSTOMER-0000000003 --user CUSTOMER-0000000005",
    "similar": "similar run --item STOCK-0000000003",
    "explain": "explain run --user CUSTOMER-0000000003 --item STOCK-0000000004 --top 0",
    "evaluate": "evaluate run --k 10,20",
    "compare": "compare run other",
    "tune": "tune export.csv --model bpr-mf --trials 2 --set epochs=2 --device cpu",
    "stats": "data stats export.csv",
    "list": "data list",
    "models": "models",
    "model": "models dgcf",
    "graph": "graph export.csv",
    "oscillation": "oscillation export.csv",
}


def shown(*words: str) -> str:
    done = CliRunner().invoke(application(), [*words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with long codes and titles, and two runs trained on it."""
    folder, films = tmp_path_factory.mktemp("narrow"), planted(60, 40)
    pairs: Pairs = films.train.union(films.validation, films.test)
    title = "White hanging heart with a light holder, in a set of"
    rows = [f'CUSTOMER-{u:010d},STOCK-{i:010d},"{title} {i}"\n' for u in range(60) for i in pairs[u]]
    (folder / "export.csv").write_text("CustomerID,StockCode,Description\n" + "".join(rows))
    words = ("train", str(folder / "export.csv"), *SHORT, "--out")
    shown(*words, str(folder / "run"))
    shown(*words, str(folder / "other"), "--model", "bpr-mf")
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_tables_fit_60_columns(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(terminal.out, "_width", 60)
    output = shown(*VERBS[verb].split())
    table = [line for line in output.splitlines() if re.search("[│┃━─]", line)]
    assert len(table) > 3
    assert max(map(len, table)) <= 60
    assert not [line for line in table if re.search(r"\S…\s*[│┃]", line)], output
    if verb in ("recommend", "similar"):
        cells = ["".join(re.split("[│┃]", line)[2].split()) for line in table if re.match("│ +([0-9]|  )", line)]
        assert re.findall("STOCK-[0-9]{10}", "".join(cells)), output

"""Options of reading that do not fit the file are refused in one sentence, by every verb, and leave no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.in_process import refusal

ROWS = (
    "CustomerID,StockCode,Description,Quantity,InvoiceDate\n"
    + "".join(
        f"{user},c{item},thing {item},{item - 1},{20 + user}/12/2010 8:2{item}\n"
        for user in range(5)
        for item in range(9)
    )
    + ",c1,thing 1,3,1/12/2010 8:26\n"
)
SKIP = ("--missing", "skip")
REFUSED = {
    "missing customers": (
        (),
        "line 47 of shop.csv has an empty user id; correct it, or leave such rows out with --missing skip.",
    ),
    "missing misspelt": (("--missing", "skp"), "expected error or skip; did you mean 'skip'?"),
    "condition cut off": ((*SKIP, "--where", "Quantity >"), "cannot be read (syntax error"),
    "file in a condition": ((*SKIP, "--where", "read_csv('/etc/passwd') is null"), "--where holds read_csv()"),
    "environment in a condition": ((*SKIP, "--where", "getenv('HOME') = 'x'"), "--where holds getenv()"),
    "subquery in a condition": ((*SKIP, "--where", "Quantity > (select 1)"), "--where holds a subquery"),
    "attached file": ((*SKIP, "--where", "true; attach 'x.db'"), "cannot be read"),
    "condition of another column": ((*SKIP, "--where", "Quantty > 0"), "did you mean 'Quantity'"),
    "condition that nothing meets": ((*SKIP, "--where", "Quantity > 100"), "leaves no interaction of 46"),
    "format that fits no line": (
        (*SKIP, "--timestamp-format", "%Y-%m-%d"),
        "line 2 of shop.csv has a timestamp that --timestamp-format '%Y-%m-%d' does not fit, '20/12/2010 8:20' (45",
    ),
    "format that is none": ((*SKIP, "--timestamp-format", "day first"), "expected a format of strptime"),
    "title column": ((*SKIP, "--title-col", "Titel"), "no column 'Titel' for the title"),
    "titles file": ((*SKIP, "--titles", "none.csv"), "there is no titles file"),
    "negative weights": ((*SKIP, "--weight-col", "Quantity"), "has a weight that is not a number from 0 on, '-1'"),
}
VERBS = {
    "stats": ("data", "stats"),
    "prepare": ("data", "prepare", "--out", "set"),
    "train": ("train", "--out", "run", "--device", "cpu"),
    "tune": ("tune", "--out", "study", "--trials", "1"),
    "compare": ("compare", "--models", "popularity,ease", "--out", "runs"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("verb", VERBS)
def test_options_that_do_not_fit_are_refused(
    verb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.csv").write_text(ROWS)
    options, sentence = REFUSED[name]
    words = list(VERBS[verb])
    place = 2 if words[0] == "data" else 1
    assert sentence in refusal(*words[:place], "shop.csv", *words[place:], *options)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.csv"]

"""Names of files, datasets, users and items may be any text: they are shown as text, without control characters."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table as RichTable
from typer.testing import CliRunner, Result

from dgcf.cli import application
from dgcf.console import PlainConsole
from dgcf.data.synthetic import planted
from dgcf.recommend.table import Table
from dgcf.text import printable, printable_json, printable_line
from tests.cli.processes import command, environment

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NAMES = {
    "closing-markup": "[/x]",
    "markup": "[red]a[/red]",
    "glob": "g[1]*?",
    "quote": "a'b",
    "double-quote": 'a"b',
    "dash": "-x",
    "home": "~",
    "blanks": " two words ",
    "line-feed": "line\nfeed",
    "escape": "esc\x1b]0;owned\x07\x1b[2J",
    "c1": "\x9b31mred",
    "bidi": "\u202etxt-exe\u2066",
    "emoji": "\N{GRINNING FACE}:smile:",
    "shell": "$(touch owned);`id`",
    "format": "%s{0}{task}",
}
NOT_UTF_8 = os.fsdecode(b"\xff\x1b")
SAMPLE = ["closing-markup", "quote", "line-feed", "escape"]
QUICK = ("--model", "bpr-mf", "--preset", "plain", "--set", "epochs=1", "--set", "dim=4", "--device", "cpu")


def run_verb(*words: str | Path) -> Result:
    """Run a verb, and check that it succeeds and prints no control characters."""
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exit_code == 0, (done.stdout, done.stderr)
    assert not CONTROL.search(done.output), done.output
    return done


def json_of(*words: str | Path) -> dict[str, Any]:
    """Return the JSON of a verb, which has no control characters either."""
    answer = json.loads(run_verb(*words, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def write_pairs(path: Path) -> None:
    rows = [f"{user},{item}" for user in range(12) for item in range(user % 4, 24, 2)]
    path.write_text("\n".join(["user,item", *rows, ""]))


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=key, marks=() if key in SAMPLE else pytest.mark.slow) for key, name in NAMES.items()]
)
def test_every_verb_accepts_any_file_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name / name).parent.mkdir(parents=True)
    source, data, run = (tmp_path / name / f"{name}{end}" for end in (".csv", "", "-run"))
    write_pairs(source)
    run_verb("data", "stats", source)
    assert json_of("data", "prepare", source, "--out", data)["out"] == str(data)
    assert json_of("data", "stats", data)["name"] == data.name
    for verb in (("data", "stats"), ("graph",), ("oscillation",)):
        run_verb(*verb, data)
    for target in (f"{name}.csv", f"{name}.parquet", f"{name}.inter"):
        run_verb("data", "convert", data, "--out", tmp_path / name / "converted" / target)
    run_verb("train", data, *QUICK, "--out", run)
    assert json_of("evaluate", run, "--device", "cpu")["run"] == str(run)
    run_verb("evaluate", run, "--device", "cpu")
    run_verb("recommend", run, "--user", "1")
    films = tmp_path / name / f"{name}.dgcf"
    run_verb("export", run, "--out", films)
    run_verb("export", run, "--to", "parquet", "--out", tmp_path / name / f"{name}-rows")
    run_verb("recommend", films, "--all", "--out", tmp_path / name / f"{name}-all.csv")
    assert (tmp_path / name / f"{name}-all.csv").stat().st_size > 100
    run_verb("similar", films, "--item", "1")
    run_verb("explain", films, "--user", "1", "--item", "2")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("key", NAMES)
def test_errors_show_file_names_as_text(key: str, tmp_path: Path) -> None:
    words = ["data", "stats", str(tmp_path / NAMES[key]), "--json"]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 1
    assert not CONTROL.search(done.output)
    assert done.stderr.count("\n") == 1
    message = json.loads(done.stdout)["error"]["message"]
    assert f"error: {printable_line(message)}\n" == done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "closing-markup", "line-feed"])
def test_tune_and_compare_accept_any_file_name(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = NAMES[key]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write_pairs(tmp_path / f"{name}.csv")
    run_verb("data", "prepare", tmp_path / f"{name}.csv", "--out", tmp_path / name)
    run_verb("tune", tmp_path / name, *QUICK, "--trials", "1", "--out", tmp_path / f"{name}-study")
    run_verb("compare", tmp_path / name, "--models", "popularity,random", "--out", tmp_path / f"{name}-runs")


def test_ids_and_titles_are_escaped_and_exact_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [text.strip().replace("\n", " ").replace('"', "") for text in NAMES.values()]
    rows = [f'"{name}",{item}' for name in names for item in range(8)]
    (tmp_path / "odd.csv").write_text("\n".join(["item,user", *rows, ""]))
    (tmp_path / "titles.csv").write_text("\n".join(["item,title", *(f'"{name}","{name}"' for name in names), ""]))
    json_of("data", "prepare", "odd.csv", "--titles", "titles.csv", "--split", "none", "--out", "odd")
    run_verb("train", "odd", "--model", "popularity", "--device", "cpu", "--out", "run")
    run_verb("recommend", "run", "--user", "1", "--seen", "-k", "50")
    answer = json_of("recommend", "run", "--user", "1", "--seen", "-k", "50")["recommendations"]
    assert {row["item"] for row in answer} == {row["title"] for row in answer} == set(names)
    unknown = CliRunner().invoke(application(), ["recommend", "run", "--user", "a\x1b[2Jb"])
    assert unknown.exit_code == 1
    assert not CONTROL.search(unknown.output)


def test_file_name_like_an_option_follows_two_dashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "-x.csv")
    assert json.loads(run_verb("data", "prepare", "--json", "--out", "-x", "--", "-x.csv").stdout)["users"] == 12


def test_file_name_that_is_not_utf_8_works_or_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / NOT_UTF_8
    folder.mkdir()
    write_pairs(folder / "pairs.csv")
    shutil.copytree(planted(n_users=20, n_items=20).save(tmp_path / "planted"), folder / "data")
    for words in (
        ("data", "stats", folder / "pairs.csv"),
        ("data", "stats", folder / "data"),
        ("data", "convert", folder / "data", "--out", folder / "x.parquet"),
        ("train", folder / "data", *QUICK, "--out", folder / "run"),
        ("recommend", folder / "run", "--user", "u00001"),
        ("export", folder / "run", "--out", folder / "x.dgcf"),
        ("recommend", folder / "run", "--all", "--out", folder / "all.csv"),
    ):
        done = CliRunner().invoke(application(), [*map(str, words), "--json"])
        assert done.exit_code in (0, 1), done.output
        assert not CONTROL.search(done.output)
        answer = json.loads(done.stdout)
        if done.exit_code:
            assert "Traceback" not in done.stderr
            assert answer["error"]["kind"] != "internal"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_exact_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*map(os.fsencode, command("data", "stats")), b"./\xff\x1b\xc3\xa9\xf0\x9f\x98\x80\xc2\x9b", b"--json"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env=environment(PYTHONIOENCODING=encoding),
    )
    assert done.returncode == 1
    assert "\udcff\x1b\xe9\N{GRINNING FACE}\x9b" in json.loads(done.stdout.decode(encoding))["error"]["message"]
    for text in (done.stdout, done.stderr):
        assert not CONTROL.search(text.decode(encoding).replace("\n", ""))


def test_progress_bar_shows_names_as_text(tmp_path: Path) -> None:
    name = NAMES["escape"] + "[/x]"
    write_pairs(tmp_path / f"{name.replace('/', '')}.csv")
    leader, follower = pty.openpty()
    words = command("data", "stats", f"{name.replace('/', '')}.csv")
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=follower, stderr=follower, env=environment(TERM="xterm", COLUMNS="300")
    )
    os.close(follower)
    written = b""
    try:
        while part := os.read(leader, 65536):
            written += part
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.wait(timeout=60) == 0
    assert b"reading esc\\x1b]0;owned" in written
    assert b"\x1b]0;" not in written
    assert b"\x07" not in written


# -- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_console_and_table_show_names_as_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    console, drawn = PlainConsole(), RichTable(name, title=name, caption=name)
    drawn.add_row(f"{name}{name}")
    for renderable in (name, drawn, Table({"item": [name], "title": [name]}, notes=[name], title=name)):
        console.print(renderable, width=200)
    print(Table({"item": [name]}, notes=[name]))
    text = capsys.readouterr().out
    assert not CONTROL.search(text)
    if "\n" not in name:
        assert text.count(printable(name)) >= 7


def test_table_is_text_on_any_console(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    Console().print(Table({"item": ["[/x]"], "score": [1.0]}, notes=["[bold]"], title="[red]"), width=80)
    text = capsys.readouterr().out
    assert all(part in text for part in ("[/x]", "[bold]", "[red]"))


def test_escapes_are_visible_and_json_is_equivalent() -> None:
    text = "".join(map(chr, range(0x3000))) + "\ud800\U0001f600"
    assert printable("a\x1b\x07\x7f\x9b\u202e\tb\n") == r"a\x1b\x07\x7f\x9b\u202e\tb" + "\n"
    assert printable_line("a\nb") == r"a\nb"
    assert not CONTROL.search(printable(text))
    assert printable(printable(text)) == printable(text)
    dumped = printable_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(dumped) == {"text": text}
    assert not CONTROL.search(dumped)
    dumped.encode("utf-8")
    assert printable("naïve 名前 😀 👨‍👩‍👧 فارسی") == "naïve 名前 😀 👨‍👩‍👧 فارسی"

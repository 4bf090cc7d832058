"""The console and Python blocks of the README and of the documentation run, one page after the other in a new folder.

In a ``console`` block, lines that begin with ``$`` are commands and the others are output, of which the words are
compared, not the numbers, and not the rows of tables. Every line of an ``sh`` block is a command. The ``python``
blocks of a page share their names. Trainings take one epoch here, and known datasets are small generated ones. A page
may use what ``FILES`` and ``names_of`` give it, and makes itself what else it needs, such as by
``python examples/shop_export.py``.

A block below ``<!-- not run: REASON -->`` is left out, and counted.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from dgcf.cli import application, terminal
from dgcf.data import Dataset, catalog, load
from dgcf.evaluate.evaluator import Evaluator
from dgcf.models.catalog import CATALOG
from dgcf.ranking.rankings import Embeddings
from dgcf.train.config import TrainConfig
from tests.conftest import PROJECT
from tests.serve.service import ADMIN, Service

PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((PROJECT / "docs").glob("*.md")))]
LEFT_OUT = {
    "README.md": 1,  # make demo, make test
    "docs/deploy.md": 4,  # Docker, systemd, a cluster
    "docs/experiments.md": 2,  # services
    "docs/export.md": 4,  # a database server, a model hub, MLflow
    "docs/reproduction.md": 2,  # hours on a GPU
    "docs/scale.md": 1,  # several processes
    "docs/servers.md": 2,  # PostgreSQL, an object store
    "docs/serving.md": 2,  # services, which run until they are stopped
    "docs/tuning.md": 1,  # MLflow, and servers that show what was tracked
}
SLOW = {
    "docs/composed.md",
    "docs/evaluation.md",
    "docs/experiments.md",
    "docs/forget.md",
    "docs/training.md",
    "docs/tuning.md",
    "docs/update.md",
}


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    reason: str | None


def blocks(page: str) -> Iterator[Block]:
    text = (PROJECT / page).read_text(encoding="utf-8")
    for found in re.finditer(r"(?:<!-- not run: (.+?) -->\n+)?^```(\w*)\n(.*?)^```", text, re.M | re.S):
        yield Block(found[2], found[3], found[1])


# -- what pages may use -----------------------------------------------------------------------------------------------


FILMS = ("Toy Story (1995)", "Aladdin (1992)", "Lion King, The (1994)", "Fargo (1996)", "Star Wars (1977)")


def pairs_of(n_users: int, n_items: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of users and items, of which each user likes one of three kinds more."""
    chance = np.random.default_rng(0).random((n_users, n_items))
    alike = np.arange(n_users)[:, None] % 3 == np.arange(n_items) % 3
    yield from zip(*(side.tolist() for side in np.nonzero(chance < np.where(alike, 0.5, 0.1))), strict=True)


@functools.cache
def known(name: str) -> Dataset:
    """Return a small dataset in place of a known one."""
    frame = pd.DataFrame([(u + 1, i + 1) for u, i in pairs_of(220, 60)], columns=["user", "item"])
    titles = {str(i + 1): FILMS[i] if i < len(FILMS) else f"Film {i} (1990)" for i in range(60)}
    return load(frame, titles=titles).renamed(name)


def films(folder: Path, name: str) -> None:
    """Write rows of users, films, stars and times."""
    items = ["Toy Story", "Aladdin", "Fargo", "Star Wars", "a thing", "another", *(f"Film {n}" for n in range(30))]
    users = ["anna", "bert", *(f"person {n}" for n in range(60))]
    rows = [f"{users[u]},{items[i]},{3 + u % 3},{900 + n}\n" for n, (u, i) in enumerate(pairs_of(62, 36))]
    (folder / name).write_text("user,item,rating,timestamp\n" + "".join(rows))


def newer(folder: Path) -> None:
    """Write rows of a later day, of users of ``films`` and a new one, in the same columns."""
    rows = [f"{user},Film {n},5,{90_000 + n}\n" for n in range(0, 30, 2) for user in ("anna", "person 3", "zoe")]
    (folder / "yesterday.csv").write_text("user,item,rating,timestamp\n" + "".join(rows))


def stock(folder: Path) -> None:
    rows = [f"Film {n},{n % 3},{n % 7}\n" for n in range(30)]
    (folder / "stock.csv").write_text("item,stock,brand\n" + "".join(rows))


def demo(folder: Path) -> None:
    invoke("dgcf train ml-100k --model ease --out demo/run")


def prepared(folder: Path) -> None:
    films(folder, "purchases.csv")
    invoke("dgcf data prepare purchases.csv --out purchases")
    (folder / "purchases.csv").unlink()


def shop(folder: Path) -> None:
    films(folder, "purchases.csv")
    invoke("dgcf train purchases.csv --no-baselines --out runs/shop")


FILES: dict[str, list[Callable[[Path], None]]] = {
    "README.md": [lambda folder: films(folder, "purchases.csv"), newer, demo],
    "docs/data.md": [lambda folder: films(folder, "ratings.csv")],
    "docs/export.md": [shop],
    "docs/forget.md": [lambda folder: films(folder, "purchases.csv")],
    "docs/graph.md": [prepared],
    "docs/recommend.md": [lambda folder: films(folder, "ratings.csv")],
    "docs/update.md": [lambda folder: films(folder, "purchases.csv"), newer, stock],
}


@contextlib.contextmanager
def served(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Yield a function that puts the address of a running service into a block, of one with tokens if it has one."""
    if page not in ("docs/serving.md", "docs/experiments.md"):
        yield lambda text: text
        return
    shop(folder)
    (folder / ".curlrc").write_text("fail\nshow-error\n")
    monkeypatch.setenv("CURL_HOME", str(folder))
    model, data = folder / "runs" / "shop", folder / "service"
    more = ["--arm", f"b={model}", "--experiment", "other-loss"] if page == "docs/experiments.md" else []
    guard = {"DGCF_ADMIN_TOKEN": ADMIN}
    with Service(model, data) as plain, Service(model, data, *more, environment=guard) as guarded:
        yield lambda text: text.replace("http://127.0.0.1:8000", (guarded if ADMIN in text else plain).url)


def names_of(page: str) -> dict[str, Any]:
    """Return the names that the Python blocks of a page use before they are set."""
    if page == "docs/recommend.md":
        return {"new_releases": [f"Film {n}" for n in range(8)], "sold_out": ["Film 1"]}
    if page == "docs/graph.md":
        data = known("deoscirec/ml-1m")
        return {"x": torch.zeros(data.n_users + data.n_items, 2), "batch": torch.arange(5)}
    if page == "docs/evaluation.md":
        dataset = known("deoscirec/ml-100k")
        users, items = rows(dataset, 0)
        evaluator = Evaluator(dataset, split="test", mask="train", ks=(10, 20))
        another = evaluator.evaluate(Embeddings(*rows(dataset, 1)))
        return {"dataset": dataset, "users": users, "items": items, "another": another}
    return {}


def rows(dataset: Dataset, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    users, items = (torch.randn(n, 4, generator=chance) for n in (dataset.n_users, dataset.n_items))
    return users, items


# -- how blocks run ---------------------------------------------------------------------------------------------------


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a block with the lines of their outputs."""
    command, output = "", list[str]()
    for line in block.body.splitlines():
        begins = line.startswith("$ ") if block.language == "console" else bool(line) and not command.endswith("\\")
        if begins:
            if command:
                yield command, output
            command, output = line.removeprefix("$ ").strip(), []
        elif command.endswith("\\"):
            command = command[:-1] + line.removeprefix("> ").strip()
        elif line.strip():
            output.append(line)
    if command:
        yield command, output


def needs_shell(command: str) -> bool:
    """Return whether a command has a pipe, a redirection, a variable or another program than dgcf."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    return words[0] != "dgcf" or any(set(word) <= set("|<>&;()") for word in words if word)


def invoke(command: str) -> str:
    """Run a command, a verb of dgcf in this process, and return its output, of both streams."""
    if not needs_shell(command):
        words = shlex.split(command, comments=True)[1:]
        done = CliRunner().invoke(application(), [*words, *(["--trials", "2"] if words[0] == "tune" else [])])
        assert done.exit_code == 0, f"{command}\n{done.output}"
        return done.output
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT)}
    process = ["bash", "-ec", command]
    ran = subprocess.run(process, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


MODELS = re.compile(rf"(?<![\w-])({'|'.join(sorted(CATALOG, key=len, reverse=True))})(?![\w-])")


def words_of(text: str) -> str:
    """Return the words of an output without numbers and rows of tables; any model is ``MODEL``."""
    lines = [MODELS.sub("MODEL", line) for line in text.splitlines() if not line.lstrip().startswith("│")]
    words = re.findall(r"[^\W\d_]+", " ".join(lines))
    return f" {' '.join(words)} "


def compare(command: str, expected: list[str], output: str) -> None:
    """Refuse a page that shows a line of output whose words the real one does not have in this order."""
    printed = words_of(output)
    missing = [line for line in expected if words_of(line).strip() and words_of(line) not in printed]
    assert not missing, f"{command} did not print {missing}, but\n{output}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new working folder, with trainings of one epoch, small known datasets and a terminal of 80 columns."""
    check = TrainConfig.__post_init__

    def shorten(config: TrainConfig) -> None:
        check(config)
        object.__setattr__(config, "epochs", 1)

    monkeypatch.setattr(TrainConfig, "__post_init__", shorten)
    for console in (terminal.out, terminal.err):
        monkeypatch.setattr(console, "_width", 80)
    generated = catalog.load_known
    monkeypatch.setattr(
        catalog, "load_known", lambda name, notify=None: (known if catalog.entry(name).editions else generated)(name)
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    return tmp_path


def with_marks(page: str) -> Any:
    return pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [], id=page)


@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES if list(blocks(page))])
def test_blocks_of_page_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for make in FILES.get(page, []):
        make(folder)
    names = names_of(page)
    with served(page, folder, monkeypatch) as address:
        for block in blocks(page):
            if block.reason is not None:
                continue
            if block.language == "python":
                exec(compile(address(block.body), page, "exec"), names)
            elif block.language in ("sh", "console"):
                for command, expected in commands(block):
                    compare(command, expected, invoke(address(command)))


def test_blocks_left_out_do_not_grow() -> None:
    left_out = {page: [block.reason for block in blocks(page) if block.reason] for page in PAGES}
    assert {page: len(reasons) for page, reasons in left_out.items() if reasons} == LEFT_OUT
    assert all(len(reason) > 10 for reasons in left_out.values() for reason in reasons)


def test_every_block_has_a_language() -> None:
    """Otherwise commands in it would not be run unnoticed; ``text`` shows what no command here prints."""
    known = {"sh", "console", "python", "text", "json", "toml", "html"}
    assert [(page, block.body) for page in PAGES for block in blocks(page) if block.language not in known] == []
    hidden = [block.body for page in PAGES for block in blocks(page) if block.language == "text" and "$ " in block.body]
    assert hidden == []


def test_shown_output_must_be_printed() -> None:
    compare("dgcf", ["epoch 2/60  loss .5", "│ 1 │ any row │", "…"], "x\nepoch 1/1 loss 0.7\n")
    compare("dgcf", ["best: ials .3, item-knn .2"], "best: item-knn .3, ials .2")
    with pytest.raises(AssertionError, match="did not print"):
        compare("dgcf", ["epoch 2/60  gain .5"], "epoch 1/1 loss 0.7\n")
    assert list(commands(Block("console", "$ one \\\n  two # three\nout\n$ four\n", None))) == [
        ("one two # three", ["out"]),
        ("four", []),
    ]

"""Push to a model hub and load from it, over HTTP from a process that speaks the interface of the Hugging Face Hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from dgcf.errors import ConfigError
from dgcf.recommend import Recommender, load
from dgcf.recommend.card import model_card
from dgcf.recommend.hub import Address, address_of, push

pytest.importorskip("huggingface_hub")
TOKEN = "hf_Geheim0123456789"
Words = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[str]:
    """The address of a hub, whose files are in ``root``."""
    command = [sys.executable, "-m", "tests.hub_server", str(root), TOKEN]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        yield f"http://127.0.0.1:{int(running.stdout.readline())}"
    finally:
        running.kill()
        running.communicate()


@pytest.fixture(scope="module")
def model(fitted: Recommender, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted.save(tmp_path_factory.mktemp("model") / "films.dgcf")


@pytest.fixture
def dgcf(server: str, tmp_path: Path) -> Words:
    """Run the command line with the hub and a cache of its own; without Xet, which would need its own server."""
    # Its settings are read when the library is imported, so that processes are needed.
    settings = {"HF_ENDPOINT": server, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}

    def run(*words: str, token: str | None = TOKEN, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **settings, **({} if token is None else {"HF_TOKEN": token}), **more}
        command = [sys.executable, "-m", "dgcf", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)

    return run


def test_a_pushed_model_is_loaded_with_the_same_lists(
    dgcf: Words, server: str, root: Path, model: Path, fitted: Recommender
) -> None:
    done = dgcf("export", str(model), "--hub", "acme/films", "--private", "--json")
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["url"], result["load"]) == (f"{server}/acme/films", "hf://acme/films")
    assert (root / "acme" / "films" / "private").read_text() in ("True", "private")
    pushed = root / "acme" / "films" / result["commit"]
    assert {path.name for path in pushed.iterdir()} == {"README.md", "card.json", "recommender.dgcf"}
    assert (pushed / "recommender.dgcf").read_bytes() == model.read_bytes()
    assert json.loads((pushed / "card.json").read_text()) == model_card(load(model))
    front = yaml.safe_load((pushed / "README.md").read_text().split("---\n")[1])
    assert front["library_name"] == "dgcf"
    assert 'dgcf.load("hf://acme/films")' in (pushed / "README.md").read_text()
    for address in ("hf://acme/films", f"hf://acme/films@{result['commit']}"):
        answer = dgcf("recommend", address, "--user", "u00004", "-k", "5", "--json", token=None)
        assert answer.returncode == 0, answer.stderr
        items = [row["item"] for row in json.loads(answer.stdout)["recommendations"]]
        assert items == fitted.recommend("u00004", 5)["item"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "token", "sentence"),
    [
        (("export", "MODEL", "--hub", "acme/films"), "hf_Falsch0123", "the hub refused hf://acme/films: .*401"),
        (("export", "MODEL", "--hub", "films"), TOKEN, "--hub is 'films', expected OWNER/NAME"),
        (("export", "MODEL", "--hub", "a/b", "--to", "npy"), TOKEN, "--to and --hub were given; give one of them"),
        (("export", "MODEL", "--private"), TOKEN, "--private is for --hub"),
        (("recommend", "hf://acme/absent", "--user", "u1"), TOKEN, "hf://acme/absent is not on the hub"),
        (("recommend", "hf://acme", "--user", "u1"), TOKEN, "hf:/acme is no address of a model"),
    ],
)
def test_what_fails_is_one_sentence_without_the_token(
    words: tuple[str, ...], token: str, sentence: str, dgcf: Words, model: Path
) -> None:
    done = dgcf(*(str(model) if word == "MODEL" else word for word in words), token=token)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert token not in done.stderr
    assert re.search(sentence, done.stderr), done.stderr


def test_addresses() -> None:
    assert address_of("hf://acme/films") == address_of(Path("hf://acme/films")) == Address("acme/films", None)
    assert address_of("hf://acme/films@v1.2") == Address("acme/films", "v1.2")
    assert address_of("films.dgcf") is None
    for wrong in ("hf://acme/../etc", "hf://acme/films@", "hf:///acme/films", "hf://acme/films/x"):
        with pytest.raises(ConfigError, match="is no address of a model"):
            address_of(wrong)


def test_a_missing_library_names_the_extra(fitted: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'dgcf\[hub\]'"):
        push(fitted, "acme/films")

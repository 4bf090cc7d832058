"""Log to MLflow: the model that MLflow loads gives the recommender's lists, from a file store and from a server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgcf.errors import ConfigError
from dgcf.recommend import Recommender
from dgcf.recommend.card import model_card
from dgcf.recommend.mlflow_model import Model, log_model

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow's own


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset what names a server, and restore it: MLflow sets the variable when a program names one."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    before = mlflow.get_tracking_uri()
    yield
    mlflow.set_tracking_uri(before)


def assert_same_lists(loaded: Any, rec: Recommender) -> None:
    """Compare lists of known users, new users, and users with more items, with those of the recommender."""
    users = pd.DataFrame({"user": ["u00004", "u00011"]}, index=[7, 9])
    answer = loaded.predict(users)
    assert list(answer.index) == [7, 9]
    for (_, row), user in zip(answer.iterrows(), users["user"], strict=True):
        table = rec.recommend(user, 10)
        assert (list(row["items"]), list(row["scores"])) == (table["item"], table["score"])
        assert list(row["titles"]) == table["title"]
    params = {"k": 3, "exclude_seen": False}
    assert (
        list(loaded.predict(users, params=params)["items"][9]) == rec.recommend("u00011", 3, exclude_seen=False)["item"]
    )
    items = ["i00001", "i00002"]
    new = loaded.predict(pd.DataFrame({"items": [items]}), params={"k": 4})
    assert list(new["items"][0]) == rec.recommend_for(items, 4)["item"]
    both = loaded.predict(pd.DataFrame({"user": ["u00004"], "items": [items]}), params={"k": 4})
    assert list(both["items"][0]) == rec.recommend_for(items, 4, user="u00004")["item"]


def test_logged_model_gives_the_same_lists_and_its_run_the_card(fitted: Recommender, tmp_path: Path) -> None:
    result = log_model(fitted, name="films", folder=tmp_path, register="films")
    assert result["uri"] == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert "MLFLOW_TRACKING_URI" not in os.environ
    mlflow.set_tracking_uri(result["uri"])
    assert_same_lists(mlflow.pyfunc.load_model(result["model_uri"]), fitted)
    assert_same_lists(mlflow.pyfunc.load_model("models:/films/1"), fitted)
    card = model_card(fitted)
    run = mlflow.get_run(result["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["layers"] == "2"
    assert run.data.params.keys() >= card["settings"].keys()
    assert run.data.metrics["validation/recall_at_20"] == card["metrics"][0]["values"]["recall@20"]
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/card.json") == card
    assert run.info.artifact_uri.startswith((tmp_path / "mlruns").as_uri())
    logged = Path(mlflow.artifacts.download_artifacts(result["model_uri"]))
    assert not list(logged.rglob("*.pkl"))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (pd.DataFrame({"name": ["u00001"]}), "neither the column user nor items"),
        (pd.DataFrame({"user": [None]}), "a row of the input has neither a user nor items"),
        (pd.DataFrame({"user": ["nobody"]}), "nobody"),
    ],
)
def test_wrong_input_is_one_sentence(rows: pd.DataFrame, sentence: str, fitted: Recommender) -> None:
    from dgcf.errors import DataError

    with pytest.raises(DataError, match=sentence):
        Model(fitted).predict(rows)


def test_whole_numbers_survive_the_gaps_of_a_frame() -> None:
    from dgcf.recommend.mlflow_model import _id

    column = pd.DataFrame({"user": [196, None]}).to_dict("records")
    assert [_id(row["user"]) for row in column] == [196, None]


def test_a_missing_library_names_the_extra(
    fitted: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"pip install 'dgcf\[mlflow\]'"):
        log_model(fitted, name="films", folder=tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of an MLflow server on loopback; skipped where only the client (mlflow-skinny) is installed."""
    pytest.importorskip("mlflow.server.fastapi_app", reason="needs the server of MLflow (pip install mlflow)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store, files = f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "files"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(files)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}/health", running, tmp_path / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(running.pid, 15)
        running.wait(30)


def _wait(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert running.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.3)
    raise AssertionError(log.read_text())


@pytest.mark.slow
def test_a_server_keeps_what_the_command_line_logs(server: str, fitted: Recommender, tmp_path: Path) -> None:
    model = fitted.save(tmp_path / "films.dgcf")
    command = [sys.executable, "-m", "dgcf", "export", str(model), "--mlflow", "--register", "films", "--json"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    code = (
        "import json, sys, mlflow, pandas as pd\n"
        f"loaded = mlflow.pyfunc.load_model({result['model_uri']!r})\n"
        "print(json.dumps(loaded.predict(pd.DataFrame({'user': ['u00004']}))['items'][0]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(printed.stdout.splitlines()[-1]) == fitted.recommend("u00004", 10)["item"]

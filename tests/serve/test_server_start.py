"""Starting the service: what it prints, what it refuses, and what it warns of."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from dgcf.cli import serve as verb
from dgcf.errors import DgcfError
from dgcf.recommend import load
from tests.serve.service import Service, wait_for

# -- starting ---------------------------------------------------------------------------------------------------------


def test_ready_line_and_remark_name_address_and_folder(model_file: Path, tmp_path: Path) -> None:
    model = Path(shutil.copy(model_file, tmp_path / "shop.dgcf"))
    process = subprocess.Popen(
        [sys.executable, "-m", "dgcf", "serve", str(model), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        about = json.loads(process.stdout.readline())
        assert httpx.get(about["url"] + "/readyz", trust_env=False).json() == {"ready": True}
        process.send_signal(signal.SIGINT)
        rest, remarks = process.communicate(timeout=40)
    finally:
        process.kill()
    assert (process.returncode, rest) == (0, "")
    assert about["data"] == str(tmp_path / "shop-service")
    assert (tmp_path / "shop-service" / "events.sqlite3").is_file()
    for path in (tmp_path / "shop-service").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path.is_dir(), path
    assert (tmp_path / "shop-service").stat().st_mode & 0o077 == 0
    assert f"at {about['url']} (1 worker, events in {tmp_path / 'shop-service'})" in remarks


def refused(*words: str, prefix: tuple[str, ...] = (), **environment: str) -> str:
    """Return the sentence with which ``dgcf serve`` refuses to start."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "dgcf", "serve", *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    *_, last = (line for line in done.stderr.splitlines() if not line.startswith("{"))
    assert last.startswith("error: "), done.stderr
    return last


def test_port_in_use_is_refused(model_file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        sentence = refused(str(model_file), "--data", str(tmp_path / "d"), "--port", port)
    assert f"port {port} of 127.0.0.1 is in use" in sentence


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs root and setpriv")
def test_privileged_port_is_refused(model_file: Path, tmp_path: Path) -> None:
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if limit.exists() and int(limit.read_text()) <= 80:
        pytest.skip("ports below 1024 need no rights here")
    prefix = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")
    sentence = refused(str(model_file), "--data", str(tmp_path / "d"), "--port", "80", prefix=prefix)
    assert "port 80 needs the rights of root" in sentence


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"host": "no.such.host.invalid"}, "is unknown"),
        ({"host": "192.0.2.1"}, "is no address of this machine"),
        ({"rate": 0.0}, "--rate is 0"),
        ({"rate": float("nan")}, "--rate is nan"),
        ({"origin": ["*"]}, "--origin is"),
        ({"retention": "30"}, "--retention is '30'"),
        ({"retention": "nand"}, "--retention is 'nand'"),
        ({"retention": "-1d"}, "--retention is '-1d'"),
        ({"tokens": "absent.txt"}, "absent.txt cannot be read"),
        ({"tokens": "bad.txt"}, "line 1 of"),
        ({"data": "bad.txt"}, "bad.txt"),
        ({"data": "/proc/self/service"}, "/proc/self/service"),
    ],
    ids=str,
)
def test_wrong_option_is_refused_before_a_worker_is_started(
    option: dict[str, Any], expected: str, model_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.txt").write_text("read too-short\n")
    given = {"data": "events", **option}
    given |= {name: tmp_path / given[name] for name in ("data", "tokens") if name in given}
    with pytest.raises(DgcfError, match=re.escape(expected)) as refusal:
        verb.command(model_file, port=0, **given)
    assert "too-short" not in str(refusal.value)


def test_broken_table_of_items_is_refused(model_file: Path, tmp_path: Path) -> None:
    words = ("--data", str(tmp_path / "d"), "--items-table", str(tmp_path / "absent.csv"))
    assert "absent.csv" in refused(str(model_file), "--port", "0", *words)


@pytest.mark.parametrize("kind", ["table", pytest.param("empty", marks=pytest.mark.slow), "cut"])
def test_broken_model_is_refused_by_its_own_name(kind: str, model_file: Path, tmp_path: Path) -> None:
    model, content = tmp_path / "model.dgcf", model_file.read_bytes()
    model.write_bytes({"table": b"user,item\n1,2\n", "empty": b"", "cut": content[: len(content) // 2]}[kind])
    sentence = refused(str(model), "--port", "0", "--data", str(tmp_path / "d"))
    assert str(model) in sentence
    assert "incoming" not in sentence


def test_missing_model_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(DgcfError, match=re.escape(f"there is no model {tmp_path / 'absent'}")):
        verb.command(tmp_path / "absent", port=0)
    assert not list(tmp_path.iterdir())


def test_missing_extra_is_refused(model_file: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None; sys.argv[0] = 'dgcf'\n"
        "from importlib import util; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'fastapi' else find(name, *rest)\n"
        "from dgcf.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(model_file), "--port", "0", "--data", str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "error: the service needs fastapi; install it with: pip install 'dgcf[serve]'.\n"


def test_help_imports_neither_fastapi_nor_torch() -> None:
    code = "import sys; sys.argv[1:] = ['serve', '--help']\nfrom dgcf.cli import main\ntry:\n    main()\nfinally:\n"
    code += "    print(sorted({'fastapi', 'uvicorn', 'torch', 'prometheus_client'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "Example: " in done.stdout
    assert done.stdout.endswith("[]\n")


def test_network_without_tokens_is_warned_of_and_a_second_service_too(model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--host", "0.0.0.0") as first:
        assert "warning: 0.0.0.0 can be reached by other machines, and no token is set" in first.log_file.read_text()
        assert first.get("/v1/model").status_code == 200
        first.request("POST", "/v1/events", json={"user": "new", "item": "i00001"})
        second = Service(model_file, tmp_path / "data")
        second.log_file = tmp_path / "second.log"
        with second:
            assert "warning: another service uses" in second.log_file.read_text()
            assert second.get("/v1/users/new").status_code == 200
            second.request("POST", "/v1/events", json={"user": "new", "item": "i00002"})
            assert len(first.get("/v1/users/new").json()["events"]) == 2


def test_run_folder_is_served_without_torch(tmp_path: Path) -> None:
    from dgcf.data.synthetic import planted
    from dgcf.train import Run, resolve, train

    films = planted(n_users=60, n_items=50)
    films.save(tmp_path / "films")
    recipe = resolve("dgcf", preset="plain", settings={"layers": 1, "dim": 4, "epochs": 1})
    run = Run.create(tmp_path / "run", films, recipe, seed=0, device="cpu", source=str(tmp_path / "films"))
    train(films, recipe, device="cpu", run=run)
    load(run.path)  # saves the recommender, as `dgcf train` does
    with Service(run.path, tmp_path / "data") as service:
        assert len(service.get("/v1/recommend/u00001").json()["recommendations"]) == 10
        (worker,) = service.workers()
        assert "torch" not in Path(f"/proc/{worker}/maps").read_text()


def test_signal_while_the_model_is_loaded_stops_the_service(model_file: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dgcf", "serve", str(model_file), "--data", str(tmp_path / "d"), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: bool(_children(process.pid)))
        process.send_signal(signal.SIGTERM)
        _, remarks = process.communicate(timeout=40)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "serving" not in remarks
    assert "Traceback" not in remarks


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

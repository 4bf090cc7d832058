"""The image: the Dockerfile is checked, and its commands run without Docker, in a container made by bubblewrap."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests import postgres
from tests.deploy.files import DEPLOY, PROJECT, instruction, output_of, program, read_yaml
from tests.deploy.test_monitoring import free_port
from tests.serve.service import ADMIN, bearer, wait_for

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def test_linter_accepts_the_dockerfile() -> None:
    assert output_of(Path(sys.executable).with_name("hadolint"), "--no-color", DEPLOY / "Dockerfile") == ""


def test_image_runs_as_a_user_with_pinned_parts() -> None:
    assert re.search(r"^ARG PYTHON=\d+\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert set(re.findall(r"^FROM python:(\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON}"}
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    assert DOCKERFILE.rstrip().splitlines()[-2] == "FROM base AS serve"
    assert instruction("ENTRYPOINT") == ["tini", "--", "dgcf"]


def test_build_gets_only_what_is_copied() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    }
    assert copied == allowed
    assert all((PROJECT / name).exists() for name in copied)


def lock_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_lock", DEPLOY / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_locks_are_those_of_the_project() -> None:
    try:
        locks = lock_module().locks()
    except SystemExit as older:  # tests/test_supply.py fails then
        pytest.skip(str(older))
    for name, text in locks.items():
        assert (DEPLOY / name).read_text() == text, f"{name} is old; run `python deploy/lock.py`"


def test_only_the_image_that_trains_has_torch() -> None:
    assert "\ntorch==" not in (DEPLOY / "requirements.lock").read_text()
    assert "\ntorch==" in (DEPLOY / "requirements-train.lock").read_text()


# -- the commands of the Dockerfile -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the steps of the stages ``wheel`` and ``packages``; return the environment, with pip and no torch."""
    program("bwrap")
    folder = tmp_path_factory.mktemp("image")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    shutil.copytree(PROJECT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    tools, place = folder / "tools", folder / "dgcf"
    output_of(sys.executable, "-m", "venv", tools)
    (pinned,) = re.findall(r"pip install --no-cache-dir (hatchling==\S+)", DOCKERFILE)
    output_of(tools / "bin" / "pip", "install", "--quiet", pinned, timeout=300)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels"]
    output_of(tools / "bin" / "pip", "wheel", *options, source, timeout=300)
    output_of(sys.executable, "-m", "venv", place)
    lock = DEPLOY / "requirements.lock"
    quiet = [place / "bin" / "pip", "install", "--quiet", "--no-deps"]
    output_of(*quiet, "--require-hashes", "-r", lock, timeout=600)
    output_of(*quiet, *(folder / "wheels").glob("*.whl"), timeout=300)
    return place


def confined(place: Path, model: Path, data: Path) -> list[str]:
    """Return the command of a container: user 10001, nothing to write but /data and /tmp, no processes of others.

    Its user namespace maps user 10001 to the user of the test, to whom /data belongs.
    """
    python = Path(sys.base_prefix)
    command = [program("bwrap"), "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in ("bin", "lib", "lib64"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    if not python.is_relative_to("/usr"):
        command += ["--ro-bind", str(python), str(python)]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(place), str(place)]
    command += ["--ro-bind", str(model), "/models/current", "--bind", str(data), "/data"]
    command += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    return [*command, "--as-pid-1", "--uid", "10001", "--gid", "10001", "--cap-drop", "ALL", "--clearenv"]


class Container:
    """``dgcf serve`` with the entry point and the command of the Dockerfile.

    ``secrets``: files by their names in /run/secrets; ``more``: variables of the environment.
    """

    def __init__(
        self,
        place: Path,
        model: Path,
        data: Path,
        secrets: Mapping[str, Path] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        data.mkdir()
        self.port = free_port()
        environment = dict(re.findall(r"\b([A-Z_]+)=(\S+)", DOCKERFILE.split("\nENV ")[1].splitlines()[0]))
        environment["PATH"] = f"{place / 'bin'}:/usr/bin:/bin"
        environment |= more or {"DGCF_ADMIN_TOKEN": ADMIN}
        self._inside = confined(place, model, data)
        for name, path in (secrets or {}).items():
            self._inside += ["--ro-bind", str(path), f"/run/secrets/{name}"]
        self._inside += ["--remount-ro", "/"]
        for name, value in environment.items():
            self._inside += ["--setenv", name, value]
        words = [*instruction("ENTRYPOINT"), *instruction("CMD")]
        self._words = [str(self.port) if word == "8000" else word for word in words]

    def __enter__(self) -> Container:
        program("tini")
        self.process = subprocess.Popen([*self._inside, *self._words], stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=30) as http:
            return http.request(method, f"http://127.0.0.1:{self.port}{path}", headers=bearer(ADMIN), **options)

    def healthy(self) -> bool:
        """Run the health check of the Dockerfile inside."""
        words = [word.replace("8000", str(self.port)) for word in instruction("HEALTHCHECK")]
        return subprocess.run([*self._inside, *words], capture_output=True, check=False, timeout=30).returncode == 0

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._inside, "python", "-c", script], capture_output=True, text=True, check=False, timeout=60
        )

    def child(self) -> int:
        """Return the id of tini, process 1 of the container; bwrap itself is its parent."""
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)


@pytest.fixture(scope="module")
def container(installed: Path, model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    with Container(installed, model_file, tmp_path_factory.mktemp("container") / "data") as running:
        wait_for(running.healthy, 60)
        yield running


@pytest.mark.slow
def test_container_has_no_torch_and_can_write_only_its_folders(container: Container) -> None:
    done = container.run(
        "import importlib.util, os, pathlib\n"
        "assert importlib.util.find_spec('torch') is None\n"
        "assert os.getuid() == os.getgid() == 10001\n"
        "for folder in ('/', '/usr', '/etc', os.path.dirname(importlib.util.find_spec('dgcf').origin)):\n"
        "    try: pathlib.Path(folder, 'x').touch()\n"
        "    except OSError: continue\n"
        "    raise SystemExit(f'{folder} can be written')\n"
        "pathlib.Path('/data/x').touch()\n"
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.slow
def test_container_serves(container: Container) -> None:
    answer = container.request("GET", "/v1/recommend/u00001?k=3&why=true").json()
    assert len(answer["recommendations"]) == 3
    event = {"user": "zoe", "item": "i00001", "kind": "like"}
    assert container.request("POST", "/v1/events", json=event).json()["stored"] == 1
    assert container.request("GET", "/v1/recommend/zoe").json()["source"] == "events"
    assert container.request("POST", "/v1/admin/reload").status_code == 200
    assert container.request("GET", "/v1/events/export").content[:4] == b"PAR1"
    assert container.request("GET", "/").status_code == 200
    assert "dgcf_requests_total" in container.request("GET", "/metrics").text


@pytest.mark.slow
def test_container_stops_at_sigterm(installed: Path, model_file: Path, tmp_path: Path) -> None:
    with Container(installed, model_file, tmp_path / "data") as running:
        wait_for(running.healthy, 60)
        os.kill(running.child(), signal.SIGTERM)
        readable, _, _ = select.select([running.process.stderr], [], [], 30)
        assert readable
        _, log = running.process.communicate(timeout=40)
        assert running.process.returncode == 0, log
        assert "Traceback" not in log
    assert running.run("import os; print(sorted(os.listdir('/data')))").stdout.count("events.sqlite3") == 1


@pytest.mark.slow
def test_container_takes_its_secrets_and_its_database_from_compose(
    installed: Path, model_file: Path, tmp_path: Path
) -> None:
    """The variables of compose.yaml, with the URL of a database on loopback; tokens and password are in files alone."""
    if "\npsycopg==" not in (DEPLOY / "requirements.lock").read_text():
        pytest.skip("deploy/requirements.lock has no psycopg; run `make lock`")
    variables = read_yaml("compose.yaml")["services"]["dgcf"]["environment"]
    secrets = {name: tmp_path / name for name in ("tokens", "events_url")}
    secrets["tokens"].write_text(f"admin {ADMIN}\n")
    with postgres.server() as database:
        secrets["events_url"].write_text(f"{database.dsn}\n")
        for path in secrets.values():
            path.chmod(0o400)
        with Container(installed, model_file, tmp_path / "data", secrets, variables) as running:
            wait_for(running.healthy, 60)
            event = {"user": "zoe", "item": "i00001", "kind": "like"}
            assert running.request("POST", "/v1/events", json=event).json()["stored"] == 1
            assert running.request("GET", "/v1/recommend/zoe").json()["source"] == "events"
            assert running.run("import os; print(os.listdir('/data'))").stdout.count("sqlite3") == 0

"""Models that servers share, in a folder and in an S3-compatible store: a reload at one is followed by the others."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dgcf.errors import ConfigError
from dgcf.serve.engine.shared_models import FolderModels, SharedModels, SharedModelsError, shared_models
from dgcf.serve.errors import ModelRefusedError
from tests import postgres
from tests.serve.models import small_model
from tests.serve.object_store import BUCKET, files, object_store, overwrite
from tests.serve.service import ADMIN, Service, tokens_file, wait_for
from tests.serve.stores import new_schema
from tests.serve.test_servers_postgres import Asker

s3fs = pytest.importorskip("s3fs")
FOLLOW_SECONDS = 30.0


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    with object_store() as environment:
        yield environment


@pytest.fixture(params=["folder", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedModels:
    if request.param == "folder":
        return shared_models(str(tmp_path / "shared"))
    use(request.getfixturevalue("bucket"), monkeypatch)
    return shared_models(f"s3://{BUCKET}/{tmp_path.name}")


def use(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the store of an environment, not one of another test that the library remembers."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()


def model_of(folder: Path, content: bytes) -> Path:
    """Write a content to the name of its checksum."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.sha256(content).hexdigest()}.dgcf"
    path.write_bytes(content)
    return path


def copied(model: Path, to: Path) -> Path:
    to.parent.mkdir()
    shutil.copyfile(model, to)
    return to


def retrained(path: Path, seed: int) -> None:
    """Write another model in place of one."""
    path.unlink()
    small_model(path, seed=seed, epochs=1)


def test_models_are_stored_once_fetched_and_removed(shared: SharedModels, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000  # two parts of an upload
    first, second = model_of(tmp_path / "a", content), model_of(tmp_path / "a", b"another")
    assert shared.names() == set()
    for path in (first, first, second):
        shared.put(path)
    assert shared.names() == {first.name, second.name}
    target = tmp_path / "b" / first.name
    shared.get(target)
    assert target.read_bytes() == content
    shared.remove([first.name, "f" * 64 + ".dgcf"])
    assert shared.names() == {second.name}
    with pytest.raises(SharedModelsError, match="is not in"):
        shared.get(target)
    assert target.read_bytes() == content
    assert [path.name for path in target.parent.iterdir()] == [first.name]


def test_damaged_model_is_refused_and_not_kept(shared: SharedModels, bucket: dict[str, str], tmp_path: Path) -> None:
    path = model_of(tmp_path / "a", b"a model")
    shared.put(path)
    if isinstance(shared, FolderModels):
        (tmp_path / "shared" / path.name).write_bytes(b"something else")
    else:
        overwrite(bucket, f"{shared.where.removeprefix('s3://')}/{path.name}", "something else")
    with pytest.raises(ModelRefusedError, match="damaged"):
        shared.get(tmp_path / "b" / path.name)
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.slow
def test_store_that_is_away_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store() as environment:
        use(environment, monkeypatch)
        shared = shared_models(f"s3://{BUCKET}/away")
        shared.put(model_of(tmp_path, b"a model"))
    for work in (shared.names, lambda: shared.put(model_of(tmp_path, b"b")), lambda: shared.get(tmp_path / "x.dgcf")):
        with pytest.raises(SharedModelsError) as problem:
            work()
        assert "\n" not in str(problem.value)
        assert "geheim" not in str(problem.value)
    assert not (tmp_path / "x.dgcf").exists()


@pytest.mark.parametrize("where", ["s3://key:geheim@bucket/models", "unknown://bucket"])
def test_address_that_cannot_be_used_is_refused(where: str) -> None:
    with pytest.raises(ConfigError) as problem:
        shared_models(where)
    assert "geheim" not in str(problem.value)


def test_missing_package_is_named_with_its_extra() -> None:
    script = """
import sys
from dgcf.errors import ConfigError
from dgcf.serve.engine.shared_models import shared_models
sys.modules["s3fs"] = None
try:
    shared_models("s3://bucket/models")
except ConfigError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'dgcf[s3]'" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_reload_at_one_server_is_followed_by_the_other(
    database: postgres.Server, bucket: dict[str, str], tmp_path: Path, model_file: Path
) -> None:
    """Each server has a file of its own, and only the first one's changes; the other fetches what that publishes."""
    url, where = new_schema(database.dsn), f"s3://{BUCKET}/reload"
    environment = {**bucket, "DGCF_EVENTS_URL": url}
    words = ("--models", where, "--keep-models", "2", "--tokens", str(tokens_file(tmp_path, "admin")))
    paths = [copied(model_file, tmp_path / name / "films.dgcf") for name in "ab"]
    with (
        Service(paths[0], tmp_path / "data-a", *words, environment=environment) as first,
        Service(paths[1], tmp_path / "data-b", *words, environment=environment) as second,
    ):

        def versions() -> list[int]:
            return [one.get("/v1/model").json()["version"] for one in (first, second)]

        assert versions() == [1, 1]  # the same model: the second one published nothing
        asker = Asker(second)
        times = []
        try:
            for version in (2, 3, 4):
                retrained(paths[0], version)
                assert first.request("POST", "/v1/admin/reload", token=ADMIN).json()["version"] == version
                began = time.monotonic()
                wait_for(lambda version=version: versions() == [version, version], FOLLOW_SECONDS)
                times.append(time.monotonic() - began)
                answers = [one.get("/v1/recommend/u00001").json() for one in (first, second)]
                assert answers[0] == answers[1]
        finally:
            asker.finish()
        assert asker.problems == []
        checksums = [first.get("/v1/model").json()["sha256"], second.get("/v1/model").json()["sha256"]]
        assert checksums[0] == checksums[1]
        stored = files(bucket)
        assert len(stored) == 2
        assert f"{BUCKET}/reload/{checksums[0]}.dgcf" in stored
        print(f"\nfollowed after {max(times):.2f} s at most; {asker.answers} lists meanwhile, 0 failed")
        second.kill()
        with Service(paths[1], tmp_path / "data-b", *words, environment=environment) as again:
            # Its own file is an older one: it follows the newest model, and publishes nothing.
            assert [one.get("/v1/model").json()["version"] for one in (first, again)] == [4, 4]


@pytest.mark.slow
def test_refresh_and_rollback_at_one_server_are_followed_by_the_other(
    database: postgres.Server, bucket: dict[str, str], tmp_path: Path, model_file: Path
) -> None:
    environment = {**bucket, "DGCF_EVENTS_URL": new_schema(database.dsn)}
    words = ("--models", f"s3://{BUCKET}/refresh", "--tokens", str(tokens_file(tmp_path, "admin")))
    with (
        Service(model_file, tmp_path / "data-a", *words, environment=environment) as first,
        Service(model_file, tmp_path / "data-b", *words, environment=environment) as second,
    ):

        def follow(version: int) -> None:
            both = (first, second)
            wait_for(lambda: all(one.get("/v1/model").json()["version"] == version for one in both), 5 * FOLLOW_SECONDS)
            answers = [one.get("/v1/recommend/new").json() for one in both]
            assert answers[0] == answers[1]

        with first.client(ADMIN) as one:
            for number in range(20):
                one.send_event("new", f"i{number:05d}")
        assert second.request("POST", "/v1/admin/refresh", token=ADMIN).status_code == 202
        follow(2)
        assert first.get("/v1/admin/refresh", token=ADMIN).json()["last"]["result"] == "published"
        assert first.request("POST", "/v1/admin/rollback", token=ADMIN, json={}).json()["version"] == 3
        follow(3)
        rows = second.get("/v1/models", token=ADMIN).json()["models"]
        assert [(row["version"], row["available"]) for row in rows] == [(3, True), (2, True), (1, True)]
        assert rows[0]["sha256"] == rows[2]["sha256"]


@pytest.mark.slow
def test_server_without_shared_models_keeps_its_model_and_says_why(
    database: postgres.Server, tmp_path: Path, model_file: Path
) -> None:
    url = new_schema(database.dsn)
    environment = {"DGCF_EVENTS_URL": url}
    path = copied(model_file, tmp_path / "a" / "films.dgcf")
    words = ("--tokens", str(tokens_file(tmp_path, "admin")))
    with (
        Service(path, tmp_path / "data-a", *words, environment=environment) as first,
        Service(model_file, tmp_path / "data-b", environment=environment) as second,
    ):
        retrained(path, 5)
        assert first.request("POST", "/v1/admin/reload", token=ADMIN).status_code == 200
        wait_for(lambda: "give all servers the same --models" in second.log_file.read_text())
        assert second.get("/v1/recommend/u00001").json()["model"] == 1

"""The event store on a disk that is full, and on one that is read-only."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.test_full_disk import can_mount

_SCRIPT = """
import json, subprocess, sys
from pathlib import Path
from dgcf.serve.errors import StoreFullError
from dgcf.serve.events.store import EventStore
from dgcf.serve.events.records import Event, Position

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
ballast = disk / "ballast"
ballast.write_bytes(bytes(100_000))
store = EventStore.open(disk / "events.sqlite3")
result = {"errors": []}
acknowledged = []
for number in range(2_000):
    keys = [f"{number}-{place}" for place in range(20)]
    try:
        store.submit([Event("anna", "item" * 20, key=key) for key in keys]).result(30)
    except StoreFullError as problem:
        result["errors"].append(str(problem))
        if len(result["errors"]) == 3:
            break
    else:
        acknowledged += keys
stored = [event.key for event in store.changes(Position.START).events]
result["acknowledged"], result["read while full"] = len(acknowledged), sorted(stored) == sorted(acknowledged)
ballast.unlink()
result["written again"] = store.submit([Event("anna", "item", key="again")]).result(30)
result["known"] = store.submit([Event("anna", "item", key=acknowledged[-1])]).result(30)
store.close()

store = EventStore.open(disk / "events.sqlite3")
result["after opening"] = store.count()
store.close()
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
store = EventStore.open(disk / "events.sqlite3")
result["read-only count"] = store.count()
try:
    store.submit([Event("anna", "item")]).result(30)
except StoreFullError as problem:
    result["read-only"] = str(problem)
store.close()
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if shutil.which("unshare") is None or not can_mount():
        pytest.skip("needs permission to mount in a user namespace")
    words = ["unshare", "-rm", sys.executable, "-c", _SCRIPT, str(tmp_path_factory.mktemp("disk"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_full_disk_refuses_events_and_loses_none(result: dict[str, Any]) -> None:
    assert len(result["errors"]) == 3
    assert all("disk" in sentence and "\n" not in sentence for sentence in result["errors"])
    assert result["acknowledged"] > 100
    assert result["read while full"]


def test_writing_works_again_when_there_is_room(result: dict[str, Any]) -> None:
    assert result["written again"] == [True]
    assert result["known"] == [False]
    assert result["after opening"] == result["acknowledged"] + 1


def test_read_only_disk_is_read_and_refuses_events(result: dict[str, Any]) -> None:
    assert result["read-only count"] == result["after opening"]
    assert "make it writable" in result["read-only"]

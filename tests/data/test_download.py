"""Downloads from a local server that is slow, interrupts, refuses and sends wrong data."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dgcf.data import download as downloads
from dgcf.data.download import download, extract
from dgcf.errors import DataError

BODY = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serve BODY at /whole; at /cut the first responses end early; requested ranges are kept in ``ranges``."""

    ranges: list[str | None]
    cuts: int


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        range_header = self.headers.get("Range")
        self.server.ranges.append(range_header)
        if self.path == "/missing":
            return self.send_error(404)
        partial = range_header and self.path != "/no-ranges"
        start = int(range_header.removeprefix("bytes=").removesuffix("-")) if partial else 0
        if start >= len(BODY):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        end = len(BODY)
        if self.path == "/cut" and self.server.cuts > 0:
            self.server.cuts -= 1
            end = start + 200_000
        self.wfile.write(BODY[start:end])
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.ranges, made.cuts = [], 0
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def url(server: Server, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def test_download_is_complete_and_verified(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = download(url(server, "/whole"), tmp_path / "deep" / "file", SHA256, lambda *args: seen.append(args))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_interrupted_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cuts = 2
    assert download(url(server, "/cut"), tmp_path / "file", SHA256, pause_seconds=0).read_bytes() == BODY
    assert server.ranges == [None, "bytes=200000-", "bytes=400000-"]


def test_later_call_resumes_the_download(server: Server, tmp_path: Path) -> None:
    server.cuts = 99
    with pytest.raises(DataError, match=r"cannot download .* of 1,024,000 bytes"):
        download(url(server, "/cut"), tmp_path / "file", SHA256, pause_seconds=0)
    assert not (tmp_path / "file").exists()
    server.cuts = 0
    server.ranges.clear()
    assert download(url(server, "/cut"), tmp_path / "file", SHA256).read_bytes() == BODY
    assert server.ranges[0] is not None, "it did not start again from nothing"


def test_server_without_ranges_restarts_the_download(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"something old")
    assert download(url(server, "/no-ranges"), tmp_path / "file", SHA256).read_bytes() == BODY


def test_complete_part_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(BODY)
    assert download(url(server, "/whole"), tmp_path / "file", SHA256).read_bytes() == BODY


def test_wrong_checksum_leaves_no_file(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected 000000000000"):
        download(url(server, "/whole"), tmp_path / "file", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_hopeless_download_fails_at_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(downloads.time, "sleep", slept.append)
    with pytest.raises(DataError, match="Not Found"):
        download(url(server, "/missing"), tmp_path / "file", SHA256)
    assert slept == []
    with pytest.raises(DataError, match="cannot download"):
        download("http://127.0.0.1:1/refused", tmp_path / "file", SHA256)
    assert slept == [1, 2, 4], "a refused connection may come back: it is tried again, with pauses that double"


def test_archive_members_are_verified(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("in/file", BODY)
    assert extract(archive, "in/file", tmp_path / "file", SHA256, "a test").read_bytes() == BODY
    with pytest.raises(DataError, match="has the SHA-256"):
        extract(archive, "in/file", tmp_path / "bad", "0" * 64, "a test")
    with pytest.raises(DataError, match="is damaged"):
        extract(archive, "in/other", tmp_path / "bad", None, "a test")
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(DataError, match="is damaged"):
        extract(archive, "in/file", tmp_path / "bad", None, "a test")
    assert not (tmp_path / "bad").exists()

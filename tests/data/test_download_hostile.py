"""Downloads from hostile servers, and by several processes at once."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dgcf.data import catalog
from dgcf.data import download as downloads
from dgcf.data.download import download, extract
from dgcf.data.known import KnownFile, Remote
from dgcf.errors import DataError

BODY = b"user,item\na,b\n" * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()

HEADERS = {
    "/length-text": ("Content-Length", "many"),
    "/length-negative": ("Content-Length", "-5"),
    "/length-small": ("Content-Length", "100"),
    "/length-large": ("Content-Length", str(len(BODY) + 100)),
    "/length-huge": ("Content-Length", str(10**15)),
    "/no-length": ("X-None", "none"),
    "/redirect-bracket": ("Location", "http://[1::/file"),
    "/redirect-port": ("Location", "http://127.0.0.1:port/file"),
    "/redirect-file": ("Location", "file:///etc/hosts"),
    "/redirect-blank": ("Location", "http://127.0.0.1 /x y"),
    "/redirect-loop": ("Location", "/redirect-loop"),
    "/redirect-nowhere": ("X-None", "none"),
}


class Handler(BaseHTTPRequestHandler):
    """Serves BODY with the headers of HEADERS; ``/endless`` and ``/trickle`` never end."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.requests.append(self.path)
        requested = self.headers.get("Range")
        if requested and self.path != "/other-range":
            self.send_error(416)
            return
        self.send_response(302 if self.path.startswith("/redirect") else 206 if requested else 200)
        if self.path in HEADERS:
            self.send_header(*HEADERS[self.path])
        if self.path == "/other-range":
            self.send_header("Content-Range", f"bytes 0-{len(BODY) - 1}/{len(BODY)}")
        self.end_headers()
        try:
            if self.path == "/slow":
                time.sleep(0.3)
            while self.path == "/endless":
                self.wfile.write(BODY)
            while self.path == "/trickle" and not self.server.closing.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()
            self.wfile.write(BODY)
        except OSError:  # the client has gone
            pass

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.closing = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.closing.set()
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize("path", ["/length-text", "/length-negative", "/length-large", "/no-length", "/other-range"])
def test_wrong_content_length_with_right_checksum_is_accepted(server: Server, tmp_path: Path, path: str) -> None:
    target = download(server.url(path), tmp_path / "file", SHA256, pause_seconds=0)
    assert target.read_bytes() == BODY
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # urllib leaves a bad redirect open
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/length-small", "has the SHA-256"),
        ("/length-huge", "is larger than 1,073,741,824 bytes"),
        ("/redirect-bracket", "Invalid IPv6 URL"),
        ("/redirect-port", "nonnumeric port"),
        ("/redirect-file", "not allowed"),
        ("/redirect-blank", "cannot download"),
        ("/redirect-loop", "infinite loop"),
        ("/redirect-nowhere", "Found"),
    ],
)
def test_invalid_response_is_refused_in_one_sentence(server: Server, tmp_path: Path, path: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        download(server.url(path), tmp_path / "file", SHA256, pause_seconds=0)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    del caught
    gc.collect()


def test_stored_part_of_another_range_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"something else")
    assert download(server.url("/other-range"), tmp_path / "file", SHA256, pause_seconds=0).read_bytes() == BODY
    assert len(server.requests) == 2


def test_endless_body_stops_at_the_size_limit(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "LARGEST", 5_000_000)
    with pytest.raises(DataError, match="is larger than 5,000,000 bytes"):
        download(server.url("/endless"), tmp_path / "file", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_slow_server_times_out(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(downloads, "TRIES", 1)
    with pytest.raises(DataError, match=r"only \d+ bytes came in 0.5 seconds"):
        download(server.url("/trickle"), tmp_path / "file", SHA256)


def test_several_processes_share_one_download(server: Server, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dgcf.data.download import download; "
        "download(sys.argv[1], Path(sys.argv[2]), sys.argv[3])"
    )
    words = [sys.executable, "-c", code, server.url("/slow"), str(tmp_path / "file"), SHA256]
    processes = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for process in processes:
        _, problem = process.communicate(timeout=60)
        assert process.returncode == 0, problem
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.requests == ["/slow"]


def test_several_threads_share_one_archive(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread opens the folder for itself, as a process does."""
    monkeypatch.setenv("DGCF_CACHE", str(tmp_path / "cache"))
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("in/file", BODY)
    monkeypatch.setattr(sys.modules[__name__], "BODY", archive.read_bytes())
    file = KnownFile("mine/file", SHA256, Remote(url=server.url("/slow"), member="in/file"))
    failures: list[Exception] = []

    def fetch() -> None:
        try:
            assert file.remote is not None
            catalog._download(file, file.remote, lambda _: None, None)
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=fetch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert hashlib.sha256((tmp_path / "cache" / "mine" / "file").read_bytes()).hexdigest() == SHA256
    assert server.requests == ["/slow"]


def test_archive_member_larger_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "LARGEST", 1_000_000)
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("bomb", bytes(1_000_001))
    with pytest.raises(DataError, match="has 1,000,001 bytes, expected at most 1,000,000"):
        extract(archive, "bomb", tmp_path / "file", None, "a test")
    raw = bytearray(archive.read_bytes())
    place = raw.rindex(b"PK\x01\x02") + 24  # the size that the archive claims
    raw[place : place + 4] = (999).to_bytes(4, "little")
    archive.write_bytes(raw)
    with pytest.raises(DataError, match="is damaged"):
        extract(archive, "bomb", tmp_path / "file", None, "a test")
    assert not (tmp_path / "file").exists()


def test_target_that_cannot_be_written_is_refused_in_one_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(DataError, match="cannot write"):
        download(server.url("/slow"), tmp_path / "file" / "below", SHA256)

"""A model hub as a process: the part of the HTTP interface of the Hugging Face Hub that a push and a load need.

``python -m tests.hub_server FOLDER TOKEN`` prints its port. Repositories, commits and large files are kept in FOLDER;
a push without TOKEN is refused. Large files come through the LFS interface, as at the hub without Xet.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_MODEL = re.compile(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main")


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path
    token: str

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("authorization") != f"Bearer {self.token}":
            return self._json({"error": "Invalid credentials"}, 401)
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path.endswith(".git/info/lfs/objects/batch"):
            return self._json({"transfer": "basic", "objects": [self._upload(o) for o in json.loads(body)["objects"]]})
        if (match := _MODEL.fullmatch(self.path)) is not None:
            if match[2] == "preupload":
                files = [self._mode(entry) for entry in json.loads(body)["files"]]
                return self._json({"files": files})
            return self._commit(match[1], [json.loads(line) for line in body.splitlines() if line])
        return self._json({}, 200 if self.path in ("/api/validate-yaml",) else 404)

    def do_PUT(self) -> None:
        body, oid = self._body(), self.path.rpartition("/")[2]
        if hashlib.sha256(body).hexdigest() != oid:
            return self._json({"error": "wrong content"}, 400)
        self._file("lfs", oid).write_bytes(body)
        return self._json({})

    def do_HEAD(self) -> None:
        self._resolve()

    def do_GET(self) -> None:
        self._resolve()

    def _create(self, request: dict[str, Any]) -> None:
        name = f"{request['organization']}/{request['name']}"
        self._file(name, "private").write_text(str(request.get("visibility", request.get("private"))))
        self._json({"url": f"http://{self.headers['host']}/{name}", "id": name, "name": name})

    def _mode(self, entry: dict[str, Any]) -> dict[str, Any]:
        mode = "lfs" if entry["path"].endswith(".dgcf") else "regular"
        return {"path": entry["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _upload(self, wanted: dict[str, Any]) -> dict[str, Any]:
        href = f"http://{self.headers['host']}/lfs/{wanted['oid']}"
        return {**wanted, "actions": {"upload": {"href": href, "header": {}}}}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        """Keep the files of a commit under its id, and let main name it at the end."""
        files: dict[str, bytes] = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self._file("lfs", value["oid"]).read_bytes()
        oid = hashlib.sha1(b"".join(name.encode() + data for name, data in sorted(files.items()))).hexdigest()
        for path, data in files.items():
            self._file(name, oid, path).write_bytes(data)
        self._file(name, "main").write_text(oid)
        url = f"http://{self.headers['host']}/{name}/commit/{oid}"
        self._json({"commitUrl": url, "commitOid": oid, "success": True})

    def _resolve(self) -> None:
        match = _RESOLVE.fullmatch(unquote(self.path.partition("?")[0]))
        main = self._file(match[1], "main") if match is not None else None
        if match is None or main is None or not main.exists():
            return self._json({"error": "Repository not found"}, 404, {"x-error-code": "RepoNotFound"})
        commit = main.read_text() if match[2] == "main" else match[2]
        path = self.root / match[1] / commit / match[3]
        if not path.is_file():
            code = "EntryNotFound" if path.parent.is_dir() else "RevisionNotFound"
            return self._json({"error": code}, 404, {"x-error-code": code})
        data = path.read_bytes()
        return self._send(data, 200, {"x-repo-commit": commit, "etag": f'"{hashlib.sha256(data).hexdigest()}"'})

    def _file(self, *parts: str) -> Path:
        path = self.root.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), status, {"content-type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *words: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    Hub.root, Hub.token = Path(sys.argv[1]), sys.argv[2]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(server.server_port, flush=True)
    server.serve_forever()

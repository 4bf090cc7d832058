"""``make serve``: the model of the demo is trained once, and served with its page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest


@pytest.mark.slow
def test_demo_is_trained_and_served_with_its_page(tmp_path: Path) -> None:
    environment = {**os.environ, "DGCF_DATA_HOME": str(tmp_path / "none"), "DGCF_CACHE": str(tmp_path / "cache")}
    environment |= {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
    for again in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-m", "dgcf.demo", "serve", "--port", "0", "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith('{"url"'):
                    break
            url = json.loads(lines[-1])["url"]
            assert "<title>dgcf</title>" in httpx.get(url, trust_env=False).text
            assert httpx.get(f"{url}/v1/items?q=the", trust_env=False).json()["items"]
            assert any("dgcf train" in line for line in lines) is not again
            process.send_signal(signal.SIGINT)
            assert process.wait(40) == 0
        finally:
            process.kill()
            process.communicate(timeout=20)

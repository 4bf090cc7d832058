"""``make bench`` prints ratios, records them, and fails if one falls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.bench", "--scale", "0.02", "--rounds", "1", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_bench_records_ratios_and_fails_if_one_falls(tmp_path: Path) -> None:
    record = tmp_path / "recorded.json"
    written = bench("--recorded", str(record), "--record")
    assert written.returncode == 0, written.stderr
    recorded_ratios = json.loads(record.read_text())
    assert {"sparse product", "LightGCN, an epoch", "DGCF with drop-edge, an epoch"} <= set(recorded_ratios)
    assert all(ratio > 0 for ratio in recorded_ratios.values())

    record.write_text(json.dumps(dict.fromkeys(recorded_ratios, 0.001) | {"sparse product": 1e6}))
    failed = bench("--recorded", str(record))
    assert failed.returncode == 1
    assert len(failed.stderr.strip().splitlines()) == 1
    assert failed.stderr.startswith("sparse product: ")
    assert "1000000.00 is on record" in failed.stderr
    assert "| sparse product | torch CSR |" in failed.stdout

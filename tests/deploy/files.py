"""The files of ``deploy/``, and what the tests need to run them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")


def read_yaml(*parts: str) -> Any:
    return yaml.safe_load(DEPLOY.joinpath(*parts).read_text())


def manifest(name: str) -> Any:
    return read_yaml("kubernetes", f"{name}.yaml")


def instruction(name: str) -> Any:
    """Return what the last instruction of this name in the Dockerfile has, of which the form is JSON."""
    values = re.findall(
        rf"^{name}\b[^\[\n]*(?:\\\n[^\[\n]*)?(\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    return json.loads(values[-1])


def program(name: str) -> str:
    """Return the path of a program; skip the test where there is none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}, which .ci/run installs")
    return path


def output_of(*command: str | Path, **options: Any) -> str:
    """Run a command that must succeed, and return the output of both streams."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=options.pop("timeout", 60),
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout

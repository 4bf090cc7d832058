"""Write requirements.lock and requirements-cuda.lock: each package of the development environment with its SHA-256.

pip resolves and reports; nothing is installed. The hashes are those of the files that pip chooses here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEADER = """\
# Made by `make lock` for CPython {python} on {system}; do not edit.
# The development environment: version and SHA-256 of the files that pip chooses there. torch is {torch}.
# Use: pip install --require-hashes -r {name} && pip install --no-deps -e .
"""
Hashes = dict[str, tuple[str, str]]


def main() -> None:
    write(Path("requirements.lock"), resolve())
    with tempfile.TemporaryDirectory() as empty:  # instead of a folder that holds a CPU build of torch
        write(Path("requirements-cuda.lock"), resolve(PIP_FIND_LINKS=empty))


def resolve(**environment: str) -> Hashes:
    """Ask pip what it would install into an empty environment: version and SHA-256 by name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", str(report)]
        command = [sys.executable, "-m", "pip", "install", *options, "-c", "constraints.txt", ".[dev]"]
        subprocess.run(command, check=True, env=os.environ | environment)
        chosen = json.loads(report.read_text())["install"]
    found: Hashes = {}
    for package in chosen:
        archive = package["download_info"].get("archive_info")
        if archive:  # the project itself is a folder
            name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
            found[name] = package["metadata"]["version"], archive["hashes"]["sha256"]
    return found


def write(path: Path, packages: Hashes) -> None:
    python = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    lines = [
        f"{name}=={version.split('+')[0]} \\\n    --hash=sha256:{sha256}\n"
        for name, (version, sha256) in sorted(packages.items())
    ]
    path.write_text(
        HEADER.format(python=python, system=system, torch=packages["torch"][0], name=path.name) + "".join(lines)
    )


if __name__ == "__main__":
    main()

"""Look up the packages of requirements.lock among the known vulnerabilities; say so where that cannot be done."""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    options = ["--requirement", "requirements.lock", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True, check=False, timeout=300
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        packages = []
    checked = [package for package in packages if "vulns" in package]
    if not checked:
        reason = packages[0]["skip_reason"] if packages else (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit: no package was checked, because its service does not answer from here ({reason[:120]}).")
        return
    vulnerable = [package for package in checked if package["vulns"]]
    for package in vulnerable:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}.")
    print(f"pip-audit: {len(checked)} of {len(packages)} packages checked, {len(vulnerable)} vulnerable.")
    sys.exit(1 if vulnerable else 0)


if __name__ == "__main__":
    main()

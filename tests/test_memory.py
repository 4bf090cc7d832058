"""Available memory: the minimum over the machine, its cgroups and resource limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dgcf import memory
from dgcf.errors import ConfigError, NotEnoughMemoryError
from dgcf.memory import available_memory, require_memory

GIB = 2**30


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GiB free and no limits, as the kernel describes it in files."""
    write(
        tmp_path / "proc/meminfo", f"MemTotal:  {16 * 2**20} kB\nMemAvailable:   {8 * 2**20} kB\nHugePages_Total:  0\n"
    )
    write(tmp_path / "proc/self/status", "Name:\tpython\nVmSize:\t 1048576 kB\nVmData:\t  524288 kB\n")
    write(tmp_path / "proc/self/cgroup", "")
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(folder: Path, limit: str, used: int, cached: int, *, version: int = 2) -> None:
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    write(folder / names[0], f"{limit}\n")
    write(folder / names[1], f"{used}\n")
    prefix = "" if version == 2 else "total_"
    write(folder / "memory.stat", f"{prefix}inactive_file {cached}\n{prefix}active_file 0\n")


def test_available_memory_without_limits(system: Path) -> None:
    assert available_memory() == 8 * GIB


def test_available_memory_falls_back_to_total(system: Path) -> None:
    (system / "proc/meminfo").unlink()
    assert available_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_cgroup_2_limits_with_parents_without_file_cache(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/user/job\n")
    group(system / "cgroup/user/job", "max", 3 * GIB, 0)
    assert available_memory() == 8 * GIB
    group(system / "cgroup/user", str(4 * GIB), 3 * GIB, GIB)
    assert available_memory() == 2 * GIB
    group(system / "cgroup/user/job", str(GIB), 2 * GIB, 0)
    assert available_memory() == 0


def test_cgroup_1_limits(system: Path) -> None:
    write(system / "proc/self/cgroup", "9:name=systemd:/x\n4:memory:/a/b\n1:cpu:/\n0::/\n")
    group(system / "cgroup/memory", str(2**63 - 4096), 0, 0, version=1)
    group(system / "cgroup/memory/a/b", str(3 * GIB), 2 * GIB, GIB // 2, version=1)
    assert available_memory() == 3 * GIB // 2


def test_container_group_as_root_limits(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/docker/0123abcd\n")
    group(system / "cgroup", str(GIB), 0, 0)
    assert available_memory() == GIB


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_resource_limits_of_a_process(limit: str) -> None:
    code = "from dgcf.memory import available_memory; print(available_memory())"
    size = 1 << 31

    def limited() -> None:
        resource.setrlimit(getattr(resource, limit), (size, size))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=limited)
    assert 0 < int(done.stdout) < size
    assert int(done.stdout) > size // 2


def test_require_memory_raises_with_sizes_and_advice(system: Path) -> None:
    require_memory(8 * GIB, "the matrix", "drop rare items")
    expected = r"^the matrix needs about 8\.6 GB of memory for 9 items, and 8\.6 GB are free; drop rare items\.$"
    with pytest.raises(NotEnoughMemoryError, match=expected) as caught:
        require_memory(8 * GIB + 1, "the matrix", "drop rare items", size="9 items")
    assert isinstance(caught.value, ConfigError)
    assert (caught.value.kind, caught.value.exit_code, caught.value.hint) == ("memory", 1, "drop rare items.")

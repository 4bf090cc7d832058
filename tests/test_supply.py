"""Dependencies and quoting: locks, oldest versions, SQL in names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from dgcf import Recommender
from dgcf.data import load
from dgcf.data.convert import convert
from dgcf.data.readers import ReadOptions
from dgcf.recommend.batch import Batch
from dgcf.recommend.export import export

PROJECT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-cuda.lock")


def wanted(*extras: str) -> dict[str, Requirement]:
    """The packages that pyproject.toml asks for, by name."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    requirements: dict[str, Requirement] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == project["name"]:
            requirements |= wanted(*requirement.extras)
        else:
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


def pinned(file: str) -> dict[str, str]:
    """The versions in a file of pins, by name."""
    lines = re.findall(r"^([^#\s=]+)==(\S+)", (PROJECT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_covers_the_development_environment(lock: str) -> None:
    versions = pinned(lock)
    for name, requirement in wanted("dev").items():
        assert requirement.specifier.contains(versions[name]), f"{requirement} is {versions[name]}; run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_one_sha256_per_package_and_no_url(lock: str) -> None:
    text = (PROJECT / lock).read_text()
    packages = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(packages) == 2 * len(pinned(lock))
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in packages[1::2])
    assert "/" not in "".join(packages)


def test_oldest_versions_equal_lower_bounds() -> None:
    versions = pinned("constraints-oldest.txt")
    for name, requirement in wanted("dev", "ann").items():
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert Version(versions[name]) == Version(bound.version), name


def test_sql_in_file_and_column_names_is_quoted(tmp_path: Path) -> None:
    odd = "it's \"; DROP TABLE staged; --"
    rows = {f"user {odd}": ["a'--", "a'--", 'b"', 'b"', "c;"], f"item {odd}": ["x", "y", "y", "z'", "x"]}
    source = tmp_path / f"{odd}.parquet"
    pd.DataFrame(rows).to_parquet(source)
    user, item = rows
    dataset = load(source, read=ReadOptions(user_col=user, item_col=item))
    assert set(dataset.users) == set(rows[user])
    convert(dataset, tmp_path / f"again {odd}.parquet")
    assert set(load(tmp_path / f"again {odd}.parquet").users) == set(dataset.users)
    fitted = Recommender("popularity").fit(dataset)
    for name in (f"all {odd}.csv", f"all {odd}.parquet"):
        Batch(fitted.snapshot, k=1).write(tmp_path / name)
        assert (tmp_path / name).exists()
    with_rows = Recommender("bpr-mf", dim=4, epochs=1).fit(dataset)
    export(with_rows.snapshot, tmp_path / f"rows {odd}", "parquet")
    assert len(pd.read_parquet(tmp_path / f"rows {odd}" / "items.parquet")) == len(dataset.items)

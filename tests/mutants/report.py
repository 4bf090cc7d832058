"""The report of `make mutants`: the number of mutants killed, and survivors that are not explained.

A survivor is named by its function and its changed code, not by mutmut's number, which changes with every edit.
``survivors.txt`` has paragraphs: a reason in lines with ``#``, then the mutants that survive for this reason.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

ENOUGH = 0.92
CAUGHT = ("killed", "timeout", "segfault")
FOLDER = Path("mutants")
LIST = Path(__file__).with_name("survivors.txt")


def results() -> Iterator[tuple[Path, str, str]]:
    """Yield source file, name and status of each mutant."""
    for path in sorted(FOLDER.rglob("*.py.meta")):
        for name, exit_code in json.loads(path.read_text())["exit_code_by_key"].items():
            yield path.relative_to(FOLDER).with_suffix(""), name, status_by_exit_code[exit_code]


def described(source: Path, name: str) -> str:
    """``dgcf.graph.crosshop.build.CrossHop.warning: if …``; a removed line follows ``without``."""
    function = re.sub(r"__mutmut_\d+$", "", name).replace(".x_", ".").replace(".xǁ", ".").replace("ǁ", ".")
    changes = get_diff_for_mutant(name, path=source).splitlines()[2:]
    added, removed = ([line[1:].strip() for line in changes if line.startswith(sign)] for sign in "+-")
    code = " ".join(added) if len(added) >= len(removed) else f"without {removed[0]}"
    return f"{function}: {code}"


def explained() -> set[str]:
    """Return the mutants of all paragraphs that begin with a reason."""
    paragraphs = [block.strip().splitlines() for block in LIST.read_text().split("\n\n")]
    return {line for block in paragraphs if block and block[0].startswith("# ") for line in block if line[0] != "#"}


def main() -> int:
    fates = list(results())
    if waiting := sum(fate == "not checked" for _, _, fate in fates):
        print(f"{waiting} of {len(fates)} mutants have not been tried; run `make mutants` to its end.")
        return 1
    survivors = sorted(described(source, name) for source, name, fate in fates if fate not in CAUGHT)
    known = explained()
    unexplained = [mutant for mutant in survivors if mutant not in known]
    for title, lines in (("not explained", unexplained), ("listed, but killed", sorted(known - set(survivors)))):
        for line in lines:
            print(f"{title}: {line}")
    killed = len(fates) - len(survivors)
    share = killed / max(len(fates), 1)
    print(
        f"mutants: {len(fates)}, killed: {killed} ({share:.1%}), "
        f"survivors explained: {len(survivors) - len(unexplained)} of {len(survivors)}"
    )
    return int(share < ENOUGH or bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())

"""The options of ``dgcf data prepare`` as a ``Preparation``; an option without effect is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgcf.data.splits import Split
from dgcf.data.weights import Weighting
from dgcf.errors import ConfigError

TRANSFORM = "log1p"


@dataclass(frozen=True)
class SplitOptions:
    """The options that describe a split; None where one was not given."""

    method: str | None = None
    ratios: str | None = None
    leave: int | None = None
    seed: int | None = None
    cut: str | None = None
    validation_cut: str | None = None

    def split(self, share: float | None) -> Split | None:
        """Return the split, or None without options; ``share`` is that of a validation part to carve out."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            return None
        chosen = self.method or ("random" if self.cut is None else "temporal")
        self._refuse_without_effect(chosen, given, share)
        shares = numbers(self.ratios or "0.7,0.1,0.2", "--ratios", "0.7,0.1,0.2")
        if len(shares) != 3:
            raise ConfigError(f"--ratios got {len(shares)} numbers, expected three: train, validation and test.")
        k = 1 if self.leave is None else self.leave
        ratios = (shares[0], shares[1], shares[2])
        return Split(chosen, ratios, k, self.seed or 0, self.cut, self.validation_cut)  # type: ignore[arg-type]

    def _refuse_without_effect(self, chosen: str, given: Mapping[str, Any], share: float | None) -> None:
        if "leave" in given and chosen != "leave-k-out":
            raise ConfigError(f"--leave was given with the split {chosen}; use it with --split leave-k-out.")
        if "ratios" in given and chosen in ("leave-k-out", "none"):
            raise ConfigError(f"--ratios was given with the split {chosen}, which has none; leave it out.")
        if "cut" in given and chosen != "temporal":
            raise ConfigError(f"--cut was given with the split {chosen}; use it with --split temporal.")
        if "validation_cut" in given and "cut" not in given:
            raise ConfigError("--validation-cut was given without --cut; add it, or leave --validation-cut out.")
        if "ratios" in given and ("cut" in given or share is not None):
            other = "--cut" if "cut" in given else "a share for validation"
            raise ConfigError(f"--ratios and {other} were both given; choose one of them.")


def share_of(validation: str | None) -> float | None:
    """Return the share that ``--validation`` gives in place of a file, or None if it names a file."""
    if validation is None or Path(validation).exists():
        return None
    try:
        return float(validation)
    except ValueError:
        return None


def weighting_of(transform: str | None, *, count: bool, column: object) -> Weighting:
    """Return the weighting of ``--count-repeats``, ``--weight-col`` and ``--weight-transform``."""
    if transform is not None and not count and column is None:
        raise ConfigError("--weight-transform was given without weights; add --weight-col or --count-repeats.")
    return Weighting.parse(TRANSFORM if transform is None else transform, count=count)


def numbers(text: str, option: str, example: str) -> tuple[float, ...]:
    """Return the numbers of an option, separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} got {text!r}, expected numbers separated by commas, such as {example}.") from None

"""The options of refreshes, as ``dgcf serve`` takes them."""

from __future__ import annotations

import re

from dgcf.errors import ConfigError
from dgcf.serve.refresh.process import without_torch
from dgcf.serve.settings import Refreshing

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def refreshing_of(every: str | None, memory: str | None, timeout: str | None, margin: float | None) -> Refreshing:
    """Return the settings of refreshes; raise ``ConfigError`` for a wrong option, or a schedule without torch."""
    default = Refreshing()
    if margin is not None and not 0 <= margin < 1:
        raise ConfigError(f"--refresh-margin is {margin:g}, expected a share from 0 to below 1, such as 0.02.")
    if every is not None and (reason := without_torch()) is not None:
        raise ConfigError(f"--refresh-every: {reason}")
    return Refreshing(
        every=None if every is None else _of(every, _SECONDS, "--refresh-every", "such as 24h"),
        memory=None if memory is None else round(_of(memory, _BYTES, "--refresh-memory", "such as 4GB")),
        timeout=default.timeout if timeout is None else _of(timeout, _SECONDS, "--refresh-timeout", "such as 30m"),
        margin=default.margin if margin is None else margin,
    )


def _of(text: str, units: dict[str, float] | dict[str, int], option: str, example: str) -> float:
    """Return a number with a unit in the unit 1."""
    match = _NUMBER.fullmatch(text)
    value = float(match[1]) * units.get(match[2], 0) if match else 0.0
    if not 0 < value < 1e15:
        raise ConfigError(f"{option} is {text!r}, expected a number above 0 with {', '.join(units)}, {example}.")
    return value

"""The settings of the composed ranking, and the text that names its parts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dgcf.config import Value, configure, parse_settings, require_range
from dgcf.errors import ConfigError, did_you_mean
from dgcf.models.catalog import CATALOG

FILTER, EASE, POPULARITY = "filter", "ease", "popularity"
MAX_NEIGHBOURS = 100_000
_PART = re.compile(r"\s*([\w-]+)\s*(?:\(([^()]*)\))?\s*")


@dataclass(frozen=True)
class Part:
    """A model whose item weights or prior are added: its name, and the settings that differ from its defaults.

    ``filter`` and ``ease`` without settings stand for several candidates, of which validation chooses one.
    """

    name: str
    settings: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        words = ",".join(f"{key}={value}" for key, value in self.settings)
        return f"{self.name}({words})" if words else self.name

    @property
    def timed(self) -> bool:
        """Whether it needs the time of every pair."""
        return self.name == POPULARITY and bool(dict(self.settings).get("halflife"))


RECENT = tuple(Part(POPULARITY, (("halflife", share),)) for share in (0.2, 0.07, 0.02))
"""The candidates of ``auto`` for popularity in data that is split by time; validation chooses at most one."""


@dataclass(frozen=True)
class BlendConfig:
    """Settings of the composed ranking, ``s(u, i) = ⟨e_u, e_i⟩ + d_u^-½ Σ_j (Σ_m c_m W_m)[j, i] + c p_i``."""

    blend: str = "none"
    """What to add to the scores: ``none``; ``auto`` (filter+ease, and recent popularity in a split by time); or
    ``filter``, ``ease``, ``item-knn``, ``gf-cf``, ``bspm``, ``chebycf``, ``popularity`` joined by ``+``, with
    settings as in ``ease(l2=200)``."""
    blend_weights: str | float = "auto"
    """How much each part adds: ``auto`` (chosen on validation), or numbers joined by ``+``. At 1 a part's scores spread
    as much over the items as those of the embeddings."""
    blend_neighbours: int = 400
    """Number n of entries of largest magnitude kept in each row of the added weights."""

    def __post_init__(self) -> None:
        require_range("blend_neighbours", self.blend_neighbours, 1, MAX_NEIGHBOURS)
        for part in self.parts:
            _check_part(part)
        numbers = self.numbers
        if numbers is not None and self.blend == "auto":
            raise ConfigError(
                "blend is auto, so its weights are chosen too; name the parts, such as blend=filter+ease."
            )
        if numbers is not None and len(numbers) != len(self.parts):
            raise ConfigError(
                f"blend_weights has {len(numbers)} numbers, but blend has {len(self.parts)} parts; give one for each, "
                "joined by +, or auto."
            )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts in their order; those of ``auto`` are the filter and EASE, and ``RECENT`` in a split by time."""
        if self.blend == "none":
            return ()
        if self.blend == "auto":
            return (Part(FILTER), Part(EASE))
        return tuple(_parse_part(text) for text in re.split(r"\+(?![^()]*\))", self.blend))

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The weights of the parts; None if they are chosen on validation."""
        if self.blend_weights == "auto":
            return None
        try:
            numbers = tuple(float(word) for word in str(self.blend_weights).split("+"))
        except ValueError:
            numbers = (math.nan,)
        if not all(0 <= number <= 1e6 for number in numbers):
            raise ConfigError(
                f"blend_weights is {self.blend_weights!r}, expected auto, or numbers from 0 to 1e6 joined by +, such "
                "as 0.5+0.35."
            )
        return numbers


def _parse_part(text: str) -> Part:
    match = _PART.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"blend has the part {text[:80]!r}, expected a name, or a name with settings such as ease(l2=200)."
        )
    name, words = match[1], match[2] or ""
    settings = parse_settings(word for word in words.split(",") if word.strip())
    return Part(name, tuple((key, _value(key, value)) for key, value in settings.items()))


def _value(key: str, value: object) -> Value:
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{key} of a part of blend is {str(value)[:80]!r}, expected a number or a word.")
    return value


def _check_part(part: Part) -> None:
    """Raise ``ConfigError`` unless the part is a model with item weights, or popularity, and its settings are right."""
    known = [FILTER, *(name for name, entry in CATALOG.items() if not entry.has_embeddings), POPULARITY]
    if part.name not in known:
        trained = "; it has embeddings and no weights between items" if part.name in CATALOG else ""
        hint = did_you_mean(part.name, known) or f"; there are {', '.join(known)}."
        raise ConfigError(f"blend has the part {part.name!r}{trained}{hint}")
    if part.name == FILTER:
        if part.settings:
            raise ConfigError("blend has settings for filter, which is one of several; name it, such as bspm(rank=64).")
        return
    configure(CATALOG[part.name].config, dict(part.settings), f"{part.name} in blend")

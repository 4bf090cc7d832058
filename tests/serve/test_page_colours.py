"""The colours of the parts of a score are told apart in both modes, also by colour-blind readers."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import dgcf.serve
from dgcf.ranking.arrays import Floats

STYLE = (Path(dgcf.serve.__file__).parent / "page" / "style.css").read_text(encoding="utf-8")
MODES = dict(zip(("light", "dark"), STYLE.split("@media (prefers-color-scheme: dark)"), strict=True))
PICKS = tuple(f"pick-{number}" for number in range(6))
OTHERS = ("user", "prior", "negative", "unlike")
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB; then OKLab (Ottosson, 2020).
SIGHT = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
CONES = np.array([[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]])
OKLAB = np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]])


def colours(mode: str) -> dict[str, Floats]:
    """Return the colours of a mode as linear RGB."""
    values = dict(re.findall(r"--([\w-]+): #([0-9a-f]{6})", MODES[mode]))
    of = {
        name: np.array([int(text[place : place + 2], 16) / 255 for place in (0, 2, 4)]) for name, text in values.items()
    }
    return {name: np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) for name, rgb in of.items()}


def distance(one: Floats, two: Floats, sight: str) -> float:
    """Return the distance in OKLab as somebody with this sight sees it; black and white are 1 apart."""
    seen = [OKLAB @ np.cbrt(CONES @ np.clip(np.array(SIGHT[sight]) @ colour, 0, 1)) for colour in (one, two)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(one: Floats, two: Floats) -> float:
    """Return the contrast ratio of WCAG 2."""
    dark, bright = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (one, two))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", MODES)
def test_picked_items_are_told_from_each_other_and_from_all_else(mode: str) -> None:
    of = colours(mode)
    near = {pair: distance(of[pair[0]], of[pair[1]], "normal") for pair in combinations((*PICKS, *OTHERS), 2)}
    assert {pair: value for pair, value in near.items() if value < 0.05} == {}
    assert min(contrast(of[name], of["surface"]) for name in (*PICKS, *OTHERS)) >= 3


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("mode", MODES)
def test_similar_users_and_the_second_pick_are_told_from_the_rest(mode: str, sight: str) -> None:
    of = colours(mode)
    near = {name: distance(of["user"], of[name], sight) for name in PICKS}
    near |= {
        f"pick-1 {name}": distance(of["pick-1"], of[name], sight) for name in (*PICKS, *OTHERS) if name != "pick-1"
    }
    assert {name: value for name, value in near.items() if value < 0.07} == {}

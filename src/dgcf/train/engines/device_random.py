"""The streams of ``dgcf.random`` computed on any device, with the same words.

NumPy draws about 60 million words a second. An epoch with many negatives per pair needs more than that, and a GPU would
wait for it; so it draws these itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgcf.random import key_of

# Philox4x64 with ten rounds (Salmon et al., SC 2011): two multipliers, and the increments of the key after each round.
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
INCREMENTS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
ROUNDS = 10
HALF = 0xFFFFFFFF


def device_bits(seed: int, name: str, n: int, positions: range, device: torch.device) -> Tensor:
    """Return ``dgcf.random.bits`` at each position, (positions, n), as signed numbers with the same 64 bits."""
    blocks = torch.arange(1, -(-n // 4) + 1, device=device).expand(len(positions), -1)  # a block gives four words
    at = torch.arange(positions.start, positions.stop, device=device)[:, None].expand_as(blocks)
    counter = [blocks, torch.zeros_like(blocks), at, torch.zeros_like(blocks)]
    keys = key_of(seed, name)
    for turn in range(ROUNDS):
        first, second = (_signed(key + turn * more) for key, more in zip(keys, INCREMENTS, strict=True))
        high0, low0 = _product(counter[0], MULTIPLIERS[0])
        high1, low1 = _product(counter[2], MULTIPLIERS[1])
        counter = [high1 ^ counter[1] ^ first, low1, high0 ^ counter[3] ^ second, low0]
    return torch.stack(counter, dim=2).flatten(1)[:, :n]


def device_uniform(seed: int, name: str, n: int, positions: range, device: torch.device) -> Tensor:
    """Return ``dgcf.random.uniform`` at each position, (positions, n), with the same bits."""
    words = device_bits(seed, name, n, positions, device)
    return ((words >> 11) & (2**53 - 1)).double() * 2.0**-53  # the mask removes the sign bits of the shift


def _product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower 64 bits of an unsigned product, by halves: torch multiplies signed numbers."""
    high, low = factor >> 32, factor & HALF
    x_high, x_low = (x >> 32) & HALF, x & HALF
    cross = x_low * high
    carried = x_high * low + (((x_low * low) >> 32) & HALF)
    middle = (carried & HALF) + (cross & HALF)
    upper = x_high * high + ((carried >> 32) & HALF) + ((cross >> 32) & HALF) + ((middle >> 32) & HALF)
    return upper, x * _signed(factor)


def _signed(word: int) -> int:
    """Return the signed number with the lower 64 bits of ``word``."""
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word

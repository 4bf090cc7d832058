"""Edge and message dropout: random draws by counter, so that no mask is ever stored.

The draw for edge number e at (seed, step, layer) is a pure function in 32-bit unsigned arithmetic (wrapping products,
logical shifts), so that NumPy, torch and a GPU kernel give the same bits::

    h = mix32(e)                                        # fixed, computed once per matrix
    k0, k1 = two words of the stream "drop-edge/step/layer" of the seed; k1 made odd
    z = (h ^ k0) * k1;  z = (z ^ z >> 16) * 0x9E3779B9  # once per step, layer and edge
    dropped  <=>  z < floor(p * 2**32)

    mix32(x): x = (x ^ x >> 16) * 0x7FEB352D;  x = (x ^ x >> 15) * 0x846CA68B;  x ^ x >> 16
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import local
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgcf.errors import ConfigError
from dgcf.graph.kernels.cpu.sparse import bits
from dgcf.random import key_of

Words = NDArray[np.uint32]
GOLDEN = 0x9E3779B9
# Words per chunk. Smaller chunks stay in a nearer cache, but two threads then contend for Python's lock too often: on
# two cores, a DGCF step on ML1M takes 23.5 ms at 2^15, 17.8 at 2^17 and 16.4 at 2^18.
CHUNK = 1 << 18
WORD = 0xFFFFFFFF


class _Buffers(local):
    """Work arrays of a thread, kept between draws: newly allocated memory would be cleared at every draw."""

    def __init__(self) -> None:
        self.arrays = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.bool_)


_buffers = _Buffers()


@dataclass(frozen=True)
class EdgeDrop:
    """One draw of edge dropout: each stored entry is dropped with probability p, the others count ``1/(1-p)`` times.

    Entries are drawn independently, as in the authors' code, so the thinned matrix is not symmetric; its adjoint uses
    the mirrored draws. A draw depends on (seed, step, layer, entry) alone. A fixed ``layer`` gives all layers of a step
    the same draw.
    """

    p: float
    seed: int
    step: int
    layer: int = 0
    words: Tensor | None = field(default=None, compare=False)
    """``keys`` on a device, (2,) int32, or (lanes, 2) for trainings side by side; replaces seed, step and layer."""
    stream: ClassVar[str] = "drop-edge"

    def __post_init__(self) -> None:
        if not 0.0 <= self.p < 1.0:
            raise ConfigError(f"the drop probability is {self.p}, expected a number from 0 to below 1.")
        if self.seed < 0 or self.step < 0 or self.layer < 0:
            raise ConfigError(
                f"drop-edge got seed {self.seed}, step {self.step}, layer {self.layer}; give whole numbers from 0 on."
            )

    @property
    def rescale(self) -> float:
        """``1/(1-p)``, the factor of the kept entries."""
        return 1.0 / (1.0 - self.p)

    @cached_property
    def keys(self) -> tuple[int, int]:
        """``k0`` and the odd ``k1`` of this step and layer."""
        return draw_keys(self.seed, self.stream, self.step, self.layer)

    def lane_keys(self, device: torch.device) -> Tensor:
        """Return ``keys`` on a device, (lanes, 2) int32; one lane unless ``words`` has more."""
        if self.words is not None:
            return self.words if self.words.ndim == 2 else self.words[None]
        return torch.from_numpy(np.array([self.keys], dtype=np.uint32).view(np.int32)).to(device)

    @property
    def limit(self) -> int:
        """Words below this are dropped: ``floor(p · 2^32)``."""
        return int(self.p * 2.0**32)

    def kept(self, hashes: Words) -> NDArray[np.bool_]:
        """Return which edges are kept, given ``mix32`` of their numbers."""
        kept = np.empty(hashes.shape, dtype=np.bool_)
        self._draw(hashes, np.empty_like(hashes), np.empty_like(hashes), kept)
        return kept

    def _draw(self, hashes: Words, z: Words, shifted: Words, kept: NDArray[np.bool_]) -> None:
        """Write ``kept``; ``z`` and ``shifted`` are work arrays of the same shape."""
        k0, k1 = self.keys
        np.bitwise_xor(hashes, np.uint32(k0), out=z)
        np.multiply(z, np.uint32(k1), out=z)
        np.right_shift(z, np.uint32(16), out=shifted)
        np.bitwise_xor(z, shifted, out=z)
        np.multiply(z, np.uint32(GOLDEN), out=z)
        np.greater_equal(z, np.uint32(self.limit), out=kept)

    def mask(self, values: Tensor, hashes: Tensor, out: Tensor | None = None) -> Tensor:
        """Return ``values`` with the dropped ones set to zero, not yet rescaled. ``hashes``: the int32 bits of mix32.

        On the CPU the result can be written to ``out``, of the same shape and type.
        """
        if values.device.type != "cpu":
            return values * self._kept_on_device(hashes)
        masked = torch.empty_like(values) if out is None else out
        bits_in, bits_out = bits(values), bits(masked)
        words = hashes.numpy().view(np.uint32)
        z, shifted, kept = _buffers.arrays
        for start in range(0, len(words), CHUNK):
            part = slice(start, start + CHUNK)
            n = len(words[part])
            self._draw(words[part], z[:n], shifted[:n], kept[:n])
            # Integer bits times zero or one: one pass for any float width, bfloat16 included.
            np.multiply(bits_in[part], kept[:n], out=bits_out[part])
        return masked

    def _kept_on_device(self, hashes: Tensor) -> Tensor:
        # Flipping the top bit makes the signed comparison an unsigned one.
        words = draw_words(hashes, self.keys if self.words is None else self.words)
        return (words ^ _signed(0x80000000)) >= _signed(self.limit ^ 0x80000000)


@dataclass(frozen=True)
class MessageDrop(EdgeDrop):
    """One draw of message dropout: the same formula for the numbers of an (N, dim) matrix, from its own stream.

    ``position_hashes`` of row and column takes the place of an edge's ``h``.
    """

    stream: ClassVar[str] = "drop-message"

    def kept_at(self, rows: Tensor, width: int) -> Tensor:
        """Return which numbers of the given rows are kept, (n_rows, width) bool; ``rows`` are int64 node numbers."""
        hashes = position_hashes(rows, width)
        if rows.device.type == "cpu":
            return torch.from_numpy(self.kept(hashes.numpy().view(np.uint32)))
        return self._kept_on_device(hashes)


def mix32(numbers: NDArray[Any]) -> Words:
    """Return a fixed bijection of 32-bit words that hides their order (see the module's formula)."""
    x = numbers.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)))


def hash_tensor(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """Return ``mix32`` of edge numbers as an int32 tensor: torch lacks some unsigned operations."""
    return torch.from_numpy(mix32(numbers).view(np.int32)).to(device)


def position_hashes(rows: Tensor, width: int) -> Tensor:
    """Return the hashes of positions (i, j): ``mix32(i) ^ mix32(2³² − 1 − j)``, (n_rows, width) int32 bits.

    They depend neither on the number of rows nor on the width, so a draw for some rows is part of the draw for all.
    """
    x = rows.to(torch.int32)  # mix32 in signed arithmetic, on the device of the rows
    x = (x ^ ((x >> 16) & 0xFFFF)) * _signed(0x7FEB352D)
    x = (x ^ ((x >> 15) & 0x1FFFF)) * _signed(0x846CA68B)
    x = x ^ ((x >> 16) & 0xFFFF)
    return x[:, None] ^ _column_hashes(width, rows.device)


@lru_cache(maxsize=64)
def _column_hashes(width: int, device: torch.device) -> Tensor:
    return hash_tensor(WORD - np.arange(width, dtype=np.int64), device)


def draw_keys(seed: int, stream: str, step: int, layer: int) -> tuple[int, int]:
    """Return ``k0`` and the odd ``k1`` of a stream's step and layer."""
    first, second = key_of(seed, f"{stream}/{step}/{layer}")
    return first & WORD, (second & WORD) | 1


def draw_words(hashes: Tensor, keys: tuple[int, int] | Tensor) -> Tensor:
    """Return z in torch's signed 32-bit arithmetic: products wrap alike, right shifts are masked."""
    k0, k1 = keys.unbind() if isinstance(keys, Tensor) else (_signed(key) for key in keys)
    z = (hashes ^ k0) * k1
    return (z ^ ((z >> 16) & 0xFFFF)) * _signed(GOLDEN)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word

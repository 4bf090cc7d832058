"""Ranking with torch, on a CPU or a GPU: the masked top-k of any scorer, and candidates for the exact top-k.

Floating-point scores depend on the shape of the product that made them (a matrix–vector kernel and a
matrix–matrix kernel sum in different orders), so scoring whatever happens to be in a chunk would give results that
change with the chunk. Here the users are cut into *blocks* by their index alone: user u is always scored by the call
``scorer.scores([b·B, …, b·B + B − 1])`` with ``b = u // B``, in any chunk and with any other users. ``B`` depends on
the number of items only. Everything after scoring is comparisons, which are exact; hence equal results for every
chunk, memory budget, order and subset of users.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from dgcf.data.pairs import Pairs, row_entries
from dgcf.errors import ConfigError, DataError
from dgcf.ranking.arrays import Floats, Rows
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.topk import Candidates, EmbeddingIndex
from dgcf.ranking.weights import SparseWeights, WeightMatrix

MEMORY = 256 * 2**20
"""Default memory for scores and what ranking makes of them, in bytes."""

_BLOCK_SCORES = 2**22  # 16 MiB in float32: where CPU products and CUDA launches are both near their best
_MAX_BLOCK = 1024
_MARGIN = 16  # near-ties around the k-th place are rarely more; where they are, the search widens
_DIRECT_ITEMS = 512  # below this, comparing all items is cheaper than grouping them first


class Scorer(Protocol):
    """All that evaluation needs of a model; a ``Ranking`` is one."""

    def scores(self, user_idx: Tensor) -> Tensor | NDArray[Any]:
        """Return scores (batch, n_items), on any device, of users (batch,) int64 on the CPU; larger is better.

        The same call must give the same bits. −∞ excludes an item; NaN is refused.
        """


@runtime_checkable
class PartialScorer(Scorer, Protocol):
    """A scorer that can leave out work for users who are not ranked."""

    def some_scores(self, user_idx: Tensor, rows: NDArray[np.integer]) -> Tensor | NDArray[Any]:
        """Return what ``scores`` returns, with the same bits in ``rows`` (n,) and any numbers in the other rows."""


class TensorTopK(NamedTuple):
    """``item_idx`` (n, k) int64, best first, −1 where no candidate is left; ``scores`` (n, k), −∞ there."""

    item_idx: Tensor
    scores: Tensor


def top_k_by_scores(
    scorer: Scorer,
    user_idx: NDArray[np.integer],
    mask: Pairs,
    k: int,
    *,
    memory: int = MEMORY,
    chunk: int | None = None,
    block: int | None = None,
) -> TensorTopK:
    """Return the k best items of each user without those that ``mask`` gives the user; ties go to the smaller index.

    ``user_idx`` (n,) names the users, in any order; ``mask`` covers all users and items. ``chunk`` users
    are ranked at a time, by default as many as ``memory`` bytes hold; neither changes the result. ``block`` users are
    scored at a time: that may change the last bits of the scores, so keep the default where results are compared, and
    set it to 1 to rank single users fast. The result lies on the device of the scores.
    """
    users = _checked(user_idx, mask, k)
    if len(users) == 0:
        return TensorTopK(torch.empty((0, k), dtype=torch.int64), torch.empty((0, k)))
    order = np.argsort(users, kind="stable")  # so each block is scored once
    blocks = _Blocks(scorer, mask, users[order], _block_size(mask.n_items) if block is None else block)
    kept = min(k, mask.n_items)
    width = _group_width(mask.n_items, kept)
    buffer = _buffer(blocks.of(int(users[order[0]])), len(users), mask.n_items, kept, width, memory, chunk)
    ranked = []
    for start in range(0, len(users), len(buffer)):
        part = users[order[start : start + len(buffer)]]
        filled = buffer[: len(part)]
        blocks.write(part, filled[:, : mask.n_items])
        _hide(filled, part, mask)
        ranked.append(_best(filled, kept, width))
    back = torch.from_numpy(np.argsort(order, kind="stable")).to(buffer.device)
    short = (0, k - kept)
    item_idx = torch.cat([part.item_idx for part in ranked])[back]
    scores = torch.cat([part.scores for part in ranked])[back]
    return TensorTopK(pad(item_idx, short, value=-1), pad(scores, short, value=float("-inf")))


def _checked(user_idx: NDArray[np.integer], mask: Pairs, k: int) -> NDArray[np.int64]:
    _at_least_one("k", k)
    users = np.asarray(user_idx, dtype=np.int64)
    if users.ndim != 1:
        raise DataError(f"the users have {users.ndim} dimensions; give a flat array of user indices.")
    if len(users) and (users.min() < 0 or users.max() >= mask.n_users):
        raise DataError(
            f"user indices run from {users.min()} to {users.max()}, but the mask knows {mask.n_users} users; "
            "give indices of the dataset that the mask belongs to."
        )
    if mask.n_items == 0:
        raise DataError("there is no item to rank; give a dataset with at least one item.")
    return users


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} is {value}; give a whole number from 1 on.")
    return value


def _block_size(n_items: int) -> int:
    """Return the number of users per scorer call, a power of two that depends on the number of items alone."""
    fitting = max(1, _BLOCK_SCORES // n_items)
    return int(min(_MAX_BLOCK, 1 << (fitting.bit_length() - 1)))


class _Blocks:
    """The scores of ``users``, ascending, in blocks of ``size`` users by index; the block in use is kept."""

    def __init__(self, scorer: Scorer, mask: Pairs, users: NDArray[np.int64], size: int) -> None:
        self.size, self._users = _at_least_one("block", size), users
        self._scorer, self._n_users, self._n_items = scorer, mask.n_users, mask.n_items
        self._number, self._scores = -1, torch.empty(0)

    def of(self, user: int) -> Tensor:
        """Return the scores of the block of ``user``: always made by the same call."""
        number = user // self.size
        if number == self._number:
            return self._scores
        first, last = number * self.size, min((number + 1) * self.size, self._n_users)
        self._scores = torch.empty(0)  # or two blocks would be held while the next is computed
        with torch.no_grad():
            scores = torch.as_tensor(self._score(first, last))
        if scores.shape != (last - first, self._n_items) or not scores.is_floating_point():
            raise DataError(
                f"the scorer gave {scores.dtype} of shape {tuple(scores.shape)} for {last - first} users; "
                f"expected floating-point scores of shape ({last - first}, {self._n_items})."
            )
        self._number, self._scores = number, scores
        return scores

    def _score(self, first: int, last: int) -> Tensor | NDArray[Any]:
        block = torch.arange(first, last)
        if not isinstance(self._scorer, PartialScorer):
            return self._scorer.scores(block)
        ranked = self._users[slice(*np.searchsorted(self._users, [first, last]))]
        return self._scorer.some_scores(block, np.unique(ranked) - first)

    def write(self, users: NDArray[np.int64], out: Tensor) -> None:
        """Copy the scores of ``users``, ascending, into ``out`` (len(users), n_items).

        A copy, because the block may be the scorer's own and is about to be masked.
        """
        cuts = np.flatnonzero(np.diff(users // self.size)) + 1
        for part, rows in zip(np.split(users, cuts), out.tensor_split(cuts.tolist()), strict=True):
            scores, row = self.of(int(part[0])), part % self.size
            if bool((np.diff(row) == 1).all()):  # neighbours, as in a full evaluation: no gather
                rows.copy_(scores[row[0] : row[-1] + 1])
            else:
                rows.copy_(scores[torch.from_numpy(row).to(scores.device)])


def _buffer(block: Tensor, n: int, n_items: int, k: int, width: int, memory: int, chunk: int | None) -> Tensor:
    """Allocate one chunk of scores like those of ``block``, padded to whole groups with −∞ that stays."""
    padded = -(-n_items // width) * width
    held = block.numel() * block.element_size()
    # per user: the scores, the maxima of the groups, the candidates; of the last two values and indices, and
    # the same again while they are ordered
    small = (padded // width + k * width) * (block.element_size() + 8)
    per_user = padded * block.element_size() + 2 * small
    if chunk is None:
        chunk = (memory - held) // per_user
        if chunk < 1:
            raise ConfigError(
                f"ranking {n_items} items needs at least {held + per_user} bytes, but memory is {memory}; "
                f"raise it, or lower block (now {len(block)})."
            )
        if not block.is_cuda:
            chunk = min(chunk, 2 * len(block))  # more gains nothing there and leaves the caches
    rows = min(_at_least_one("chunk", chunk), n)
    return torch.full((rows, padded), float("-inf"), dtype=block.dtype, device=block.device)


def _hide(scores: Tensor, users: NDArray[np.int64], mask: Pairs) -> None:
    """Write −∞ over the masked items of ``users``, one row of ``scores`` (len(users), padded) each."""
    entries, counts = row_entries(mask.indptr, users)
    row = np.repeat(np.arange(len(users)), counts)
    item = mask.indices[entries]
    flat = torch.from_numpy(row * scores.shape[1] + item).to(scores.device)
    scores.view(-1)[flat] = float("-inf")


def _group_width(n_items: int, k: int) -> int:
    """Return a width w near √(n/k), which minimises n/w group maxima plus k·w candidates; 1 means no groups."""
    if n_items <= max(_DIRECT_ITEMS, 8 * k):
        return 1
    return 1 << (isqrt(n_items // k).bit_length() - 1)


def _best(scores: Tensor, k: int, width: int) -> TensorTopK:
    """Return the k best of each row of ``scores`` (n, padded): larger first, then smaller index.

    The items are cut into groups of w = ``width`` neighbours. The k best items lie in the k groups whose
    maxima come first (larger, then earlier): an item of any other group has the maxima of k groups before it.
    So only n/w maxima and k·w candidates are ever ordered, not n items.
    """
    n, padded = scores.shape
    grouped = scores.view(n, padded // width, width)
    maxima = grouped.amax(2)
    if bool(maxima.isnan().any()):  # a maximum over a NaN is NaN
        raise DataError("a score is NaN; the model has diverged: lower the learning rate and train again.")
    group = first_columns(maxima, k).sort(1).values  # ascending, so candidates stay in item order
    near = grouped.gather(1, group[:, :, None].expand(-1, -1, width)).reshape(n, k * width)
    item = (group[:, :, None] * width + torch.arange(width, device=scores.device)).reshape(n, k * width)
    place = first_columns(near, k)
    best = near.gather(1, place)
    return TensorTopK(item.gather(1, place).masked_fill_(best == float("-inf"), -1), best)


def first_columns(values: Tensor, k: int) -> Tensor:
    """Return the columns (n, k) of the k largest of each row of ``values`` (n, m): largest first, left before right."""
    top = values.topk(k, dim=1)
    column = top.indices.sort(1).values
    last = top.values[:, -1:]
    # topk keeps an arbitrary few of those that equal the last: where it had a choice, take the leftmost
    choice = (values >= last).sum(1) > k
    if bool(choice.any()):
        above, equal = values[choice] > last[choice], values[choice] == last[choice]
        equal &= equal.cumsum(1) <= k - above.sum(1, keepdim=True)
        column[choice] = (above | equal).nonzero()[:, 1].view(-1, k)
    best_first = values.gather(1, column).sort(dim=1, descending=True, stable=True).indices
    return column.gather(1, best_first)


def largest_columns(values: Tensor, n: int) -> Tensor:
    """Return the columns (n_rows, n), ascending, of the n largest of each row; of equal ones the left ones."""
    n_rows, n_columns = values.shape
    if n == n_columns:
        return torch.arange(n, device=values.device).expand(n_rows, n)
    if values.device.type != "cpu":
        return first_columns(values, n).sort(dim=1).values
    last = np.partition(values.numpy(), -n, axis=1)[:, -n]  # several times faster than torch's top-k on a CPU
    kept = values >= torch.from_numpy(last)[:, None]
    ties = kept.sum(dim=1) > n
    if bool(ties.any()):
        kept[ties] = torch.zeros_like(kept[ties]).scatter_(1, first_columns(values[ties], n), True)
    return kept.nonzero()[:, 1].view(-1, n)


class TorchBackend:
    """Candidates from the masked top-k of float32 scores.

    It takes somewhat more than k items, and more again where rounding could hide a better one.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    def candidates(self, index: EmbeddingIndex, queries: Rows, hidden: Pairs, k: int) -> Candidates:
        n_items = len(index)
        # Copies: the arrays may be read-only views of a file, which torch warns of.
        scorer = Embeddings(torch.tensor(queries, device=self.device), torch.tensor(index.rows, device=self.device))
        slack = index.slack(queries)
        pending, width = np.arange(len(queries)), min(k + _MARGIN, n_items)
        candidates: list[Candidates] = []
        while len(pending):
            top = top_k_by_scores(scorer, pending, hidden, width)
            item, score = top.item_idx.cpu().numpy(), top.scores.double().cpu().numpy()
            limit = score[:, k - 1] - 2 * slack[pending]
            done = (width == n_items) | (score[:, -1] < limit) | np.isneginf(score[:, -1])
            row, place = np.nonzero((score >= limit[:, None]) & (item >= 0) & done[:, None])
            candidates.append(Candidates(pending[row], item[row, place]))
            pending, width = pending[~done], min(4 * width, n_items)
        return Candidates(*(np.concatenate(column) for column in zip(*candidates, strict=True)))


def item_sums(device: torch.device, weights: WeightMatrix, items: Pairs, scale: Floats) -> Tensor:
    """Return ``scale · Σ_j W[j, i]`` over the items j of each row, (n, n_items) float32 on ``device``.

    On a CPU sums are float64 and added in the order of the items; elsewhere it is a sparse product in float32.
    """
    if device.type == "cpu" or not isinstance(weights, SparseWeights):
        sums = np.empty((items.n_users, items.n_items), dtype=np.float32)
        for row, total, factor in zip(sums, weights.each_sum(items), scale, strict=True):
            np.multiply(total, factor, out=row, casting="same_kind")
        return torch.from_numpy(sums).to(device)
    return product_sums(device, weights, items, scale)


def product_sums(device: torch.device, weights: SparseWeights, items: Pairs, scale: Floats) -> Tensor:
    """Return the same sums by the product of Wᵀ with a dense matrix of the items of each row, in float32.

    ``embedding_bag`` adds the entries of a row in their order. The sparse products of torch on a GPU do not, and so
    give other bits at each call.
    """
    counts = np.diff(items.indptr)
    rows, columns = np.repeat(np.arange(items.n_users), counts), items.indices.astype(np.int64)
    having = torch.zeros(items.n_items, items.n_users, device=device)
    having[torch.from_numpy(columns).to(device), torch.from_numpy(rows).to(device)] = torch.from_numpy(
        np.repeat(scale, counts).astype(np.float32)
    ).to(device)
    indptr, indices, values = _transposed_on(device, weights)
    sums = embedding_bag(indices, having, indptr, mode="sum", per_sample_weights=values, include_last_offset=True)
    return sums.T


_COPIES: WeakKeyDictionary[SparseWeights, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def _transposed_on(device: torch.device, weights: SparseWeights) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``indptr``, ``indices`` and ``values`` of Wᵀ on a device; the last ones of each W are kept."""
    held = _COPIES.get(weights)
    if held is None or held[0].device != device:
        by_column = csr_array((weights.values, weights.indices, weights.indptr), shape=weights.shape).tocsc()
        arrays = (by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64), by_column.data)
        indptr, indices, values = (torch.from_numpy(array).to(device) for array in arrays)
        held = _COPIES[weights] = indptr, indices, values
    return held


def unit_embeddings(embeddings: Embeddings[Tensor]) -> Embeddings[Tensor]:
    """Return the embeddings with rows of length one, so that inner products are cosines; a row of zeros stays."""
    users, items = (torch.nn.functional.normalize(rows, dim=1) for rows in (embeddings.users, embeddings.items))
    return Embeddings(users, items, embeddings.user_rule)

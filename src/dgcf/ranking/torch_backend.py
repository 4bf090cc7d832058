"""Candidates by torch, on a CPU or a GPU, from the evaluate room's masked top-k; the ranking is NumPy's, to the bit."""

from __future__ import annotations

import numpy as np
import torch

from dgcf.data.pairs import Pairs
from dgcf.ranking.arrays import Rows
from dgcf.ranking.rankings import Embeddings
from dgcf.ranking.topk import Candidates, Catalogue
from dgcf.ranking.torch_topk import top_k

_MARGIN = 16  # near-ties around the k-th place are rarely more; where they are, more is asked for


class TorchRanker:
    """Asks for somewhat more than k items, and for more again where rounding could hide a better one."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)

    def candidates(self, catalogue: Catalogue, queries: Rows, hidden: Pairs, k: int) -> Candidates:
        n_items = len(catalogue.rows)
        # Copies: the arrays may be read-only views of a file, which torch warns of.
        scorer = Embeddings(torch.tensor(queries, device=self.device), torch.tensor(catalogue.rows, device=self.device))
        slack = catalogue.slack(queries)
        pending, width = np.arange(len(queries)), min(k + _MARGIN, n_items)
        found: list[Candidates] = []
        while len(pending):
            top = top_k(scorer, pending, hidden, width)
            item, score = top.item_idx.cpu().numpy(), top.scores.double().cpu().numpy()
            limit = score[:, k - 1] - 2 * slack[pending]
            done = (width == n_items) | (score[:, -1] < limit) | np.isneginf(score[:, -1])
            row, place = np.nonzero((score >= limit[:, None]) & (item >= 0) & done[:, None])
            found.append(Candidates(pending[row], item[row, place]))
            pending, width = pending[~done], min(4 * width, n_items)
        return Candidates(*(np.concatenate(column) for column in zip(*found, strict=True)))

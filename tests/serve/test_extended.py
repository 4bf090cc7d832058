"""A composed ranking with a prior, extended by a new item."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dgcf.ranking.blend import Blend
from dgcf.ranking.weights import SparseWeights
from dgcf.recommend import Recommender
from dgcf.serve.engine.extended import extended
from tests.recommend.conftest import random_dataset, untrained


def test_a_new_item_has_no_prior_and_the_others_keep_theirs() -> None:
    plain = untrained(random_dataset())
    n = plain.n_items
    prior = np.arange(1, n + 1, dtype=np.float32)
    before = replace(plain, ranking=Blend(plain.embeddings, plain.train, SparseWeights.empty(n), prior))
    row = plain.item_rows[2]
    after = extended(before, Recommender.of(before).folding, {"99": row}, {})
    scores = Recommender.of(after).score(0, [*range(n), 99])
    np.testing.assert_array_equal(scores[:n], Recommender.of(before).score(0, list(range(n))))
    np.testing.assert_allclose(scores[n], float(plain.user_rows[0] @ row), rtol=1e-6)

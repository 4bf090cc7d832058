"""What every model of the catalogue must do for a user: recommend, be saved, fold in or refuse, explain or refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dgcf.data import Dataset
from dgcf.errors import DataError
from dgcf.models import CATALOG
from dgcf.ranking.torch_backend import top_k_by_scores
from dgcf.recommend import Recommender, load
from dgcf.recommend.batch import Batch

LINEAR = ["dgcf", "dgcf-chp", "dgcf-la", "dgcf-sl", "lightgcn"]
FILTERS = ["gf-cf", "bspm", "chebycf"]
FOLDS_IN = [*LINEAR, *FILTERS, "ease", "ials", "item-knn", "popularity"]
EXPLAINS = [*FOLDS_IN, "bpr-mf"]
SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {"l2": 20.0},
    "item-knn": {"neighbours": 12},
    "ials": {"factors": 8, "regularization": 2.0},
}
K = 7


def settings_of(model: str) -> dict[str, Any]:
    return SETTINGS.get(model, {}) if CATALOG[model].solved else {"dim": 8, "epochs": 2}


@pytest.fixture(scope="module", params=CATALOG)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rec(model: str, films: Dataset) -> Recommender:
    return Recommender(model, seed=3, device="cpu", **settings_of(model)).fit(films)


class TestContract:
    def test_recommends_what_evaluation_ranks(self, model: str, rec: Recommender, films: Dataset) -> None:
        seen = films.train.union(films.validation, films.test)
        best = top_k_by_scores(rec.snapshot.ranking, np.arange(films.n_users), seen, K)
        table = rec.recommend(films.users.texts, K)
        assert table["user"] == [user for user in films.users.texts for _ in range(K)]
        if CATALOG[model].solved:  # float32 scores of the others may order near-ties otherwise
            assert table["item"] == [films.items.texts[item] for item in best.item_idx.flatten().tolist()]
        np.testing.assert_allclose(table["score"], best.scores.flatten().numpy(), rtol=1e-4, atol=1e-6)

    def test_batch_equals_single_requests(self, rec: Recommender, films: Dataset, tmp_path: Path) -> None:
        table = rec.recommend(films.users.texts, K)
        singles = [row for user in films.users.texts for row in rec.recommend(user, K)]
        assert list(table) == singles
        assert rec.recommend(films.users.texts, K, device="cpu") == table
        Batch(rec.snapshot, K, chunk=40).write(tmp_path / "all.parquet")
        rows = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path / 'all.parquet'}')").fetchall()
        assert rows == [tuple(row.values()) for row in singles]

    def test_scores_and_restrictions_agree_with_the_ranking(self, rec: Recommender) -> None:
        ranked = rec.recommend("u00004", 160)
        np.testing.assert_array_equal(rec.score("u00004", ranked["item"]), ranked["score"])
        some = ranked["item"][3:40:5]
        assert rec.recommend("u00004", 160, only=some)["item"] == some
        assert rec.recommend("u00004", 160, exclude=some)["item"] == [i for i in ranked["item"] if i not in some]

    @pytest.mark.parametrize("name", ["rec.dgcf", "folder"])
    def test_loaded_recommender_answers_as_before_saving(
        self, name: str, model: str, rec: Recommender, films: Dataset, tmp_path: Path
    ) -> None:
        loaded = load(rec.save(tmp_path / name))
        assert loaded.get_params() == {**rec.get_params(), "device": "auto", **loaded.settings}
        assert loaded.recommend(films.users.texts, K) == rec.recommend(films.users.texts, K)
        if model in FOLDS_IN:
            liked = films.items.texts[:4]
            assert loaded.recommend_for(liked, 5) == rec.recommend_for(liked, 5)
        if model in EXPLAINS:
            assert loaded.explain("u00001", "i00002") == rec.explain("u00001", "i00002")

    def test_same_seed_gives_the_same_file(self, model: str, rec: Recommender, films: Dataset, tmp_path: Path) -> None:
        again = Recommender(model, seed=3, device="cpu", **settings_of(model)).fit(films)
        saved = [each.save(tmp_path / name).read_bytes() for each, name in ((rec, "1.dgcf"), (again, "2.dgcf"))]
        assert saved[0] == saved[1]

    def test_folds_in_a_new_user_or_refuses(self, model: str, rec: Recommender, films: Dataset) -> None:
        items = films.items.texts[:3]
        if model not in FOLDS_IN:
            with pytest.raises(DataError, match=rf"model {model} cannot fold in a new user or item: .*; train one"):
                rec.recommend_for(items)
            return
        table = rec.recommend_for(items, K)
        assert table["user"] == [None] * K
        assert not set(table["item"]) & set(items)
        assert table["score"] == sorted(table["score"], reverse=True)
        known = rec.recommend_for(items, K, user="u00001")
        assert known["user"] == ["u00001"] * K

    def test_explains_a_score_or_refuses(self, model: str, rec: Recommender, films: Dataset) -> None:
        top = rec.recommend("u00001", 1)
        if model not in EXPLAINS:
            with pytest.raises(DataError, match=rf"the scores of model {model} .* cannot be split exactly; train one"):
                rec.explain("u00001", top["item"][0])
            return
        explanation = rec.explain("u00001", top["item"][0])
        assert explanation.score == pytest.approx(top["score"][0], rel=1e-6, abs=1e-9)
        largest = max(abs(part.value) for part in explanation.parts)
        assert abs(explanation.residual) <= 1e-4 * largest
        if model in FOLDS_IN:
            items = films.items.texts[:3]
            new = rec.recommend_for(items, 1)
            assert rec.explain_for(items, new["item"][0]).score == pytest.approx(new["score"][0], rel=1e-6, abs=1e-9)

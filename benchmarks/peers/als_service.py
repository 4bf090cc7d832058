"""A plain FastAPI service over implicit's ALS, as the peer of ``benchmarks/serve.py``.

    python benchmarks/peers/als_service.py FOLDER PORT

``FOLDER`` has the factors and the seen items as arrays. One process, BLAS on one thread, the usual handlers: a
synchronous function for each route, which FastAPI runs in its thread pool.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse
import uvicorn
from fastapi import FastAPI
from implicit.als import AlternatingLeastSquares
from pydantic import BaseModel

folder, port = Path(sys.argv[1]), int(sys.argv[2])
seen = scipy.sparse.load_npz(folder / "seen.npz").tocsr()
users = {text: row for row, text in enumerate((folder / "users.txt").read_text().splitlines())}
item_ids = (folder / "items.txt").read_text().splitlines()
items = {text: column for column, text in enumerate(item_ids)}
user_rows, item_rows = np.load(folder / "users.npy"), np.load(folder / "items.npy")
model = AlternatingLeastSquares(factors=user_rows.shape[1], num_threads=1)
model.user_factors, model.item_factors = user_rows, item_rows
app = FastAPI()


class Recommended(BaseModel):
    item: str
    score: float


class NewUser(BaseModel):
    items: list[str]
    k: int = 10


def answer(best: tuple[np.ndarray, np.ndarray]) -> list[Recommended]:
    return [Recommended(item=item_ids[item], score=score) for item, score in zip(*map(np.ravel, best), strict=True)]


@app.get("/recommend/{user}")
def recommend(user: str, k: int = 10) -> list[Recommended]:
    row = users[user]
    return answer(model.recommend(row, seen[row], N=k, filter_already_liked_items=True))


@app.post("/recommend")
def recommend_for(new: NewUser) -> list[Recommended]:
    columns = sorted({items[item] for item in new.items})
    ones = np.ones(len(columns), dtype=np.float32)
    row = scipy.sparse.csr_matrix((ones, (np.zeros(len(columns), dtype=int), columns)), shape=(1, len(item_ids)))
    return answer(model.recommend(0, row, N=new.k, filter_already_liked_items=True, recalculate_user=True))


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)

"""Exports to vector databases: the lists that they give are the recommender's, and an old export is replaced whole.

PostgreSQL is a server of the tests with pgvector; Qdrant is its client's local mode; faiss is the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from dgcf.data import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.recommend import Recommender
from dgcf.recommend.targets import Checking, export_vectors
from dgcf.recommend.targets.base import IndexKind, Target, vectors_of
from dgcf.recommend.targets.faiss_index import Faiss
from dgcf.recommend.targets.pgvector import DSN, PgVector
from dgcf.recommend.targets.qdrant import KEY, URL, Qdrant
from dgcf.recommend.targets.secrets import settings
from tests.postgres import PASSWORD, postgres
from tests.recommend.test_composed import composed

# The client of Qdrant closes its files late, and psycopg's connection is closed by its context.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
ALL = Checking(users=150, k=20)


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres("vector") as address:
        yield address


@dataclass
class Case:
    """A target of a test, and how its lists are read as a program of the user would."""

    kind: str
    make: Callable[[str], Target]
    read: Callable[[list[str], int], list[list[str]]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: the local mode of Qdrant writes every point to the disk by itself."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=["faiss", "pgvector", "qdrant"])
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    kind = str(request.param)
    if kind == "faiss":
        pytest.importorskip("faiss")
        return Case(kind, lambda index: Faiss(folder / "films.faiss", index), lambda u, k: _faiss(folder, u, k))
    if kind == "qdrant":
        pytest.importorskip("qdrant_client")
        return Case(
            kind, lambda index: Qdrant("films", {}, index, folder / "qdrant"), lambda u, k: _qdrant(folder, u, k)
        )
    address = request.getfixturevalue("dsn")
    with psycopg.connect(address) as connection:
        connection.execute("DROP TABLE IF EXISTS films_items, films_users")
    return Case(kind, lambda index: PgVector("films", {DSN: address}, index), lambda u, k: _pgvector(address, u, k))


def _faiss(folder: Path, users: list[str], k: int) -> list[list[str]]:
    """Run the program that the README of the export shows."""
    readme = (folder / "films.faiss" / "README.md").read_text()
    program = readme.partition("```python\n")[2].partition("```")[0]
    lists = []
    for user in users:
        code = program.replace("USER)", f"{user!r})").replace("10)", f"{k})").replace("print(", "print(*")
        lists.append(_run(code, folder / "films.faiss").split())
    return lists


def _pgvector(address: str, users: list[str], k: int) -> list[list[str]]:
    statement = (
        "SELECT i.id FROM films_items i, films_users u WHERE u.id = %s ORDER BY i.embedding <#> u.embedding LIMIT %s"
    )
    with psycopg.connect(address) as connection:
        return [[raw for (raw,) in connection.execute(statement, (user, k))] for user in users]


def _qdrant(folder: Path, users: list[str], k: int) -> list[list[str]]:
    from qdrant_client import QdrantClient, models

    client, lists = QdrantClient(path=str(folder / "qdrant")), []
    for user in users:
        wanted = models.Filter(must=[models.FieldCondition(key="id", match=models.MatchValue(value=user))])
        (point,), _ = client.scroll("films_users", scroll_filter=wanted, with_vectors=True)
        lists.append(
            [hit.payload["id"] for hit in client.query_points("films_items", query=point.vector, limit=k).points]
        )
    client.close()
    return lists


def _run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lists_of_the_database_are_those_of_the_recommender(case: Case, fitted: Recommender) -> None:
    result = export_vectors(fitted, case.make("flat"), checking=ALL)
    assert result["check"] == {"users": 150, "k": 20, "recall": 1.0, "recall_of_vectors": 1.0}
    assert (result["users"], result["items"], result["lost"]) == (150, 160, None)
    users = ["u00001", "u00077"]
    exact = [fitted.recommend(user, 7, exclude_seen=False)["item"] for user in users]
    assert case.read(users, 7) == exact


def test_check_compares_what_the_database_returns(fitted: Recommender) -> None:
    """A search that returns other items, or fewer, has the recall that follows."""
    from dgcf.recommend.targets.check import check

    vectors = vectors_of(fitted.snapshot)

    def half(users: Any, k: int) -> list[list[Any]]:
        names = [fitted.snapshot.users.id_of(user) for user in users]
        return [fitted.recommend(name, k // 2, exclude_seen=False)["item"] for name in names]

    assert check(fitted, vectors, half, 40, 20).recall == pytest.approx(0.5)
    assert check(fitted, vectors, lambda users, k: [["nothing"]] * len(users), 40, 20).recall == 0.0


def test_an_export_with_a_low_recall_is_withdrawn(case: Case, fitted: Recommender, films: Dataset) -> None:
    """The vectors of a composed model lack its weights; the old export stays as it was."""
    export_vectors(fitted, case.make("flat"))
    before = case.read(["u00003"], 9)
    rec = Recommender.of(composed(films))
    with pytest.raises(DataError, match=r"lack the sums of weights.*below --min-recall 0\.99.*nothing was replaced"):
        export_vectors(rec, case.make("flat"), overwrite=True, checking=Checking(min_recall=0.99))
    assert case.read(["u00003"], 9) == before
    result = export_vectors(rec, case.make("flat"), overwrite=True, checking=ALL)
    assert result["lost"].startswith("the sums of weights between items")
    assert "prior" in result["scores"]
    assert result["check"]["recall_of_vectors"] == 1.0 > result["check"]["recall"]
    assert case.read(["u00003"], 9) != before


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_approximate_indices_find_most_of_the_exact_lists(case: Case, index: IndexKind, fitted: Recommender) -> None:
    if (case.kind, index) == ("qdrant", "ivf"):
        with pytest.raises(ConfigError, match="--index is 'ivf', but Qdrant offers flat, hnsw"):
            case.make(index)
        return
    result = export_vectors(fitted, case.make(index), checking=ALL)
    assert result["index"] == index
    assert result["check"]["recall"] >= (0.99 if index == "hnsw" else 0.5)


def test_replacing_needs_overwrite_and_leaves_nothing_behind(case: Case, fitted: Recommender, folder: Path) -> None:
    for overwrite in (False, True, True):
        export_vectors(fitted, case.make("flat"), overwrite=overwrite)
    with pytest.raises(DataError, match="exists already"):
        export_vectors(fitted, case.make("flat"))
    if case.kind == "qdrant":
        kept = json.loads((folder / "qdrant" / "meta.json").read_text())
        assert sorted(kept["aliases"]) == ["films_items", "films_users"]
        assert sorted(kept["collections"]) == sorted(kept["aliases"].values())


KILLED = """
import os, signal, sys
from pathlib import Path
import dgcf
from dgcf.recommend.targets.base import vectors_of
from dgcf.recommend.targets.faiss_index import Faiss
from dgcf.recommend.targets.pgvector import PgVector
from dgcf.recommend.targets.qdrant import Qdrant
rec = dgcf.load({model!r})
with ({target}).staged(vectors_of(rec.snapshot), overwrite=True) as search:
    assert len(search([0, 1], 5)[1]) == 5
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_export_leaves_the_old_one(
    case: Case, fitted: Recommender, films: Dataset, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    export_vectors(fitted, case.make("flat"))
    before = case.read(["u00003"], 9)
    other = Recommender.of(composed(films)).save(tmp_path / "other.dgcf")
    target = {
        "faiss": f"Faiss(Path({str(folder / 'films.faiss')!r}))",
        "qdrant": f"Qdrant('films', {{}}, 'flat', Path({str(folder / 'qdrant')!r}))",
        "pgvector": "PgVector('films', os.environ)",
    }[case.kind]
    if case.kind == "pgvector":
        request.getfixturevalue("monkeypatch").setenv(DSN, request.getfixturevalue("dsn"))
    code = KILLED.format(model=str(other), target=target)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert case.read(["u00003"], 9) == before
    export_vectors(fitted, case.make("flat"), overwrite=True, checking=ALL)
    assert case.read(["u00003"], 9) == before
    if case.kind == "faiss":
        assert [path.name for path in folder.glob("*faiss*")] == ["films.faiss"]


def test_titles_and_attributes_are_stored_with_the_items(
    case: Case, fitted: Recommender, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    items = fitted.snapshot.items
    table = tmp_path / "items.csv"
    table.write_text(
        "item,genre,year,price\n"
        + "".join(f"{raw},g{n % 3},{1950 + n},{n}.5\n" for n, raw in enumerate(items.texts[:99]))
    )
    export_vectors(fitted, case.make("flat"), attributes=table)
    wanted = {"id": items.texts[4], "title": items.titles[4], "attributes": {"genre": "g1", "year": 1954, "price": 4.5}}  # type: ignore[index]
    if case.kind == "faiss":
        stored = json.loads((folder / "films.faiss" / "items.json").read_text())
        assert stored[4] == wanted
        assert stored[120]["attributes"] == {}
    elif case.kind == "pgvector":
        with psycopg.connect(request.getfixturevalue("dsn")) as connection:
            statement = "SELECT id, title, attributes FROM films_items WHERE attributes ->> 'year' = '1954'"
            assert connection.execute(statement).fetchall() == [tuple(wanted.values())]
    else:
        from qdrant_client import QdrantClient, models

        client = QdrantClient(path=str(folder / "qdrant"))
        year = models.FieldCondition(key="attributes.year", range=models.Range(gte=1954, lt=1955))
        (point,), _ = client.scroll("films_items", scroll_filter=models.Filter(must=[year]))
        assert point.payload == wanted
        client.close()


def test_models_without_embeddings_are_refused(case: Case, films: Dataset) -> None:
    rec = Recommender("item-knn", device="cpu").fit(films)
    with pytest.raises(DataError, match="model item-knn has no embeddings"):
        export_vectors(rec, case.make("flat"))


class TestPostgres:
    def test_a_reader_sees_the_old_tables_until_the_new_ones_are_complete(
        self, dsn: str, fitted: Recommender, films: Dataset
    ) -> None:
        target = PgVector("shop", {DSN: dsn})
        export_vectors(fitted, target)
        count = "SELECT count(*), min(embedding::text) FROM shop_items"
        with psycopg.connect(dsn, autocommit=True) as reader:
            before = reader.execute(count).fetchone()
            with target.staged(vectors_of(composed(films)), overwrite=True):
                assert reader.execute(count).fetchone() == before
            assert reader.execute(count).fetchone() != before
            names = "SELECT relname FROM pg_class WHERE relname LIKE 'shop%' AND relkind = 'r' ORDER BY relname"
            assert [name for (name,) in reader.execute(names)] == ["shop_items", "shop_users"]

    def test_grants_survive_a_new_export(self, dsn: str, fitted: Recommender) -> None:
        target = PgVector("granted", {DSN: dsn})
        export_vectors(fitted, target)
        with psycopg.connect(dsn) as connection:
            connection.execute('CREATE ROLE "web Reader"')
            connection.execute('GRANT SELECT ON granted_items TO "web Reader" WITH GRANT OPTION')
            connection.execute("GRANT SELECT ON granted_users TO PUBLIC")
        export_vectors(fitted, target, overwrite=True)
        held = "SELECT has_table_privilege('web Reader', %s, 'SELECT WITH GRANT OPTION')"
        with psycopg.connect(dsn) as connection:
            assert connection.execute(held, ("granted_items",)).fetchone() == (True,)
            assert connection.execute(held, ("granted_users",)).fetchone() == (False,)
            assert connection.execute(
                "SELECT has_table_privilege('web Reader', 'granted_users', 'SELECT')"
            ).fetchone() == (True,)

    def test_tables_of_others_are_never_replaced(self, dsn: str, fitted: Recommender) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE orders_items (id int)")
        with pytest.raises(DataError, match="orders_items was not written by dgcf export"):
            export_vectors(fitted, PgVector("orders", {DSN: dsn}), overwrite=True)

    def test_stored_vectors_are_those_of_the_model_to_the_bit(self, dsn: str, fitted: Recommender) -> None:
        export_vectors(fitted, PgVector("bits", {DSN: dsn}))
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("SELECT embedding::real[] FROM bits_items ORDER BY id").fetchall()
        np.testing.assert_array_equal(np.array([row for (row,) in rows], np.float32), fitted.snapshot.item_rows)

    @pytest.mark.parametrize("wrong", ["geheim-word", f"host=127.0.0.1 passwrd={PASSWORD}", "postgresql://%zz@h"])
    def test_a_wrong_connection_string_is_not_shown(self, wrong: str) -> None:
        with pytest.raises(ConfigError, match=f"{DSN} is no connection string") as problem:
            PgVector("films", {DSN: wrong})
        assert wrong not in str(problem.value)
        assert PASSWORD not in str(problem.value)

    def test_a_server_without_pgvector_is_named(self, fitted: Recommender) -> None:
        with postgres() as plain:
            with psycopg.connect(plain) as connection:
                query = "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'"
                if connection.execute(query).fetchone() != (0,):
                    pytest.skip("the PostgreSQL of this system has pgvector")
            with pytest.raises(DataError, match="the server does not have the extension vector; install pgvector"):
                export_vectors(fitted, PgVector("films", {DSN: plain}))


def test_secrets_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text(f"# the shop\n\nexport {URL}='http://127.0.0.1:1'\n{KEY}=geheim=1\n")
    assert settings(file) == {URL: "http://127.0.0.1:1", KEY: "geheim=1"}
    file.write_text("geheim\n")
    with pytest.raises(ConfigError, match=r"line 1 of .*env is not NAME=VALUE") as problem:
        settings(file)
    assert "geheim" not in str(problem.value)


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_an_unreachable_qdrant_is_one_sentence_without_the_key(fitted: Recommender) -> None:
    target = Qdrant("films", {URL: "http://127.0.0.1:1", KEY: "geheim"})
    with pytest.raises(DataError, match=r"Qdrant refused the export: .*refused") as problem:
        export_vectors(fitted, target)
    assert "geheim" not in str(problem.value)
    assert "geheim" not in json.dumps(target.describe())

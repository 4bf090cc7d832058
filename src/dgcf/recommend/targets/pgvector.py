"""Export to two tables of a PostgreSQL database with the extension vector: ``NAME_items`` and ``NAME_users``.

All is one transaction: readers see the old tables until the new ones are complete, and a killed export leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, get_args

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError
from dgcf.ids import RawId
from dgcf.ranking.arrays import Rows, Side
from dgcf.recommend.targets.base import Search, Vectors, checked_index, checked_name
from dgcf.recommend.targets.secrets import without

DSN = "DGCF_PGVECTOR_DSN"
MARK = "dgcf export"
"""The comment of a table begins with this; other tables are never replaced."""
_OPERATORS = {"hnsw": "hnsw", "ivf": "ivfflat"}
_EF_SEARCH = 200


class PgVector:
    """Tables of a database. ``index``: flat (none, exact), hnsw or ivf."""

    def __init__(self, name: str, settings: Mapping[str, str], index: str = "flat") -> None:
        self.name, self.index = checked_name(name), checked_index(index, ("flat", "hnsw", "ivf"), "pgvector")
        self._dsn = settings.get(DSN, "")
        if not self._dsn:
            raise ConfigError(
                f"{DSN} is not set; set it to the database, such as postgresql://USER:PASSWORD@HOST/DATABASE, in the "
                "environment or in a file (--env-file)."
            )
        self._psycopg = _psycopg()
        try:
            self._where = self._psycopg.conninfo.conninfo_to_dict(self._dsn)
        except self._psycopg.Error:  # whose message shows a part of it
            raise ConfigError(
                f"{DSN} is no connection string of PostgreSQL, such as postgresql://USER:PASSWORD@HOST/DATABASE; "
                "correct it."
            ) from None
        self._parameters: dict[str, int] = {}

    def describe(self) -> dict[str, Any]:
        where = {name: self._where.get(name) for name in ("host", "port", "dbname")}
        tables = [self._table(side) for side in get_args(Side)]
        return {**where, "tables": tables, "index": self.index, "parameters": self._parameters}

    @contextlib.contextmanager
    def staged(self, vectors: Vectors, *, overwrite: bool) -> Iterator[Search]:
        psycopg = self._psycopg
        try:
            with psycopg.connect(
                **{"connect_timeout": 10, **self._where}, application_name="dgcf export"
            ) as connection:
                self._lock(connection)
                grants = [grant for side in get_args(Side) for grant in self._replaceable(connection, side, overwrite)]
                for side in get_args(Side):
                    self._create(connection, side, vectors)
                self._build_index(connection, vectors)
                yield lambda users, k: self._search(connection, vectors, users, k)
                self._swap(connection, grants)
        except psycopg.Error as problem:
            secrets = (self._where.get("password"), self._dsn)
            raise DataError(
                f"the database refused the export: {without(str(problem), secrets)}; correct that and export again."
            ) from None

    def _table(self, side: Side, suffix: str = "") -> str:
        return f"{self.name}_{side}s{suffix}"

    def _lock(self, connection: Any) -> None:
        """Wait for another export of this name, and make sure of the extension."""
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{MARK} {self.name}",))
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            raise DataError("the server does not have the extension vector; install pgvector on it.")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")

    def _replaceable(self, connection: Any, side: Side, overwrite: bool) -> list[str]:
        """Return the statements that repeat the grants of the old table; raise if it must not be replaced."""
        table = self._table(side)
        row = connection.execute(
            "SELECT oid, relacl, obj_description(oid) FROM pg_class WHERE oid = to_regclass(%s)", (table,)
        ).fetchone()
        if row is None:
            return []
        if not str(row[2] or "").startswith(MARK):
            raise DataError(f"the table {table} was not written by dgcf export; choose another --name.")
        if not overwrite:
            raise DataError(f"the table {table} exists already; choose another --name, or overwrite it (--overwrite).")
        statement = (
            "SELECT format('GRANT %%s ON %%I TO %%s%%s', acl.privilege_type, %s::text, CASE acl.grantee WHEN 0 THEN "
            "'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END, CASE WHEN acl.is_grantable THEN ' WITH GRANT "
            "OPTION' ELSE '' END) FROM pg_class, aclexplode(relacl) AS acl WHERE oid = %s AND acl.grantee <> relowner"
        )
        return [grant for (grant,) in connection.execute(statement, (table, row[0]))]

    def _create(self, connection: Any, side: Side, vectors: Vectors) -> None:
        sql, table = self._psycopg.sql, self._psycopg.sql.Identifier(self._table(side, "_new"))
        vocabulary = vectors.vocabularies[side]
        kind = "bigint" if _fits_bigint(vocabulary) else "text"
        columns = sql.SQL("id {kind} PRIMARY KEY, title text, {more}embedding vector({dim}) NOT NULL").format(
            kind=sql.SQL(kind),
            more=sql.SQL("attributes jsonb, " if side == "item" else ""),
            dim=sql.Literal(vectors.dim),
        )
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, columns))
        mark = f"{MARK}: {vectors.scores}" + ("" if vectors.lost is None else f", without {vectors.lost}")
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(mark)))
        with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
            for index, text in enumerate(_texts(vectors.rows[side])):
                row = vectors.payload(side, index)
                attributes = [json.dumps(row["attributes"])] if "attributes" in row else [None]
                raw = row["id"] if kind == "bigint" else str(row["id"])
                copy.write_row((raw, row.get("title"), *(attributes if side == "item" else []), text))

    def _build_index(self, connection: Any, vectors: Vectors) -> None:
        sql, table = self._psycopg.sql, self._psycopg.sql.Identifier(self._table("item", "_new"))
        if self.index != "flat":
            n = len(vectors.rows["item"])
            lists = max(1, round(n**0.5))
            more = sql.SQL(" WITH (lists = {})").format(sql.Literal(lists)) if self.index == "ivf" else sql.SQL("")
            statement = sql.SQL("CREATE INDEX ON {} USING {} (embedding vector_ip_ops){}")
            connection.execute(statement.format(table, sql.SQL(_OPERATORS[self.index]), more))
            named = {"hnsw": ("hnsw.ef_search", _EF_SEARCH), "ivf": ("ivfflat.probes", max(1, -(-lists // 4)))}
            parameter, value = named[self.index]
            connection.execute(sql.SQL("SET LOCAL {} = {}").format(sql.SQL(parameter), sql.Literal(value)))
            connection.execute("SET LOCAL enable_seqscan = off")  # a small table would be read without the index
            self._parameters = {parameter: value}
        for side in get_args(Side):
            connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(self._table(side, "_new"))))

    def _search(self, connection: Any, vectors: Vectors, users: Sequence[int], k: int) -> list[list[RawId]]:
        sql, vocabulary = self._psycopg.sql, vectors.vocabularies["user"]
        statement = sql.SQL(
            "SELECT id FROM {} ORDER BY embedding <#> (SELECT embedding FROM {} WHERE id = %s) LIMIT %s"
        ).format(*(sql.Identifier(self._table(side, "_new")) for side in ("item", "user")))
        whole = _fits_bigint(vocabulary)
        ids = ((vocabulary.id_of(user) if whole else str(vocabulary.id_of(user))) for user in users)
        kind = vectors.vocabularies["item"].kind
        lists = ([raw for (raw,) in connection.execute(statement, (user, k))] for user in ids)
        return [[int(raw) if kind == "integer" else raw for raw in row] for row in lists]

    def _swap(self, connection: Any, grants: Sequence[str]) -> None:
        """Replace the old tables by the new ones, with the same grants."""
        sql = self._psycopg.sql
        for side in get_args(Side):
            old, new = (sql.Identifier(self._table(side, suffix)) for suffix in ("", "_new"))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(old))
            connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(new, old))
        for grant in grants:
            connection.execute(grant)


def _texts(rows: Rows) -> Iterator[str]:
    """Yield each row as pgvector reads it; nine digits give the same float32."""
    return ("[" + ",".join([f"{number:.9g}" for number in row]) + "]" for row in (row.tolist() for row in rows))


def _fits_bigint(vocabulary: Vocabulary) -> bool:
    """Return whether all ids are whole numbers that a column of the type bigint can hold."""
    return vocabulary.kind == "integer" and all(-(2**63) <= int(text) < 2**63 for text in vocabulary.texts)


def _psycopg() -> Any:
    try:
        import_module("psycopg.conninfo")
        import_module("psycopg.sql")
        return import_module("psycopg")
    except ImportError:
        raise ConfigError("PostgreSQL needs psycopg; install it with: pip install 'dgcf[pgvector]'.") from None

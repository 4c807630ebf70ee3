"""Run statements with EXPLAIN: which rows they read, and by which index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

import orjson
import pytest
from psycopg import sql
from psycopg.pq import Escaping

from rapport.storage.database import Connection

PlanMode: TypeAlias = Literal["force_custom_plan", "force_generic_plan"]

MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")

plans = pytest.mark.parametrize("mode", MODES)


class _ExplainingLibpq:
    """libpq's connection that runs EXPLAIN for every prepared statement before it sends it."""

    def __init__(self, explained: Explained, libpq: Any, mode: PlanMode) -> None:
        self._explained, self._libpq, self._mode = explained, libpq, mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._libpq, name)

    def send_prepare(self, name: bytes, command: bytes) -> None:
        known = f"SELECT 1 FROM pg_prepared_statements WHERE name = '{name.decode()}'"
        if self._libpq.exec_(known.encode()).ntuples:  # of another wrapper around the same connection
            self._libpq.exec_(b"DEALLOCATE " + name)
        self._libpq.send_prepare(name, command)

    def send_query_prepared(self, name: bytes, values: list[bytes | None], **options: Any) -> None:
        escape = Escaping(self._libpq).escape_literal
        literals = b", ".join(b"NULL" if value is None else bytes(escape(value)) for value in values)
        explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE " + name + (b" (" + literals + b")")
        for command in (b"BEGIN", f"SET LOCAL plan_cache_mode = {self._mode}".encode()):
            self._libpq.exec_(command)
        result = self._libpq.exec_(explain)
        assert result.ntuples, result.error_message
        self._explained.plan = orjson.loads(result.get_value(0, 0))[0]["Plan"]
        self._libpq.exec_(b"ROLLBACK")
        self._libpq.send_query_prepared(name, values, **options)


class Explained:
    """A connection that runs EXPLAIN for every statement, as a prepared statement, before it executes it."""

    def __init__(self, connection: Connection, mode: PlanMode) -> None:
        self._connection = connection
        self._mode: PlanMode = mode
        self.plan: dict[str, Any] = {}

    @property
    def pgconn(self) -> Any:
        return _ExplainingLibpq(self, self._connection.pgconn, self._mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, query: str | bytes, parameters: dict[str, Any] | tuple[Any, ...]) -> Any:
        query = query if isinstance(query, str) else query.decode()
        if isinstance(parameters, tuple):
            numbers = iter(range(len(parameters)))
            query = re.sub("%s", lambda _: f"%(p{next(numbers)})s", query)
            parameters = {f"p{number}": value for number, value in enumerate(parameters)}
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", query)))
        numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", query)
        values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
        run = self._connection.execute
        async with self._connection.transaction(force_rollback=True):
            await run(f"SET LOCAL plan_cache_mode = {self._mode}".encode())
            await run(f"PREPARE explained AS {numbered}".encode())
            found = await run(sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained ({})").format(values))
            row = await found.fetchone()
            assert row is not None
            self.plan = row[0][0]["Plan"]
            await run("DEALLOCATE explained")
        return await run(query.encode(), parameters)

    @property
    def as_connection(self) -> Connection:
        return cast("Connection", self)

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Return every node of the plan."""
        waiting = [self.plan]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    def walked(self, table: str) -> float:
        """Return how many rows of a table were read, whether used or not."""
        return sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0))
            * node["Actual Loops"]
            for node in self.nodes()
            if node.get("Relation Name") == table and "Scan" in node["Node Type"]
        )

    def sorted(self) -> float:
        return max((node["Actual Rows"] for node in self.nodes() if "Sort" in node["Node Type"]), default=0)

    def whole_scans(self) -> list[str]:
        return [node["Relation Name"] for node in self.nodes() if node["Node Type"] == "Seq Scan"]

    def pages(self) -> int:
        return sum(self.plan.get(f"{kind} Blocks", 0) for kind in ("Shared Hit", "Shared Read"))

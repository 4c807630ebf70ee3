"""Run statements with EXPLAIN: which rows they read, and by which index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

import pytest
from psycopg import sql

from rapport.storage.database import Connection

PlanMode: TypeAlias = Literal["force_custom_plan", "force_generic_plan"]

MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")

plans = pytest.mark.parametrize("mode", MODES)


class Explained:
    """A connection that runs EXPLAIN for every statement, as a prepared statement, before it executes it."""

    def __init__(self, connection: Connection, mode: PlanMode) -> None:
        self._connection = connection
        self._mode = mode
        self.plan: dict[str, Any] = {}

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

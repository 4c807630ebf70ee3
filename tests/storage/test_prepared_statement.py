"""Test statements that run without psycopg's cursor: values come back as they were, and a cancellation ends a statement."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.types.json import Jsonb

from rapport.storage.prepared_statement import PreparedStatement
from tests.support.world import World

VALUES = PreparedStatement(
    "SELECT %(text)s::text AS text, %(again)s::text AS again, %(number)s::float AS number, %(truth)s::boolean AS truth,"
    " %(at)s::timestamptz AS at, %(json)s::jsonb AS json, %(texts)s::text[] AS texts, %(text)s || '!' AS loud"
)
ODD = 'it\'s "quoted", {braced}, back\\slash, NULL, 世界 👩‍👩‍👧‍👦\n'


async def test_values_come_back_as_they_were(world: World) -> None:
    given = {
        "text": ODD,
        "again": None,
        "number": 120.5,
        "truth": False,
        "at": datetime(2026, 11, 18, 9, 30, 0, 123456, UTC),
        "json": Jsonb({"a": [ODD, None, True]}),
        "texts": [ODD, "", "NULL"],
    }
    for _ in range(2):  # prepared now, and before
        async with world.database.statement() as connection:
            [row] = await VALUES.execute(connection, given)
        assert (row.text, row.again, row.number, row.truth) == (ODD, None, 120.5, False)
        assert (row.at, row.json, row.texts) == (given["at"], {"a": [ODD, None, True]}, given["texts"])
        assert row.loud == f"{ODD}!"


async def test_a_text_that_libpq_would_cut_is_refused(world: World) -> None:
    statement = PreparedStatement("SELECT %(text)s::text AS text")
    async with world.database.statement() as connection:
        for text in ("a\0b", ["a\0b"]):
            with pytest.raises(psycopg.DataError):
                await statement.execute(connection, {"text": text})
        assert await statement.execute(connection, {"text": "ab"}) == [("ab",)]


async def test_an_error_of_the_server_is_raised_and_the_connection_stays_usable(world: World) -> None:
    statement = PreparedStatement("SELECT 1 / %(number)s::int AS result")
    async with world.database.statement() as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await statement.execute(connection, {"number": 0})
        assert await statement.execute(connection, {"number": 1}) == [(1,)]


async def test_a_cancellation_ends_the_statement(world: World) -> None:
    statement = PreparedStatement("SELECT pg_sleep(%(seconds)s)::text AS nothing")
    async with world.database.statement() as connection:
        await statement.execute(connection, {"seconds": 0})
        running = asyncio.create_task(statement.execute(connection, {"seconds": 14}))
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - begun < 12
        assert await statement.execute(connection, {"seconds": 0}) == [("",)]


async def test_a_statement_runs_after_a_rollback_has_deallocated_it(world: World) -> None:
    statement = PreparedStatement("SELECT %(text)s::text AS text")
    async with world.database.statement() as connection:
        assert await statement.execute(connection, {"text": "before"}) == [("before",)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with connection.transaction():
                await connection.execute("SELECT 1 / 0")
        await connection.execute("SELECT 1")  # psycopg sends DEALLOCATE ALL before it
        assert await statement.execute(connection, {"text": "after"}) == [("after",)]


async def test_a_statement_within_a_transaction_does_not_need_its_preparation(world: World) -> None:
    statement = PreparedStatement("SELECT %(text)s::text AS text")
    async with world.database.statement() as connection:
        assert await statement.execute(connection, {"text": "before"}) == [("before",)]
        await connection.execute("DEALLOCATE ALL")
        async with connection.transaction():
            await connection.execute("SELECT 1")
            assert await statement.execute(connection, {"text": "within"}) == [("within",)]

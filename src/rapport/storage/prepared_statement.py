"""Run the few statements that every turn needs with less work in Python than a cursor takes (ADR 72)."""

from __future__ import annotations

import asyncio
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, cast
from weakref import WeakSet

import orjson
from psycopg import DataError, Error, errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.json import Jsonb

from rapport.storage.database import Connection

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_NUMBERS = count(1)
CANCEL_TIMEOUT_SECONDS = 5.0
_ESCAPED = str.maketrans({'"': '\\"', "\\": "\\\\"})


class PreparedStatement:
    """A statement with named parameters, prepared for each connection, except within a transaction. Postgres infers the parameters' types."""

    def __init__(self, sql: str) -> None:
        """Convert `%(name)s` to Postgres's `$1`. The statement contains no other percent sign."""
        self._names = list(dict.fromkeys(_PLACEHOLDER.findall(sql)))
        numbers = {name: f"${index}" for index, name in enumerate(self._names, start=1)}
        self._sql = _PLACEHOLDER.sub(lambda match: numbers[match[1]], sql).encode()
        self._name = f"rapport_{next(_NUMBERS)}".encode()
        self._prepared_on: WeakSet[Connection] = WeakSet()
        # Without a connection: every one has UTF-8, UTC and the adapters of the process, so its loaders serve all of them.
        self._transformer = Transformer()
        self._make_row: Callable[[Sequence[Any]], Any] | None = None

    async def execute(self, connection: Connection, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the rows as named tuples. Raise psycopg's errors."""
        values = [_to_text(parameters[name]) for name in self._names]
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:  # a failed attempt would end the transaction
            connection.pgconn.send_query_params(self._sql, values, result_format=Format.BINARY)
            result = await self._get_result(connection)
        else:
            result = await self._run_prepared(connection, values)
        self._transformer.set_pgresult(result)
        if self._make_row is None:
            self._make_row = _make_row_factory(result)
        return self._transformer.load_rows(0, result.ntuples, self._make_row)

    async def _run_prepared(self, connection: Connection, values: Sequence[bytes | None]) -> PGresult:
        """Run the statement, and prepare it again if psycopg has deallocated it, as it does after a rollback."""
        if connection in self._prepared_on:
            connection.pgconn.send_query_prepared(self._name, values, result_format=Format.BINARY)
            try:
                return await self._get_result(connection)
            except errors.InvalidSqlStatementName:
                self._prepared_on.discard(connection)
        await self._prepare(connection)
        connection.pgconn.send_query_prepared(self._name, values, result_format=Format.BINARY)
        return await self._get_result(connection)

    async def _prepare(self, connection: Connection) -> None:
        connection.pgconn.send_prepare(self._name, self._sql)
        try:
            await self._get_result(connection)
        except BaseException:  # whether it is prepared is unknown
            await connection.close()
            raise
        self._prepared_on.add(connection)

    async def _get_result(self, connection: Connection) -> PGresult:
        libpq = connection.pgconn
        if libpq.flush() != 0:  # the socket takes no more at the moment: psycopg waits for both directions
            [result] = await connection.wait(generators.execute(libpq))
        else:
            result = await _read_result(connection)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result, connection.info.encoding)
        return result


async def _read_result(connection: Connection) -> PGresult:
    """Return the only result of a statement that is sent, after the server's message that it is ready for the next one."""
    libpq = connection.pgconn
    results: list[PGresult] = []
    while True:
        while libpq.is_busy():
            await _wait_readable(connection)
            libpq.consume_input()
        result = libpq.get_result()
        if result is None:
            break
        results.append(result)
    [only] = results
    return only


async def _wait_readable(connection: Connection) -> None:
    """Wait for the server's answer, without the timer that psycopg's wait has. A cancellation ends the statement."""
    loop, socket = asyncio.get_running_loop(), connection.pgconn.socket
    is_readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(socket, _resolve, is_readable)
    try:
        await is_readable
    except asyncio.CancelledError:
        loop.remove_reader(socket)
        await _end_statement(connection)
        raise
    finally:
        loop.remove_reader(socket)


async def _end_statement(connection: Connection) -> None:
    """Cancel the running statement and read its result; close the connection if that fails."""
    try:
        await connection.cancel_safe(timeout=CANCEL_TIMEOUT_SECONDS)
        await connection.wait(generators.fetch_many(connection.info.pgconn), timeout=CANCEL_TIMEOUT_SECONDS)
    except Error:
        await connection.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _make_row_factory(result: PGresult) -> Callable[[Sequence[Any]], Any]:
    names = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
    return namedtuple("Row", names)._make  # pyright: ignore[reportUntypedNamedTuple] - its fields are known at run time


def _to_text(value: Any) -> bytes | None:
    """Return a parameter in Postgres's text format."""
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:  # libpq would take it as the end of the text
            raise DataError("Postgres can't store a NUL character.")
        return value.encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int | float):
        return str(value).encode()
    if isinstance(value, Jsonb):
        return orjson.dumps(value.obj)
    if isinstance(value, datetime):
        return value.isoformat().encode()
    if isinstance(value, list):
        texts = cast("list[str]", value)
        quoted = ",".join(f'"{text.translate(_ESCAPED)}"' for text in texts)
        return _to_text(f"{{{quoted}}}")
    raise TypeError(f"a parameter can't be a {type(value).__name__}")

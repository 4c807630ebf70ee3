"""Provide the connection pool and the two ways to use it: single statements, or one transaction."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import orjson
import psycopg
import structlog
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.rows import RowMaker, namedtuple_row, tuple_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from rapport.domain.errors import Permanent, Transient
from rapport.storage.postgres.embedded import EmbeddedPostgres

# Rows are named tuples, made from the columns of each statement: `row.created_at`. A type checker knows them as Any.
Connection: TypeAlias = AsyncConnection[Any]
Pool: TypeAlias = AsyncConnectionPool[Connection]

log = structlog.get_logger()

RETRY_AFTER_SECONDS = 2.0

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)

# Errors that a retry can solve: no connection, a conflict, a lock or statement timeout, a server that starts, stops or is full.
_TRANSIENT = (
    PoolTimeout,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,  # a replica that is being promoted
)


class Database:
    """Connections to Postgres with timeouts; errors that a retry can solve are raised as `Transient`."""

    def __init__(self, url: str, *, max_size: int = 10, embedded: EmbeddedPostgres | None = None) -> None:
        """Prepare a closed pool; `embedded` is the server behind the URL if this process supervises it."""
        self.url = url
        self.embedded = embedded
        self._pool: Pool = AsyncConnectionPool(
            url,
            connection_class=AsyncConnection[Any],
            # autocommit: a single statement is its own transaction, without a BEGIN and a COMMIT around it.
            kwargs={
                "autocommit": True,
                "prepare_threshold": 0,
                "row_factory": make_rows,
                # No statement may run long or wait for a lock without limit.
                # hnsw: read more candidates than needed, and continue while too few belong to the owner.
                "options": "-c statement_timeout=15s -c lock_timeout=5s -c timezone=UTC"
                " -c hnsw.ef_search=150 -c hnsw.iterative_scan=strict_order -c hnsw.max_scan_tuples=60000",
                **CONNECTION_SETTINGS,
            },
            min_size=2,
            max_size=max_size,
            timeout=3.0,
            # Give up early: the next request for a connection starts a new attempt at once, while the pool's own attempts
            # back off further and further.
            reconnect_timeout=1.5,
            max_idle=300.0,
            check=check_connection,
            open=False,
        )

    async def open(self, *, patience: float = 15.0) -> None:
        """Connect, retrying for `patience` seconds while the database starts; raise Permanent with the reason otherwise."""
        give_up = time.monotonic() + patience
        while True:
            try:
                async with await AsyncConnection.connect(self.url, **CONNECTION_SETTINGS):
                    break
            except psycopg.Error as error:
                if time.monotonic() >= give_up or not isinstance(error, psycopg.OperationalError):
                    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                    raise Permanent(f"The database can't be used: {reason}") from error
                await asyncio.sleep(0.5)
        with translate_errors():
            await self._pool.open(wait=True, timeout=patience)

    async def close(self) -> None:
        """Close all connections of the pool."""
        await self._pool.close(timeout=2.0)

    def statement(self) -> LentConnection:
        """Return a context with a connection on which every statement commits on its own: for reads and single writes."""
        return LentConnection(self._pool)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Yield a connection in a transaction. Never hold it across a model or network call."""
        with translate_errors():
            async with self._pool.connection() as connection, connection.transaction():
                yield connection


class LentConnection:
    """A connection of the pool for the length of a context. A class takes a third of the time that generators take."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        with translate_errors():
            self._connection = await self._pool.getconn()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._pool.putconn(self._connection)
        translate_errors().__exit__(kind, error, trace)


@asynccontextmanager
async def run_savepoint(connection: Connection, *, patience: float) -> AsyncGenerator[None]:
    """Run a part of a transaction that may fail alone: it is rolled back, and Transient or Permanent is raised.

    Until the transaction ends, no statement waits longer than `patience` seconds for a lock.
    """
    with translate_errors():
        try:
            async with connection.transaction():
                await connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{patience * 1000:.0f}ms",))
                yield
        except errors.UniqueViolation as error:
            raise Permanent(f"The database refused a statement: {type(error).__name__}") from error


@asynccontextmanager
async def open_dedicated_connection(url: str) -> AsyncGenerator[Connection]:
    """Yield a connection outside the pool, for long use: to listen, or to hold an advisory lock."""
    with translate_errors():
        connection: Connection = await AsyncConnection.connect(
            url, autocommit=True, options=OWN_OPTIONS, row_factory=make_rows, **CONNECTION_SETTINGS
        )
        async with connection:
            yield connection


# Keepalives on both sides detect a vanished peer in about 20 s instead of two hours. On the server's side, so that a worker
# that reconnects does not wait for its own dead session to release its lock.
OWN_OPTIONS = (
    "-c statement_timeout=10s -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3"
)

CONNECTION_SETTINGS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "application_name": "rapport",
}


def make_rows(cursor: AsyncCursor[Any]) -> RowMaker[Any]:
    """Return named tuples, or plain ones for a statement that gives two columns the same name."""
    try:
        return namedtuple_row(cursor)
    except psycopg.DataError:
        return tuple_row(cursor)


async def check_connection(connection: AsyncConnection[Any]) -> None:
    """Raise when the server has closed the connection; costs no round trip on a healthy one.

    An idle connection has nothing to read. If it has, that is a notice or the end of the connection: only then query.
    """
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN | select.POLLHUP)
    if poll.poll(0):
        await connection.execute("SELECT 1")


class translate_errors:  # noqa: N801 - used as `with translate_errors():`
    """Translate the driver's errors into domain errors, keeping the cause."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, psycopg.Error | PoolTimeout):
            return
        if isinstance(error, _TRANSIENT):
            # Log the type only: the error's text may quote the values of the statement.
            log.warning("storage.failed", errorType=type(error).__name__, sqlstate=getattr(error, "sqlstate", None))
            raise Transient("The database can't be reached right now.", retry_after=RETRY_AFTER_SECONDS) from error
        if isinstance(error, errors.UniqueViolation):
            return  # repositories that expect one handle it themselves
        raise Permanent(f"The database refused a statement: {type(error).__name__}") from error

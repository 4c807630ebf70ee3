"""The connection pool, and the only two ways to use it: one statement, or one transaction."""

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

# Only these can go away by themselves: no connection, a conflict, a lock or statement time-out, a server that is
# starting, stopping or full (all but the last are OperationalErrors).
_PASSING = (
    PoolTimeout,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,  # a replica that is being promoted
)


class Database:
    """Postgres as the rest of the system sees it: passing troubles come out as `Transient`, never as a hang."""

    def __init__(self, url: str, *, max_size: int = 10, embedded: EmbeddedPostgres | None = None) -> None:
        """`embedded` is the server behind the URL if this process is one of those that look after it."""
        self.url = url
        self.embedded = embedded
        self._pool: Pool = AsyncConnectionPool(
            url,
            connection_class=AsyncConnection[Any],
            # autocommit: a lone statement is its own transaction, without a BEGIN and a COMMIT around it.
            kwargs={
                "autocommit": True,
                "prepare_threshold": 0,
                "row_factory": make_rows,
                # No statement of ours may run for long, and none may wait for a lock for ever.
                # The vector index looks at more than it needs to, and goes on looking while an owner's own are too few.
                "options": "-c statement_timeout=15s -c lock_timeout=5s -c timezone=UTC"
                " -c hnsw.ef_search=150 -c hnsw.iterative_scan=strict_order -c hnsw.max_scan_tuples=60000",
                **CONNECTION_SETTINGS,
            },
            min_size=2,
            max_size=max_size,
            timeout=3.0,
            # Give up soon: whoever asks for a connection next starts a new attempt at once, while the pool's own would
            # come later and later the longer the database is away.
            reconnect_timeout=1.5,
            max_idle=300.0,
            check=check_connection,
            open=False,
        )

    async def open(self, *, patience: float = 15.0) -> None:
        """Connect, or say why not. A database that is just starting too gets some time."""
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
        await self._pool.close(timeout=2.0)

    @asynccontextmanager
    async def statement(self) -> AsyncGenerator[Connection]:
        """A connection on which every statement commits by itself: for reads, and for writes that are one statement."""
        with translate_errors():
            async with self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """All or nothing. Never hold it across a model or network call."""
        with translate_errors():
            async with self._pool.connection() as connection, connection.transaction():
                yield connection


@asynccontextmanager
async def run_savepoint(connection: Connection, *, patience: float) -> AsyncGenerator[None]:
    """Part of a transaction that may fail without the rest of it: then it is undone, and raises Transient or Permanent.

    From here on no lock is waited for longer than `patience` seconds.
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
    """A connection outside the pool, for one who keeps it: to listen, or to hold a lock by being there."""
    with translate_errors():
        connection: Connection = await AsyncConnection.connect(
            url, autocommit=True, options=OWN_OPTIONS, row_factory=make_rows, **CONNECTION_SETTINGS
        )
        async with connection:
            yield connection


# A peer that vanished without a word is noticed in about 20 s instead of two hours.
# The same on the server's side: a worker that comes back must not wait for its own ghost to release its lock.
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

    An idle connection has nothing to read. If it has, that is either a notice or the end: only then ask the server.
    """
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN | select.POLLHUP)
    if poll.poll(0):
        await connection.execute("SELECT 1")


class translate_errors:  # noqa: N801 - reads as a word: `with translated():`
    """Turns the driver's errors into ours, keeping the cause."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, psycopg.Error | PoolTimeout):
            return
        if isinstance(error, _PASSING):
            # The kind alone: what an error says may quote what was to be stored.
            log.warning("storage.failed", errorType=type(error).__name__, sqlstate=getattr(error, "sqlstate", None))
            raise Transient("The database can't be reached right now.", retry_after=RETRY_AFTER_SECONDS) from error
        if isinstance(error, errors.UniqueViolation):
            return  # repositories that provoke one on purpose handle it themselves
        raise Permanent(f"The database refused a statement: {type(error).__name__}") from error

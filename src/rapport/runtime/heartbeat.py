"""Keep a worker alive in the database: one connection renews its lease and receives hints.

It detects first that the database does not answer, and restarts an embedded one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.runtime.postgres_restart import PostgresRestart
from rapport.storage.database import Connection, Database, open_dedicated_connection
from rapport.storage.work.events import NOTIFY_CHANNEL, Events
from rapport.storage.work.workers import Workers

log = structlog.get_logger()

HEARTBEAT_SECONDS = 1.0


class Heartbeat:
    """Keeps the worker registered, also after lost connections and restarts of the database, until it is stopped."""

    def __init__(self, database: Database, worker_id: str, *, on_hint: Callable[[str], None]) -> None:
        self._url = database.url
        self._restart = PostgresRestart(database.embedded)
        self._heartbeat_at = time.monotonic()
        self._worker_id = worker_id
        self._on_hint = on_hint
        self._joined = asyncio.Event()
        self.has_peers = False
        """True if other processes were alive at the latest heartbeat: only then are hints sent."""

    async def wait_joined(self) -> None:
        await self._joined.wait()

    def seconds_since_heartbeat(self) -> float:
        """Return the seconds since the database last answered; about one in normal operation."""
        return time.monotonic() - self._heartbeat_at

    async def run(self) -> None:
        """Register the worker, and again whenever the connection breaks, until cancelled."""
        pause = 0.1
        while True:
            try:
                async with open_dedicated_connection(self._url) as connection:
                    await self._stay_joined(connection)
            except (Transient, Permanent) as error:
                log.warning("worker.disconnected", worker=self._worker_id, reason=str(error))
                # A restarting database is back within seconds; frequent attempts are cheap and keep the outage short.
                pause = min(pause * 2, 1.0) if not self._joined.is_set() else 0.1
                self._joined.clear()
                await self._restart.restart_if_ended()
                await asyncio.sleep(pause)

    async def _stay_joined(self, connection: Connection) -> None:
        workers = Workers(connection)
        await workers.join(self._worker_id)
        await connection.execute(f"LISTEN {NOTIFY_CHANNEL}".encode())
        self.has_peers = await workers.has_others(self._worker_id)
        self._heartbeat_at = time.monotonic()
        self._joined.set()
        self._on_hint("joined")
        renew_at = time.monotonic() + HEARTBEAT_SECONDS
        while True:
            async for notice in connection.notifies(timeout=HEARTBEAT_SECONDS, stop_after=1):
                self._on_hint(notice.payload)
            if time.monotonic() < renew_at:
                continue
            renew_at = time.monotonic() + HEARTBEAT_SECONDS
            if not await workers.renew(self._worker_id):
                # Others counted this worker as dead (a long pause, a suspended laptop). Fences protect their commits.
                log.warning("worker.rejoined", worker=self._worker_id)
                await workers.join(self._worker_id)
            self.has_peers = await workers.has_others(self._worker_id)
            self._heartbeat_at = time.monotonic()


async def send_hint(database: Database, text: str) -> None:
    """Notify the other processes. If it fails, they find the change by polling."""
    with contextlib.suppress(Transient, Permanent):
        async with database.statement() as connection:
            await Events(connection).hint(text)

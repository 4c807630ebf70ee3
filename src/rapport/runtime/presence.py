"""A worker's presence: one connection that says "I am here", renews the lease and hears hints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.storage.database import Connection, own_connection
from rapport.storage.events import HINTS
from rapport.storage.workers import Workers

log = structlog.get_logger()

HEARTBEAT_SECONDS = 1.0


class Presence:
    """Stays joined through lost connections and restarts of the database, until it is stopped."""

    def __init__(self, url: str, worker_id: str, *, on_hint: Callable[[str], None]) -> None:
        self._url = url
        self._worker_id = worker_id
        self._on_hint = on_hint
        self._joined = asyncio.Event()

    async def wait_joined(self) -> None:
        await self._joined.wait()

    async def run(self) -> None:
        """Join, and join again whenever the connection breaks; ends only by being cancelled."""
        pause = 0.1
        while True:
            try:
                async with own_connection(self._url) as connection:
                    await self._stay(connection)
            except (Transient, Permanent) as error:
                log.warning("worker.disconnected", worker=self._worker_id, reason=str(error))
                # A restarting database is back within seconds; asking often is cheap and keeps the outage short.
                pause = min(pause * 2, 1.0) if not self._joined.is_set() else 0.1
                self._joined.clear()
                await asyncio.sleep(pause)

    async def _stay(self, connection: Connection) -> None:
        workers = Workers(connection)
        await workers.join(self._worker_id)
        await connection.execute(f"LISTEN {HINTS}".encode())
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
                # Others gave this worker up (a long pause, a suspended laptop): its fences protect what they did since.
                log.warning("worker.rejoined", worker=self._worker_id)
                await workers.join(self._worker_id)

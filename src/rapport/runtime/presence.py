"""A worker's presence: one connection that says "I am here", renews the lease and hears hints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection

from rapport.storage.database import CONNECTION_SETTINGS, Connection
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
                connection = await self._connect()
                try:
                    await self._stay(connection)
                finally:
                    await connection.close()
            except psycopg.Error as error:
                log.warning("worker.disconnected", worker=self._worker_id, reason=type(error).__name__)
                # A restarting database is back within seconds; asking often is cheap and keeps the outage short.
                pause = min(pause * 2, 1.0) if not self._joined.is_set() else 0.1
                self._joined.clear()
                await asyncio.sleep(pause)

    async def _connect(self) -> Connection:
        return await AsyncConnection[tuple[Any, ...]].connect(
            self._url, autocommit=True, options="-c statement_timeout=10s", **CONNECTION_SETTINGS
        )

    async def _stay(self, connection: Connection) -> None:
        workers = Workers(connection)
        await workers.join(self._worker_id)
        await connection.execute(f"LISTEN {HINTS}".encode())
        self._joined.set()
        self._on_hint("joined")
        while True:
            async for notice in connection.notifies(timeout=HEARTBEAT_SECONDS, stop_after=1):
                self._on_hint(notice.payload)
            if not await workers.renew(self._worker_id):
                # Others gave this worker up (a long pause, a suspended laptop): its fences protect what they did since.
                log.warning("worker.rejoined", worker=self._worker_id)
                await workers.join(self._worker_id)

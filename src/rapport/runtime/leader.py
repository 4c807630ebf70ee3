"""Elect a leader for each message source: one process at a time receives from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rapport.domain.channel import MessageSource
from rapport.domain.errors import Permanent, Transient
from rapport.runtime.tasks import end_all
from rapport.storage.database import Connection, open_dedicated_connection
from rapport.storage.work.workers import try_leader_lock

log = structlog.get_logger()

POLL_SECONDS = 1.0


class LeaderLoop:
    """Runs a source while this process holds its leader lock. If it dies or loses its connection, another takes over."""

    def __init__(self, url: str, source: MessageSource) -> None:
        self._url = url
        self._source = source

    async def run(self) -> None:
        """Wait for the leader lock, run the source, and start again after any error, until cancelled."""
        while True:
            try:
                async with open_dedicated_connection(self._url) as connection:
                    while not await try_leader_lock(connection, self._source.name):
                        await asyncio.sleep(POLL_SECONDS)
                    await self._lead(connection)
            except (Transient, Permanent) as error:
                log.warning("leader.retrying", source=self._source.name, reason=str(error))
            except Exception as error:
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
            await asyncio.sleep(POLL_SECONDS)

    async def _lead(self, connection: Connection) -> None:
        log.info("leader.elected", source=self._source.name)
        tasks = [asyncio.create_task(_until_cancelled(loop), name=self._source.name) for loop in self._source.loops]
        try:
            while True:
                ended, _ = await asyncio.wait(tasks, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()
                await connection.execute("SELECT 1")  # fails if the connection, and so the lock, is lost
        finally:
            await end_all(tasks)


async def _until_cancelled(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
    raise Permanent("A loop that should never end has ended.")

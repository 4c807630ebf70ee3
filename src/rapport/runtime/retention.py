"""Delete finished rows after the retention time: events, sent outbox rows, past timers, expired sessions, checkpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from rapport.domain.errors import RapportError
from rapport.metrics import Metrics
from rapport.runtime.erasure import CheckpointStore
from rapport.storage.database import Database
from rapport.storage.work.retention import ROWS_PER_BATCH, TABLES, Retention

log = structlog.get_logger()

CHECKPOINT_INTERVAL_SECONDS = 60.0
ROW_INTERVAL_SECONDS = 6 * 3600.0
PAUSE_SECONDS = 0.05
"""Pause between two batches, so that turns always find a free connection and a quiet disk."""
CHECKPOINT_AGE = timedelta(days=1)
"""Checkpoints are working state: a day is enough to inspect one, whatever the retention time is."""
MAX_BACKOFF_SECONDS = 300.0


class RetentionLoop:
    """Deletes old rows periodically. Any number of processes may run it: a deleted row is skipped."""

    def __init__(
        self, database: Database, checkpoints: CheckpointStore, metrics: Metrics, *, retention: timedelta | None
    ) -> None:
        """`retention` is the age after which finished rows are deleted; None: never. Sessions have an expiry of their own."""
        self._database = database
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._retention = retention

    async def run(self) -> None:
        """Delete until cancelled. A failure is logged, and the next interval tries again."""
        rows_at = time.monotonic() + CHECKPOINT_INTERVAL_SECONDS  # first let a starting process answer its messages
        while True:
            try:
                await self.delete_checkpoints()
                if time.monotonic() >= rows_at:
                    await self.delete_rows()
                    rows_at = time.monotonic() + ROW_INTERVAL_SECONDS
            except RapportError as error:
                log.warning("retention.failed", reason=str(error))
            except Exception as error:
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
                await asyncio.sleep(MAX_BACKOFF_SECONDS)
            await asyncio.sleep(CHECKPOINT_INTERVAL_SECONDS)

    async def delete_checkpoints(self) -> None:
        """Delete one batch of old checkpoints."""
        age = CHECKPOINT_AGE if self._retention is None else min(self._retention, CHECKPOINT_AGE)
        self._count("checkpoints", await self._checkpoints.sweep(datetime.now(UTC) - age))

    async def delete_rows(self) -> None:
        """Delete all rows that are old now, batch by batch."""
        deleted = dict.fromkeys(TABLES, 0)
        deleted["sessions"] = await self._repeat(Retention.delete_expired_sessions)
        if self._retention is not None:
            await self._delete_finished(self._retention, deleted)
        for table, count in deleted.items():
            self._count(table, count)
        if any(deleted.values()):
            log.info("retention.deleted", **deleted)

    async def _delete_finished(self, age: timedelta, deleted: dict[str, int]) -> None:
        last_id = ""
        while True:
            async with self._database.statement() as connection:
                conversations = await Retention(connection).list_conversations(after=last_id)
            if not conversations:
                return
            for table in deleted.keys() - {"sessions"}:
                delete_batch = partial(Retention.delete_old, table=table, conversations=conversations, age=age)
                deleted[table] += await self._repeat(delete_batch)
            last_id = conversations[-1]

    async def _repeat(self, delete_batch: Callable[[Retention], Awaitable[int]]) -> int:
        """Delete batches until one is not full; return how many rows."""
        total = 0
        while True:
            async with self._database.statement() as connection:
                count = await delete_batch(Retention(connection))
            total += count
            await asyncio.sleep(PAUSE_SECONDS)
            if count < ROWS_PER_BATCH:
                return total

    def _count(self, table: str, count: int) -> None:
        if count:
            self._metrics.count_deleted(table, count)

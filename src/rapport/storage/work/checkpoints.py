"""Store LangGraph's checkpoints in Postgres: the working state of a turn, never the source of what users see."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, TypeAlias

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool
from ulid import ULID

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import FRESH
from rapport.storage.database import CONNECTION_SETTINGS, check_connection, translate_errors

log = structlog.get_logger()

CheckpointPool: TypeAlias = AsyncConnectionPool[AsyncConnection[DictRow]]

# LangGraph's saver needs two statements per checkpoint; this is one for many. Arrays are sent as binary (%b), because psycopg
# escapes every string of a text array by a regular expression.
_PUT = """
WITH blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[])
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
)
INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::jsonb[], %b::jsonb[])
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
DO UPDATE SET checkpoint = excluded.checkpoint, metadata = excluded.metadata
"""

# A thread's id is its event's ULID, so older ids sort first. Deleted in batches, so that no statement runs long.
_SWEEP = (
    "DELETE FROM checkpoints WHERE ctid IN (SELECT ctid FROM checkpoints WHERE thread_id < %s LIMIT 2000)",
    "DELETE FROM checkpoint_blobs WHERE ctid IN (SELECT ctid FROM checkpoint_blobs WHERE thread_id < %s LIMIT 4000)",
    "DELETE FROM checkpoint_writes WHERE ctid IN (SELECT ctid FROM checkpoint_writes WHERE thread_id < %s LIMIT 4000)",
)

FLUSH_SECONDS = 0.2
MAX_PENDING = 64


class Checkpoints(AsyncPostgresSaver):
    """LangGraph's Postgres saver on its own tables, with writes collected for FLUSH_SECONDS and sent together.

    A turn writes one checkpoint, at its end, and nothing waits for it: the reply is committed on its own. If the process
    dies before the flush, the turn runs again or its working state is missing; no message is lost. Reading or deleting a
    thread flushes first.
    """

    def __init__(self, pool: CheckpointPool) -> None:
        # Deserializes only known message types, never arbitrary code.
        super().__init__(pool, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._pool = pool
        self._blobs: list[tuple[Any, ...]] = []
        self._rows: list[tuple[Any, ...]] = []
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Flush pending writes periodically until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
            except (Transient, Permanent) as error:
                log.warning("checkpoints.dropped", reason=str(error))

    async def sweep(self, before: datetime) -> int:
        """Delete a batch of checkpoints of turns that began before the given time; return how many rows."""
        oldest_kept = str(ULID.from_datetime(before))
        removed = 0
        with translate_errors():
            async with self._pool.connection() as connection:
                for statement in _SWEEP:
                    removed += (await connection.execute(statement, (oldest_kept,))).rowcount
        return removed

    async def flush(self) -> None:
        """Write everything that is pending; wait for a flush that another task has started."""
        async with self._writing:
            if not self._rows:
                return
            blobs, self._blobs = self._blobs, []
            rows, self._rows = self._rows, []
            columns = [list(column) for column in zip(*blobs, strict=True)] or [[]] * 6
            columns += [list(column) for column in zip(*rows, strict=True)]
            with translate_errors():
                async with self._pool.connection() as connection:
                    await connection.execute(_PUT, columns)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint of a thread; None without a query for a turn that has just begun."""
        if config.get("configurable", {}).get(FRESH) is True:
            return None
        await self.flush()
        with translate_errors():
            return await super().aget_tuple(config)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.flush()
        with translate_errors():
            await super().adelete_thread(thread_id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable: dict[str, Any] = config.get("configurable", {})
        thread, namespace = configurable["thread_id"], configurable["checkpoint_ns"]
        values = checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if isinstance(value, str | int | float | None)}
        changed = {name: version for name, version in new_versions.items() if name in values and name not in inline}
        self._blobs += self._dump_blobs(thread, namespace, values, changed)
        self._rows.append(
            (
                thread,
                namespace,
                checkpoint["id"],
                configurable.get("checkpoint_id"),
                Jsonb({**checkpoint, "channel_values": inline}),
                Jsonb(get_serializable_checkpoint_metadata(config, metadata)),
            )
        )
        if len(self._rows) >= MAX_PENDING:
            try:
                await self.flush()
            except (Transient, Permanent) as error:  # a lost checkpoint must not fail the turn
                log.warning("checkpoints.dropped", reason=str(error))
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}}


def checkpoint_pool(url: str) -> CheckpointPool:
    """Return a pool whose commits do not wait for the disk: a checkpoint lost in a power failure costs one repeated turn."""
    return AsyncConnectionPool(
        url,
        connection_class=AsyncConnection[DictRow],
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "options": "-c synchronous_commit=off -c statement_timeout=15s",
            **CONNECTION_SETTINGS,
        },
        min_size=1,
        max_size=4,
        timeout=3.0,
        reconnect_timeout=1.5,
        check=check_connection,
        open=False,
    )

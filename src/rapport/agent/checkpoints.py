"""LangGraph's checkpoints in Postgres: the working state of a turn, never the source of what people see."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import psycopg
import structlog
from langchain_core.messages import HumanMessage
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
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from rapport.domain.errors import Permanent
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic

log = structlog.get_logger()

CheckpointPool: TypeAlias = AsyncConnectionPool[AsyncConnection[DictRow]]

FRESH = "rapport_fresh"
"""Set in a run's configuration when its thread can't have a checkpoint yet."""

PROBE = {
    "synthetic": True,
    "trigger_type": "check_in",
    "trigger_reason": "start-up probe",
    "lc_source": "autonomy",
}


# What LangGraph's saver does in two statements a checkpoint, as one statement for many.
_PUT = """
WITH blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[])
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
)
INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::jsonb[], %s::jsonb[])
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
DO UPDATE SET checkpoint = excluded.checkpoint, metadata = excluded.metadata
"""

FLUSH_SECONDS = 0.2
MAX_PENDING = 64


class Checkpoints(AsyncPostgresSaver):
    """LangGraph's own Postgres saver on its own tables, whose writes are gathered for a moment and written together.

    A turn's only checkpoint is the one at its end, which nothing waits for: the reply is committed on its own. If the
    process dies within that moment the turn is run again or its working state is missing, and nobody loses a word.
    Reading, or deleting a thread, writes what is pending first.
    """

    def __init__(self, pool: CheckpointPool) -> None:
        # Revives only known message types from what it reads, never arbitrary code.
        super().__init__(pool, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._pool = pool
        self._blobs: list[tuple[Any, ...]] = []
        self._rows: list[tuple[Any, ...]] = []

    async def run(self) -> None:
        """Write what is pending, again and again, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
            except (psycopg.Error, PoolTimeout) as error:
                log.warning("checkpoints.dropped", reason=type(error).__name__)

    async def flush(self) -> None:
        """Write everything that is pending."""
        if not self._rows:
            return
        blobs, self._blobs = self._blobs, []
        rows, self._rows = self._rows, []
        columns = [list(column) for column in zip(*blobs, strict=True)] or [[]] * 6
        columns += [list(column) for column in zip(*rows, strict=True)]
        async with self._pool.connection() as connection:
            await connection.execute(_PUT, columns)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The newest checkpoint of a thread. Of a turn that has just begun it is known without asking: there is none."""
        if config.get("configurable", {}).get(FRESH) is True:
            return None
        await self.flush()
        return await super().aget_tuple(config)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.flush()
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
            await self.flush()
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}}


def checkpoint_pool(url: str, *, max_size: int, settings: dict[str, Any]) -> CheckpointPool:
    """Connections for checkpoints. A checkpoint lost with the machine's power costs a turn run again, nothing else:
    so they don't wait for the disk, unlike everything that was acknowledged."""
    return AsyncConnectionPool(
        url,
        connection_class=AsyncConnection[DictRow],
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "options": "-c synchronous_commit=off -c statement_timeout=15s",
            **settings,
        },
        min_size=1,
        max_size=max_size,
        timeout=5.0,
        open=False,
    )


async def verify_metadata(graph: Any, saver: AsyncPostgresSaver) -> None:
    """Prove that a tagged message keeps its tags through the real checkpointer (AUTO-4); leaves nothing behind."""
    thread = f"probe-{new_id()}"
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    try:
        await graph.aupdate_state(
            config, {"messages": [HumanMessage("probe", additional_kwargs=dict(PROBE))]}, as_node="answer"
        )
        messages = (await graph.aget_state(config)).values.get("messages") or []
    finally:
        await saver.adelete_thread(thread)
    if len(messages) != 1 or not is_synthetic(messages[0]) or messages[0].additional_kwargs != PROBE:
        raise MetadataLost(
            "Checkpoint metadata integrity test failed: a tagged message came back from the checkpointer without its "
            "tags. Follow-ups would leak into conversations, so the server does not start."
        )


class MetadataLost(Permanent):
    """The checkpointer does not keep message metadata."""

"""LangGraph's checkpoints in Postgres: the working state of a turn, never the source of what people see."""

from __future__ import annotations

from typing import Any, TypeAlias

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
from psycopg_pool import AsyncConnectionPool

from rapport.domain.errors import Permanent
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic

CheckpointPool: TypeAlias = AsyncConnectionPool[AsyncConnection[DictRow]]

FRESH = "rapport_fresh"
"""Set in a run's configuration when its thread can't have a checkpoint yet."""

PROBE = {
    "synthetic": True,
    "trigger_type": "check_in",
    "trigger_reason": "start-up probe",
    "lc_source": "autonomy",
}


# What LangGraph's saver does in two pipelined statements, as one.
_PUT = """
WITH blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT %(thread)s, %(ns)s, * FROM unnest(%(channels)s::text[], %(versions)s::text[], %(types)s::text[], %(blobs)s::bytea[])
    ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
)
INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
VALUES (%(thread)s, %(ns)s, %(id)s, %(parent)s, %(checkpoint)s, %(metadata)s)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
DO UPDATE SET checkpoint = excluded.checkpoint, metadata = excluded.metadata
"""


class Checkpoints(AsyncPostgresSaver):
    """LangGraph's own Postgres saver with its own tables; only the write that every turn makes is done more cheaply.

    The original takes one lock per process, a thread for a serialisation of 30 µs, and two statements in a pipeline.
    For a turn that has just begun this one also knows without asking that there is nothing to load.
    """

    def __init__(self, pool: CheckpointPool) -> None:
        # Revives only known message types from what it reads, never arbitrary code.
        super().__init__(pool, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._pool = pool

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if config.get("configurable", {}).get(FRESH) is True:
            return None
        return await super().aget_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable: dict[str, Any] = config.get("configurable", {})
        values = checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if isinstance(value, str | int | float | None)}
        blobs = self._dump_blobs(
            configurable["thread_id"],
            configurable["checkpoint_ns"],
            values,
            {name: version for name, version in new_versions.items() if name in values and name not in inline},
        )
        async with self._pool.connection() as connection:
            await connection.execute(
                _PUT,
                {
                    "thread": configurable["thread_id"],
                    "ns": configurable["checkpoint_ns"],
                    "id": checkpoint["id"],
                    "parent": configurable.get("checkpoint_id"),
                    "checkpoint": Jsonb({**checkpoint, "channel_values": inline}),
                    "metadata": Jsonb(get_serializable_checkpoint_metadata(config, metadata)),
                    "channels": [blob[2] for blob in blobs],
                    "versions": [blob[3] for blob in blobs],
                    "types": [blob[4] for blob in blobs],
                    "blobs": [blob[5] for blob in blobs],
                },
            )
        return {
            "configurable": {
                "thread_id": configurable["thread_id"],
                "checkpoint_ns": configurable["checkpoint_ns"],
                "checkpoint_id": checkpoint["id"],
            }
        }


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

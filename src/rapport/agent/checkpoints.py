"""LangGraph's checkpoints in Postgres: the working state of a turn, never the source of what people see."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from rapport.domain.errors import Permanent
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic

FRESH = "rapport_fresh"
"""Set in a run's configuration when its thread can't have a checkpoint yet."""

PROBE = {
    "synthetic": True,
    "trigger_type": "check_in",
    "trigger_reason": "start-up probe",
    "lc_source": "autonomy",
}


class Checkpoints(AsyncPostgresSaver):
    """LangGraph's own Postgres saver; for a turn that has just begun it knows without asking that there is nothing."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if config.get("configurable", {}).get(FRESH) is True:
            return None
        return await super().aget_tuple(config)


def checkpoint_pool(
    url: str, *, max_size: int, settings: dict[str, Any]
) -> AsyncConnectionPool[AsyncConnection[DictRow]]:
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


def checkpoints(pool: AsyncConnectionPool[AsyncConnection[DictRow]]) -> Checkpoints:
    """The saver; it revives only known message types from what it reads, never arbitrary code."""
    return Checkpoints(pool, serde=JsonPlusSerializer(allowed_msgpack_modules=None))


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

"""Check at start that the checkpointer keeps the tags of a message, which follow-ups need (AUTO-4)."""

from __future__ import annotations

from typing import Any

import structlog
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from rapport.domain.errors import Permanent
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic

log = structlog.get_logger()

PROBE = {"synthetic": True, "trigger_type": "check_in", "trigger_reason": "start-up probe", "lc_source": "autonomy"}


async def verify_metadata(graph: Any, saver: BaseCheckpointSaver[Any]) -> None:
    """Write a tagged message through the real checkpointer and read it back (AUTO-4), then delete it."""
    thread = f"probe-{new_id()}"
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    try:
        await graph.aupdate_state(
            config, {"messages": [HumanMessage("probe", additional_kwargs=dict(PROBE))]}, as_node="model"
        )
        messages: list[BaseMessage] = (await graph.aget_state(config)).values.get("messages") or []
    finally:
        await saver.adelete_thread(thread)
    if len(messages) != 1 or not is_synthetic(messages[0]) or messages[0].additional_kwargs != PROBE:
        lost = MetadataLost(
            "Checkpoint metadata integrity test failed: a tagged message came back from the checkpointer without its "
            "tags. Follow-ups would leak into conversations, so the server does not start."
        )
        log.error("agent.metadata_lost", message=str(lost))
        raise lost


class MetadataLost(Permanent):
    """The checkpointer does not keep message metadata."""

"""Summaries in the making: beside the turns, one at a time per conversation, given up without harm."""

from __future__ import annotations

import asyncio

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.storage.database import Database
from rapport.summary import Writer, sum_up

log = structlog.get_logger()

PATIENCE = 5.0
"""Seconds that a turn waits for a summary that is under way; then it goes without it."""
AT_ONCE = 4
"""Conversations summed up at a time: the model's time belongs to those who wait for an answer."""


class Summing:
    """Sums conversations up in tasks of its own. What it leaves undone is noticed again after the next turn."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._places = asyncio.Semaphore(AT_ONCE)
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, event: ClaimedEvent) -> None:
        """Sum up the conversation of this event, unless that is under way."""
        if event.conversation_id not in self.tasks:
            task = asyncio.create_task(self._run(event), name=f"summary {event.conversation_id}")
            self.tasks[event.conversation_id] = task

    async def settled(self, conversation_id: str) -> None:
        """Until no summary of this conversation is being made here, for a moment: its next turn goes with it, not beside it.

        Who answers at leisure never waits for this; who is faster than the model waits as long as it takes, within limits.
        """
        if (task := self.tasks.get(conversation_id)) is not None:
            await asyncio.wait({task}, timeout=PATIENCE)

    def give_up(self, conversation_id: str) -> None:
        """Stop summing up a conversation that is being erased: nothing more of it goes to the model."""
        if (task := self.tasks.get(conversation_id)) is not None:
            task.cancel()

    async def _run(self, event: ClaimedEvent) -> None:
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            async with self._places:
                await sum_up(event.owner_id, event.conversation_id, database=self._database, writer=self._writer)
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType=type(error).__name__, message=f"no summary this time: {error}")
        except Exception as error:
            log.exception("chat.error", errorType=type(error).__name__, message=str(error))
        finally:
            del self.tasks[event.conversation_id]

"""Erase conversations and the checkpoints of turns."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Protocol

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.work.events import Events


class CheckpointStore(Protocol):
    """The methods of LangGraph's checkpoints that the runtime needs."""

    async def run(self) -> None: ...

    async def flush(self) -> None: ...

    async def sweep(self, before: datetime) -> int: ...

    async def adelete_thread(self, thread_id: str) -> None: ...


async def delete_checkpoints(checkpoints: CheckpointStore, event: ClaimedEvent) -> None:
    """Delete the checkpoints of a superseded turn: its conversation may have been erased."""
    with contextlib.suppress(Transient, Permanent):
        await checkpoints.adelete_thread(event.message_id)


async def erase_conversation(
    database: Database, checkpoints: CheckpointStore, owner_id: str, conversation_id: str
) -> None:
    """Delete a conversation with all its rows, and request that its running turn stops."""
    async with database.transaction() as connection:
        await Conversations(connection).lock(owner_id, conversation_id)
        await checkpoints.flush()  # or pending checkpoints would be written after the deletion
        await Events(connection).request_cancel(owner_id, conversation_id)
        await Conversations(connection).delete(owner_id, conversation_id)

"""Conversations: each belongs to an owner, and only that owner finds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.conversation import Conversation, Kind
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id, new_id
from rapport.storage.database import Connection

_COLUMNS = "id, owner_id, agent_id, kind, channel, title, created_at, last_at"


@dataclass(frozen=True, slots=True)
class Conversations:
    connection: Connection

    async def create(
        self,
        owner_id: str,
        *,
        agent_id: str,
        kind: Kind = "direct",
        channel: str = "api",
        title: str | None = None,
    ) -> Conversation:
        """A new, empty conversation."""
        cursor = await self.connection.execute(
            f"INSERT INTO conversations (id, owner_id, agent_id, kind, channel, title)"
            f" VALUES (%s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}",
            (new_id(), owner_id, agent_id, kind, channel, title),
        )
        row = await cursor.fetchone()
        assert row is not None
        return _conversation(row)

    async def get(self, owner_id: str, conversation_id: str) -> Conversation:
        """The conversation, if it is this owner's."""
        if is_id(conversation_id):
            cursor = await self.connection.execute(
                f"SELECT {_COLUMNS} FROM conversations WHERE id = %s AND owner_id = %s",
                (conversation_id, owner_id),
            )
            if row := await cursor.fetchone():
                return _conversation(row)
        raise no_such_conversation(conversation_id)

    async def recent(
        self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Conversation]:
        """The owner's conversations, the one talked in last first; `before` is the (last_at, id) of the last one seen."""
        # The row comparison walks the index conversations_recent from the cursor on: a page costs the same anywhere.
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE owner_id = %s AND (%s::timestamptz IS NULL OR (last_at, id) < (%s, %s))"
            " ORDER BY last_at DESC, id DESC LIMIT %s",
            (owner_id, before and before[0], before and before[0], before and before[1], limit),
        )
        return [_conversation(row) for row in await cursor.fetchall()]

    async def delete(self, owner_id: str, conversation_id: str) -> None:
        """Erase a conversation with all that belongs to it, LangGraph's working state included."""
        if not is_id(conversation_id):
            raise no_such_conversation(conversation_id)
        # The row goes first: whoever is about to write to the conversation waits for it and then finds nothing.
        cursor = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s AND owner_id = %s FOR UPDATE",
            (conversation_id, owner_id),
        )
        if await cursor.fetchone() is None:
            raise no_such_conversation(conversation_id)
        # A turn's checkpoints are kept under its event's id.
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            await self.connection.execute(
                f"DELETE FROM {table} WHERE thread_id IN (SELECT id FROM events WHERE conversation_id = %s)".encode(),
                (conversation_id,),
            )
        await self.connection.execute("DELETE FROM conversations WHERE id = %s", (conversation_id,))


def no_such_conversation(conversation_id: str) -> NotFound:
    """The one answer for a missing and for a foreign conversation."""
    return NotFound(f"There is no conversation {conversation_id[:64]!r}.")


def _conversation(row: tuple[Any, ...]) -> Conversation:
    return Conversation(*row)

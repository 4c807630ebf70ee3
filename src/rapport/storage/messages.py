"""The message log: the truth about what was said. Rows are added, and what they say is never changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from rapport.domain.conversation import Author, Message
from rapport.domain.errors import InvalidInput
from rapport.domain.ids import is_id
from rapport.domain.synthetic import is_synthetic
from rapport.storage.database import Connection

log = structlog.get_logger()

SPOKEN = "id, conversation_id, role, content, blocks, created_at, author_id, author_name"
COLUMNS = (
    f"{SPOKEN}, reply_to_id, client_message_id, event_id, sources, metadata, summary_id,"
    " mentions, thread_id, is_bot, platform_id, context_snapshot"
)
BRIEF = """reply_to_id, client_message_id, event_id, '[]'::jsonb AS sources,
    CASE WHEN metadata ? 'autonomous' THEN metadata ELSE '{}' END AS metadata, summary_id, mentions, thread_id, is_bot,
    platform_id, context_snapshot"""
"""What follows SPOKEN in a message as one of many that a model is told: of the metadata, which may be long, only what says
that the agent spoke unasked."""
WORDS = f"""id, conversation_id, role,
    CASE WHEN content = '' AND blocks IS NOT NULL THEN '[picture]' ELSE content END AS content, NULL::jsonb AS blocks,
    created_at, author_id, author_name, {BRIEF}"""
"""The same without pictures, which can be megabytes each."""


@dataclass(frozen=True, slots=True)
class Messages:
    connection: Connection

    async def before(
        self, owner_id: str, conversation_id: str, *, limit: int, cursor: tuple[datetime, str] | None = None
    ) -> list[Message]:
        """The newest `limit` messages older than the cursor, oldest of them first: what was said, and nothing else."""
        told: list[Message] = []
        hidden = 0
        while len(told) < limit:
            # Between two messages of a person there are only a few that nobody said: one more page is enough, mostly.
            page = await self._walk(owner_id, conversation_id, limit=limit - len(told), cursor=cursor)
            real = [message for message in page if not is_synthetic(message)]
            for message in page:
                if is_synthetic(message):
                    log.debug(
                        "autonomy.message_filtered",
                        conversationId=conversation_id,
                        messageId=message.id,
                        trigger_type=message.metadata.get("trigger_type"),
                    )
            hidden += len(page) - len(real)
            told = [*real, *told]
            if len(real) == len(page):
                break
            cursor = (page[0].created_at, page[0].id)
        if hidden:
            log.info(f"Filtered {hidden} synthetic messages from thread history", conversationId=conversation_id)
        return told

    async def _walk(
        self, owner_id: str, conversation_id: str, *, limit: int, cursor: tuple[datetime, str] | None
    ) -> list[Message]:
        # Both shapes are one backward walk of messages_order; they are two statements so that each has a fixed plan.
        if cursor is None:
            found = await self.connection.execute(
                f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND owner_id = %s"
                " ORDER BY created_at DESC, id DESC LIMIT %s",
                (conversation_id, owner_id, limit),
            )
        else:
            found = await self.connection.execute(
                f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND owner_id = %s"
                " AND (created_at, id) < (%s, %s) ORDER BY created_at DESC, id DESC LIMIT %s",
                (conversation_id, owner_id, *cursor, limit),
            )
        return [message_of(row) for row in reversed(await found.fetchall())]

    async def get(self, owner_id: str, conversation_id: str, message_id: str) -> Message | None:
        """One that somebody said."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, message_id, owner_id),
        )
        row = await found.fetchone()
        return message_of(row) if row else None

    async def of_platform(self, owner_id: str, conversation_id: str, platform_id: str) -> Message | None:
        """The one that the platform calls so."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages"
            " WHERE conversation_id = %s AND platform_id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, platform_id, owner_id),
        )
        row = await found.fetchone()
        return message_of(row) if row else None

    async def reply_to_event(self, owner_id: str, conversation_id: str, event_id: str) -> Message | None:
        """The one reply an event has, once it has been answered."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND event_id = %s AND owner_id = %s",
            (conversation_id, event_id, owner_id),
        )
        row = await found.fetchone()
        return message_of(row) if row else None

    async def position(self, owner_id: str, conversation_id: str, message_id: str) -> tuple[datetime, str]:
        """Where a message that somebody said stands in its conversation: the cursor of a history page."""
        if is_id(message_id):
            found = await self.connection.execute(
                "SELECT created_at, id FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
                (conversation_id, message_id, owner_id),
            )
            if row := await found.fetchone():
                return row[0], row[1]
        raise InvalidInput(f"There is no message {message_id[:64]!r} in this conversation to page from.")


def message_of(row: tuple[Any, ...]) -> Message:
    """A row of COLUMNS, of SPOKEN and BRIEF, or of WORDS as a message."""
    id_, conversation_id, role, content, blocks, created_at, author_id, author_name, *rest = row
    author = None if author_id is None else Author(author_id, author_name or author_id)
    return Message(id_, conversation_id, role, content if blocks is None else blocks, created_at, author, *rest)

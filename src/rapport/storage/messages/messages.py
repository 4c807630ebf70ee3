"""The message log: the truth about what was said. Rows are added, and what they say is never changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from psycopg.types.json import Jsonb

from rapport.domain.conversation import Author, Message
from rapport.domain.errors import InvalidInput
from rapport.domain.ids import is_id
from rapport.domain.synthetic import is_synthetic
from rapport.storage.database import Connection

log = structlog.get_logger()

COMMON_COLUMNS = "id, conversation_id, role, content, blocks, created_at, author_id, author_name"
COLUMNS = (
    f"{COMMON_COLUMNS}, reply_to_id, client_message_id, event_id, sources, metadata, summary_id,"
    " mentions, thread_id, is_bot, platform_id, context_snapshot"
)
PROMPT_COLUMNS = """reply_to_id, client_message_id, event_id, '[]'::jsonb AS sources,
    CASE WHEN metadata ? 'autonomous' THEN metadata ELSE '{}' END AS metadata, summary_id, mentions, thread_id, is_bot,
    platform_id, context_snapshot"""
"""What follows SPOKEN in a message as one of many that a model is told: of the metadata, which may be long, only what says
that the agent spoke unasked."""
TEXT_COLUMNS = f"""id, conversation_id, role,
    CASE WHEN content = '' AND blocks IS NOT NULL THEN '[picture]' ELSE content END AS content, NULL::jsonb AS blocks,
    created_at, author_id, author_name, {PROMPT_COLUMNS}"""
"""The same without pictures, which can be megabytes each."""
RECENT_MESSAGES = 10_000

# The conversation as the index has it, and only so: then no other index answers, and no walk of all that was ever sent there.
_BY_PART = f"""
SELECT {COLUMNS} FROM messages
WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND NOT synthetic AND id = ANY(ARRAY(
    SELECT message_id FROM outbox
    WHERE ARRAY[conversation_id] @> ARRAY[%(conversation)s::text] AND platform_ids @> %(parts)s::jsonb
      AND jsonb_array_length(platform_ids) > 1))
LIMIT 1
"""

# A backward walk of messages_order that ends at the first one found, and in any case; only that one's words are read.
_LATEST_REPLY = f"""
SELECT {COLUMNS} FROM messages
WHERE conversation_id = %(conversation)s AND id = (
    SELECT id FROM (
        SELECT id, owner_id, role, synthetic FROM messages WHERE conversation_id = %(conversation)s
        ORDER BY created_at DESC, id DESC LIMIT {RECENT_MESSAGES}) AS latest
    WHERE role = 'assistant' AND owner_id = %(owner)s AND NOT synthetic LIMIT 1)
"""

# A range of the primary key for each conversation: how much was said in them plays no part. (An id is of digits and capital
# letters, which every collation has in the same order.)
_BEGINNING_WITH = """
SELECT c.id, m.id FROM conversations c CROSS JOIN LATERAL (
    SELECT id FROM messages
    WHERE conversation_id = c.id AND id >= %(prefix)s AND id <= %(last)s AND starts_with(id, %(prefix)s)
      AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
    ORDER BY id LIMIT 5
) m
WHERE c.owner_id = %(owner)s AND (%(conversation)s::text IS NULL OR c.id = %(conversation)s)
LIMIT 5
"""


@dataclass(frozen=True, slots=True)
class Messages:
    connection: Connection

    async def list_before(
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
        return [to_message(row) for row in reversed(await found.fetchall())]

    async def get(self, owner_id: str, conversation_id: str, message_id: str) -> Message | None:
        """One that somebody said."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, message_id, owner_id),
        )
        row = await found.fetchone()
        return to_message(row) if row else None

    async def find_by_platform_id(self, owner_id: str, conversation_id: str, platform_id: str) -> Message | None:
        """The one that the platform calls so, or a part of it if it was sent in several."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages"
            " WHERE conversation_id = %s AND platform_id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, platform_id, owner_id),
        )
        row = await found.fetchone()
        if row is None:
            found = await self.connection.execute(
                _BY_PART,
                {"conversation": conversation_id, "owner": owner_id, "parts": Jsonb([platform_id])},
            )
            row = await found.fetchone()
        return to_message(row) if row else None

    async def get_thread_id(self, conversation_id: str, message_id: str) -> str | None:
        """The forum topic that a message was said in, if it was in one."""
        found = await self.connection.execute(
            "SELECT thread_id FROM messages WHERE conversation_id = %s AND id = %s", (conversation_id, message_id)
        )
        row = await found.fetchone()
        return row[0] if row else None

    async def find_latest_reply(self, owner_id: str, conversation_id: str) -> Message | None:
        """What the agent said last, if that is among the latest LATELY things that were said."""
        found = await self.connection.execute(
            _LATEST_REPLY.encode(), {"conversation": conversation_id, "owner": owner_id}
        )
        row = await found.fetchone()
        return to_message(row) if row else None

    async def find_by_prefix(
        self, owner_id: str, prefix: str, conversation_id: str | None = None
    ) -> list[tuple[str, str]]:
        """Conversation and id of messages that somebody said and whose ids begin so, there or anywhere: the first few."""
        found = await self.connection.execute(
            _BEGINNING_WITH,
            {
                "owner": owner_id,
                "conversation": conversation_id,
                "prefix": prefix,
                "last": prefix.ljust(26, "Z"),
            },
        )
        return [(row[0], row[1]) for row in await found.fetchall()]

    async def find_reply(self, owner_id: str, conversation_id: str, event_id: str) -> Message | None:
        """The one reply an event has, once it has been answered."""
        found = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND event_id = %s AND owner_id = %s",
            (conversation_id, event_id, owner_id),
        )
        row = await found.fetchone()
        return to_message(row) if row else None

    async def get_cursor(self, owner_id: str, conversation_id: str, message_id: str) -> tuple[datetime, str]:
        """Where a message that somebody said stands in its conversation: the cursor of a history page."""
        if is_id(message_id):
            found = await self.connection.execute(
                "SELECT created_at, id FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
                (conversation_id, message_id, owner_id),
            )
            if row := await found.fetchone():
                return row[0], row[1]
        raise InvalidInput(f"There is no message {message_id[:64]!r} in this conversation to page from.")


def to_message(row: tuple[Any, ...]) -> Message:
    """A row of COLUMNS, of SPOKEN and BRIEF, or of WORDS as a message."""
    id_, conversation_id, role, content, blocks, created_at, author_id, author_name, *rest = row
    author = None if author_id is None else Author(author_id, author_name or author_id)
    return Message(id_, conversation_id, role, content if blocks is None else blocks, created_at, author, *rest)

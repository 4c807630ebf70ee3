"""Read stored messages: the record of what people and the agent said.

A row stays as it was stored, with two exceptions: an edit on the platform changes `content` (`incoming.py`), and a follow-up
that was not sent is deleted (`outbox.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
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
_OTHER_COLUMNS = (
    "reply_to_id, client_message_id, event_id, sources, metadata, summary_id,"
    " mentions, thread_id, is_bot, platform_id, context_snapshot"
)
COLUMNS = f"{COMMON_COLUMNS}, {_OTHER_COLUMNS}"
"""The columns of a whole message; `to_message` reads them by name."""
PROMPT_COLUMNS = _OTHER_COLUMNS.replace("sources", "'[]'::jsonb AS sources").replace(
    "metadata", "CASE WHEN metadata ? 'autonomous' THEN metadata ELSE '{}' END AS metadata"
)
"""The columns after COMMON_COLUMNS of a message in a prompt. Metadata may be long: only that of a follow-up is read."""
TEXT_COLUMNS = f"""id, conversation_id, role,
    CASE WHEN content = '' AND blocks IS NOT NULL THEN '[picture]' ELSE content END AS content, NULL::jsonb AS blocks,
    created_at, author_id, author_name, {PROMPT_COLUMNS}"""
"""The columns of a message in a prompt without its pictures, which can be megabytes each."""
RECENT_MESSAGES = 10_000
"""`find_latest_reply` looks at this many of the newest messages."""

# The conversation is written as in outbox_parts, so that the planner uses that index and not a scan of the conversation.
_BY_PART = f"""
SELECT {COLUMNS} FROM messages
WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND NOT synthetic AND id = ANY(ARRAY(
    SELECT message_id FROM outbox
    WHERE ARRAY[conversation_id] @> ARRAY[%(conversation)s::text] AND platform_ids @> %(parts)s::jsonb
      AND jsonb_array_length(platform_ids) > 1))
LIMIT 1
"""

# A bounded backward scan of messages_order that stops at the first match. The inner query reads no text.
_LATEST_REPLY = f"""
SELECT {COLUMNS} FROM messages
WHERE conversation_id = %(conversation)s AND id = (
    SELECT id FROM (
        SELECT id, owner_id, role, synthetic FROM messages WHERE conversation_id = %(conversation)s
        ORDER BY created_at DESC, id DESC LIMIT {RECENT_MESSAGES}) AS latest
    WHERE role = 'assistant' AND owner_id = %(owner)s AND NOT synthetic LIMIT 1)
"""

# A range of the primary key per conversation, so the cost does not depend on its length. Ids are digits and capital letters,
# which every collation orders alike.
_BY_PREFIX = """
SELECT c.id AS conversation_id, m.id AS message_id FROM conversations c CROSS JOIN LATERAL (
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
    """Read the messages of an owner's conversations."""

    connection: Connection

    async def list_before(
        self, owner_id: str, conversation_id: str, *, limit: int, cursor: tuple[datetime, str] | None = None
    ) -> list[Message]:
        """Return the newest `limit` messages before the cursor, oldest first, without synthetic ones."""
        messages: list[Message] = []
        hidden = 0
        while len(messages) < limit:
            # Synthetic messages are rare: one more page is usually enough.
            page = await self._walk(owner_id, conversation_id, limit=limit - len(messages), cursor=cursor)
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
            messages = [*real, *messages]
            if len(real) == len(page):
                break
            cursor = (page[0].created_at, page[0].id)
        if hidden:
            log.info(f"Filtered {hidden} synthetic messages from thread history", conversationId=conversation_id)
        return messages

    async def _walk(
        self, owner_id: str, conversation_id: str, *, limit: int, cursor: tuple[datetime, str] | None
    ) -> list[Message]:
        # Both are one backward scan of messages_order. Two statements, so that each has a fixed plan.
        if cursor is None:
            result = await self.connection.execute(
                f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND owner_id = %s"
                " ORDER BY created_at DESC, id DESC LIMIT %s",
                (conversation_id, owner_id, limit),
            )
        else:
            result = await self.connection.execute(
                f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND owner_id = %s"
                " AND (created_at, id) < (%s, %s) ORDER BY created_at DESC, id DESC LIMIT %s",
                (conversation_id, owner_id, *cursor, limit),
            )
        return [to_message(row) for row in reversed(await result.fetchall())]

    async def get(self, owner_id: str, conversation_id: str, message_id: str) -> Message | None:
        """Return a message; None if there is none, or it is synthetic."""
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, message_id, owner_id),
        )
        row = await cursor.fetchone()
        return to_message(row) if row else None

    async def find_by_platform_id(self, owner_id: str, conversation_id: str, platform_id: str) -> Message | None:
        """Return the message with this platform id, or the one that was sent in several parts of which one has it."""
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages"
            " WHERE conversation_id = %s AND platform_id = %s AND owner_id = %s AND NOT synthetic",
            (conversation_id, platform_id, owner_id),
        )
        row = await cursor.fetchone()
        if row is None:
            cursor = await self.connection.execute(
                _BY_PART,
                {"conversation": conversation_id, "owner": owner_id, "parts": Jsonb([platform_id])},
            )
            row = await cursor.fetchone()
        return to_message(row) if row else None

    async def get_thread_id(self, conversation_id: str, message_id: str) -> str | None:
        """Return the forum topic of a message, if it is in one."""
        cursor = await self.connection.execute(
            "SELECT thread_id FROM messages WHERE conversation_id = %s AND id = %s", (conversation_id, message_id)
        )
        row = await cursor.fetchone()
        return row.thread_id if row else None

    async def find_latest_reply(self, owner_id: str, conversation_id: str) -> Message | None:
        """Return the agent's latest message, if it is among the newest RECENT_MESSAGES."""
        cursor = await self.connection.execute(
            _LATEST_REPLY.encode(), {"conversation": conversation_id, "owner": owner_id}
        )
        row = await cursor.fetchone()
        return to_message(row) if row else None

    async def find_by_prefix(
        self, owner_id: str, prefix: str, conversation_id: str | None = None
    ) -> list[tuple[str, str]]:
        """Return conversation id and message id of up to five messages whose ids begin with the prefix."""
        cursor = await self.connection.execute(
            _BY_PREFIX,
            {
                "owner": owner_id,
                "conversation": conversation_id,
                "prefix": prefix,
                "last": prefix.ljust(26, "Z"),
            },
        )
        return [(row.conversation_id, row.message_id) for row in await cursor.fetchall()]

    async def find_reply(self, owner_id: str, conversation_id: str, event_id: str) -> Message | None:
        """Return the reply to an event, if it is answered."""
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND event_id = %s AND owner_id = %s",
            (conversation_id, event_id, owner_id),
        )
        row = await cursor.fetchone()
        return to_message(row) if row else None

    async def get_cursor(self, owner_id: str, conversation_id: str, message_id: str) -> tuple[datetime, str]:
        """Return a message's position in its conversation, for paging; raise InvalidInput if there is no such message."""
        if is_id(message_id):
            cursor = await self.connection.execute(
                "SELECT created_at, id FROM messages WHERE conversation_id = %s AND id = %s AND owner_id = %s AND NOT synthetic",
                (conversation_id, message_id, owner_id),
            )
            if row := await cursor.fetchone():
                return row.created_at, row.id
        raise InvalidInput(f"There is no message {message_id[:64]!r} in this conversation to page from.")


# Every field of a message after its author is the column of the same name. One attrgetter, because a turn reads many rows.
_field_names = [field.name for field in fields(Message)]
_read_other_fields = attrgetter(*_field_names[_field_names.index("author") + 1 :])


def to_message(row: Any) -> Message:
    """Build a message from a row that has COLUMNS, COMMON_COLUMNS and PROMPT_COLUMNS, or TEXT_COLUMNS among its columns."""
    content = row.content if row.blocks is None else row.blocks
    author_id = row.author_id
    author = None if author_id is None else Author(author_id, row.author_name or author_id)
    return Message(row.id, row.conversation_id, row.role, content, row.created_at, author, *_read_other_fields(row))

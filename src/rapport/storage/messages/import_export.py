"""Import archived messages at their original times, and read conversations for export."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.chat_archive import KEY_PREFIX, TICK, ArchivedMessage, new_id_at, space_out
from rapport.domain.conversation import Message, extract_text
from rapport.domain.conversation_kind import ConversationKind
from rapport.storage.conversations.conversations import no_such_conversation
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message

# One branch per unique index: messages of an earlier import of this archive, the originals if the archive is an export of
# this conversation, and messages that a channel has stored already.
_KNOWN = """
SELECT client_message_id AS key, id, sha256(convert_to(content, 'UTF8')) AS digest FROM messages
WHERE conversation_id = %(conversation)s AND client_message_id = ANY(%(keys)s)
UNION ALL
SELECT %(prefix)s || id, id, sha256(convert_to(content, 'UTF8')) FROM messages
WHERE conversation_id = %(conversation)s AND id = ANY(%(ids)s)
UNION ALL
SELECT p.key, m.id, sha256(convert_to(m.content, 'UTF8')) FROM unnest(%(platform_ids)s::text[], %(platform_keys)s::text[]) AS p (id, key)
JOIN messages m ON m.conversation_id = %(conversation)s AND m.platform_id = p.id
"""

# One short scan of messages_order for each second that an archived message has: the time between is not read.
_TAKEN = """
SELECT m.created_at FROM unnest(%(seconds)s::timestamptz[]) AS wanted (second)
CROSS JOIN LATERAL (
    SELECT created_at FROM messages
    WHERE conversation_id = %(conversation)s AND created_at >= second AND created_at < second + interval '2 seconds'
) m
"""

# COPY is ten times as fast as single inserts. It cannot conflict: the importer holds the conversation's lock.
_COPY = """
COPY messages (conversation_id, id, owner_id, role, author_id, author_name, content, blocks, reply_to_id,
               client_message_id, sources, metadata, created_at, mentions, thread_id, is_bot, platform_id,
               context_snapshot) FROM STDIN
"""

# Only imported messages: they have the archive's key as `client_message_id` and no event. Live messages are not changed.
# `following` is the next message, with its role if it was imported too.
_SUSPECTS = f"""
SELECT {", ".join("m." + column.strip() for column in COLUMNS.split(","))}, following.id AS following_id, following.role AS following_role
FROM messages m LEFT JOIN LATERAL (
    SELECT id, CASE WHEN starts_with(client_message_id, %(key)s) THEN role END AS role FROM messages n
    WHERE n.conversation_id = m.conversation_id AND n.owner_id = m.owner_id AND n.role <> 'system-summary'
      AND (n.created_at, n.id) > (m.created_at, m.id)
    ORDER BY n.created_at, n.id LIMIT 1
) following ON true
WHERE m.conversation_id = %(conversation)s AND m.owner_id = %(owner)s AND m.role = 'user' AND NOT m.synthetic
  AND starts_with(ltrim(m.content, E' \\t\\r\\n'), %(marker)s) AND starts_with(m.client_message_id, %(key)s)
  AND NOT EXISTS (SELECT FROM events e WHERE e.conversation_id = m.conversation_id AND e.id = m.id)
  AND NOT EXISTS (SELECT FROM messages r WHERE r.conversation_id = m.conversation_id AND r.event_id = m.id)
ORDER BY m.created_at, m.id
FOR UPDATE OF m
"""

_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of an archive's messages by the outcome of their import."""

    added: int = 0
    known: int = 0
    """Messages that were stored already."""
    changed: int = 0
    """Known messages whose text differs from the stored text, which stays."""
    loose: int = 0
    """Added messages that reply to a message that is not stored."""

    def __add__(self, other: ImportCounts) -> ImportCounts:
        return ImportCounts(
            self.added + other.added,
            self.known + other.known,
            self.changed + other.changed,
            self.loose + other.loose,
        )


@dataclass(frozen=True, slots=True)
class Archives:
    """Store and read the messages of archives."""

    connection: Connection

    async def create_conversation(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        agent_id: str,
        kind: ConversationKind,
        title: str | None,
        at: datetime,
    ) -> None:
        """Create the conversation of an archive, dated by its first message, unless it exists."""
        # A concurrent insert waits for the first one's commit and then uses that conversation.
        await self.connection.execute(
            "INSERT INTO conversations (id, owner_id, agent_id, kind, channel, title, created_at, last_at)"
            " VALUES (%s, %s, %s, %s, 'api', %s, %s, %s) ON CONFLICT (id) DO NOTHING",
            (conversation_id, owner_id, agent_id, kind, title, at, at),
        )

    async def import_messages(
        self, owner_id: str, conversation_id: str, messages: Sequence[ArchivedMessage], *, prefix: str
    ) -> ImportCounts:
        """Store messages, oldest first, at their original times; skip known ones. Call it in a transaction.

        A message whose time is taken is moved by microseconds. No event is made, and `user_message_count` stays.
        """
        # Lock the conversation first, as every writer does: then no other writer takes a time or a key meanwhile.
        result = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s AND owner_id = %s FOR NO KEY UPDATE",
            (conversation_id, owner_id),
        )
        if await result.fetchone() is None:
            raise no_such_conversation(conversation_id)
        stored = await self._find_known(conversation_id, messages, prefix=prefix)
        new_messages = [message for message in messages if prefix + message.row_id not in stored]
        known_messages = [message for message in messages if prefix + message.row_id in stored]
        changed = sum(stored[prefix + message.row_id][1] != _digest(message) for message in known_messages)
        if not new_messages:
            return ImportCounts(known=len(known_messages), changed=changed)
        ids = {key: message_id for key, (message_id, _) in stored.items()}
        times = space_out(
            (message.created_at for message in new_messages),
            await self._load_taken_times(conversation_id, new_messages),
        )
        ids |= {prefix + message.row_id: new_id_at(time) for message, time in zip(new_messages, times, strict=True)}
        parents = [None if message.reply_to is None else ids.get(prefix + message.reply_to) for message in new_messages]
        async with self.connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for message, time, parent in zip(new_messages, times, parents, strict=True):
                key, author = prefix + message.row_id, message.author
                await copy.write_row(
                    (
                        conversation_id,
                        ids[key],
                        owner_id,
                        message.role,
                        author and author.id,
                        author and author.name,
                        extract_text(message.content),
                        None if isinstance(message.content, str) else Jsonb(list(message.content)),
                        parent,
                        key,
                        Jsonb(list(message.sources)),
                        Jsonb(dict(message.metadata)),
                        time,
                        list(message.mentions),
                        message.thread_id,
                        message.is_bot or message.role == "assistant",
                        message.platform_id,
                        Jsonb(dict(message.context_snapshot)) if parent is None and message.context_snapshot else None,
                    )
                )
        await self.connection.execute(
            "UPDATE conversations SET last_at = greatest(last_at, %s) WHERE id = %s", (times[-1], conversation_id)
        )
        # Embed the group again from here; existing vectors stay. `imports` tells a process that is embedding now that there
        # are messages it has not seen.
        await self.connection.execute(
            "UPDATE embedding_progress SET embedded_until = least(embedded_until, %s), imports = imports + 1 WHERE conversation_id = %s",
            (times[0] - TICK, conversation_id),
        )
        replies = sum(message.reply_to is not None for message in new_messages)
        linked = sum(parent is not None for parent in parents)
        return ImportCounts(len(new_messages), len(known_messages), changed, replies - linked)

    async def _find_known(
        self, conversation_id: str, messages: Sequence[ArchivedMessage], *, prefix: str
    ) -> dict[str, tuple[str, bytes]]:
        """Return, by key, the id and text digest of those messages, and of the messages they reply to, that are stored."""
        row_ids = {message.row_id for message in messages} | {
            message.reply_to for message in messages if message.reply_to is not None
        }
        keys_by_platform_id = {m.platform_id: prefix + m.row_id for m in messages if m.platform_id is not None}
        id_prefixes = {m.platform_id.removesuffix(m.row_id) for m in messages if m.platform_id is not None}
        if len(id_prefixes) == 1 and all(
            m.platform_id in (None, *(id_prefix + m.row_id for id_prefix in id_prefixes)) for m in messages
        ):
            # The archive's ids are the platform's ids without their common prefix.
            keys_by_platform_id |= {id_prefix + name: prefix + name for id_prefix in id_prefixes for name in row_ids}
        cursor = await self.connection.execute(
            _KNOWN,
            {
                "conversation": conversation_id,
                "prefix": prefix,
                "keys": [prefix + name for name in row_ids],
                "ids": list(row_ids),
                "platform_ids": list(keys_by_platform_id),
                "platform_keys": list(keys_by_platform_id.values()),
            },
        )
        return {row.key: (row.id, row.digest) for row in await cursor.fetchall()}

    async def _load_taken_times(self, conversation_id: str, messages: Sequence[ArchivedMessage]) -> set[datetime]:
        """Return the times of stored messages near those of the given ones."""
        seconds = {message.created_at.replace(microsecond=0) for message in messages}
        cursor = await self.connection.execute(_TAKEN, {"conversation": conversation_id, "seconds": list(seconds)})
        return {row.created_at for row in await cursor.fetchall()}

    async def list_after(
        self, owner_id: str, conversation_id: str, *, limit: int, cursor: tuple[datetime, str] | None = None
    ) -> list[Message]:
        """Return the first `limit` messages after the cursor, oldest first, without summaries."""
        # A forward scan of messages_order from the cursor: every page costs the same.
        since, last_id = cursor or (_BEFORE_ALL, "")
        result = await self.connection.execute(
            f"SELECT {COLUMNS} FROM messages WHERE conversation_id = %s AND owner_id = %s AND role <> 'system-summary'"
            " AND (created_at, id) > (%s, %s) ORDER BY created_at, id LIMIT %s",
            (conversation_id, owner_id, since, last_id, limit),
        )
        return [to_message(row) for row in await result.fetchall()]

    async def list_conversation_ids(self, owner_id: str) -> list[str]:
        """Return the ids of the owner's conversations."""
        cursor = await self.connection.execute("SELECT id FROM conversations WHERE owner_id = %s", (owner_id,))
        return [row.id for row in await cursor.fetchall()]

    async def find_suspects(
        self, owner_id: str, conversation_id: str, *, marker: str
    ) -> list[tuple[Message, str | None]]:
        """Return imported user messages that begin with the marker, each with the id of the agent's imported message right
        after it, if there is one.

        The rows stay locked until the transaction ends.
        """
        cursor = await self.connection.execute(
            _SUSPECTS, {"conversation": conversation_id, "owner": owner_id, "marker": marker, "key": KEY_PREFIX}
        )
        return [
            (to_message(row), row.following_id if row.following_role == "assistant" else None)
            for row in await cursor.fetchall()
        ]

    async def tag(self, owner_id: str, conversation_id: str, message_id: str, tags: Mapping[str, Any]) -> None:
        """Add to the metadata of a message."""
        await self.connection.execute(
            "UPDATE messages SET metadata = metadata || %s WHERE conversation_id = %s AND id = %s AND owner_id = %s",
            (Jsonb(dict(tags)), conversation_id, message_id, owner_id),
        )


def _digest(message: ArchivedMessage) -> bytes:
    return hashlib.sha256(extract_text(message.content).encode()).digest()

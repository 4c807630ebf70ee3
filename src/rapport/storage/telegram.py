"""Store Telegram's updates until they are processed, the mapping of chats to conversations, usernames and rejected chats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.conversation_kind import ConversationKind
from rapport.storage.database import Connection
from rapport.storage.messages.incoming import CLOCK_SKEW_SECONDS

UPDATE_RETENTION_DAYS = 3
"""The ids of processed updates are kept this long. Telegram repeats none that is older than a day."""
MAX_REJECTED_CHATS = 50
"""Maximum number of rows. Anybody may write to the bot, so the table needs a limit."""

# The order is Telegram's numbering, not that of arrival. Updates of one chat only, so that chats are processed separately.
_WAITING = """
SELECT u.update_id, u.chat_id, u.payload, u.attempts FROM telegram_updates u JOIN (
    SELECT chat_id FROM telegram_updates
    WHERE bot_id = %(bot)s AND done_at IS NULL AND chat_id <> ALL(%(except_for)s) ORDER BY update_id LIMIT 1
) AS head USING (chat_id)
WHERE u.bot_id = %(bot)s AND u.done_at IS NULL ORDER BY u.update_id LIMIT %(limit)s
"""

_REJECT = """
INSERT INTO telegram_rejected_chats (bot_id, chat_id, kind, name, message_id)
VALUES (%(bot)s, %(chat)s, %(kind)s, %(name)s, %(message)s)
ON CONFLICT (bot_id, chat_id) DO UPDATE SET times = least(telegram_rejected_chats.times + 1, 1000000), name = excluded.name,
    last_at = clock_timestamp(), message_id = greatest(telegram_rejected_chats.message_id, excluded.message_id)
"""

_DELETE_OLD_REJECTED = """
DELETE FROM telegram_rejected_chats WHERE bot_id = %(bot)s AND chat_id NOT IN (
    SELECT chat_id FROM telegram_rejected_chats WHERE bot_id = %(bot)s ORDER BY last_at DESC LIMIT %(kept)s)
"""

# A group and the supergroup it became are one conversation. If a message of the supergroup came before the notice of the
# migration, it has a conversation of its own already; then the old mapping stays.
_MIGRATE = """
UPDATE telegram_chats SET chat_id = %(new)s WHERE bot_id = %(bot)s AND chat_id = %(old)s
  AND NOT EXISTS (SELECT FROM telegram_chats WHERE bot_id = %(bot)s AND chat_id = %(new)s)
"""
_RECORD_MIGRATION = """
INSERT INTO telegram_chat_migrations (bot_id, chat_id, first_id) VALUES (%(bot)s, %(new)s, %(old)s) ON CONFLICT DO NOTHING
"""

# By chat or by conversation. LEFT JOIN, because most chats never migrated.
_MAPPED_CHAT = """
SELECT c.chat_id, c.conversation_id, c.owner_id, coalesce(m.first_id, c.chat_id) AS first_id
FROM telegram_chats c LEFT JOIN telegram_chat_migrations m USING (bot_id, chat_id) WHERE c.bot_id = %s AND c.{} = %s
"""

# The bot's username is the agent's handle. Unchanged rows are not written.
_RENAME_BOT = """
UPDATE conversations SET handle = %(name)s FROM telegram_chats c
WHERE c.bot_id = %(bot)s AND conversations.id = c.conversation_id AND handle IS DISTINCT FROM %(name)s
"""

# The platform's ids of a chat's messages, of ours also every part. The flag says that it certainly existed before the given
# message was queued: it was received before, or its date is earlier by more than the clocks can differ.
_QUEUED_AT = "SELECT created_at FROM outbox WHERE conversation_id = %(conversation)s AND message_id = %(message)s"
_RECEIVED = f"""
SELECT chat_id || '/' || message_id AS platform_id, received_at < queued.at AS was_before FROM telegram_updates, ({_QUEUED_AT}) AS queued (at)
WHERE bot_id = %(bot)s AND {{where}} AND message_id IS NOT NULL
  AND (done_at IS NULL OR done_at > queued.at - interval '1 hour')
"""
# Retention deletes sent outbox rows, but none with several parts; of the others messages.platform_id keeps the id. The id of
# an old notice is lost with its row: that matters only if no message was stored after the notice.
_PLATFORM_IDS = f"""
{_RECEIVED.format(where="chat_id = %(chat)s")}
UNION ALL
SELECT platform_id, created_at < ({_QUEUED_AT}) - interval '{CLOCK_SKEW_SECONDS} seconds' FROM (
    SELECT platform_id, created_at FROM messages
    WHERE conversation_id = %(conversation)s AND platform_id IS NOT NULL ORDER BY created_at DESC, id DESC LIMIT 500
) said
UNION ALL
SELECT jsonb_array_elements_text(platform_ids), false FROM (
    SELECT platform_ids FROM outbox WHERE conversation_id = %(conversation)s AND message_id <> %(message)s
    ORDER BY seq DESC LIMIT 500
) sent
""".encode()

# The same for the bot's other chats with the same numbering, from an hour before on: retention deletes none of these rows.
# Of rejected chats only the latest number is known.
_PLATFORM_IDS_ELSEWHERE = f"""
{_RECEIVED.format(where="chat_id > %(shared_above)s AND chat_id <> %(chat)s")}
UNION ALL
(SELECT jsonb_array_elements_text(platform_ids), false
 FROM telegram_chats JOIN outbox USING (conversation_id), ({_QUEUED_AT}) AS queued (at)
 WHERE bot_id = %(bot)s AND chat_id > %(shared_above)s AND conversation_id <> %(conversation)s
   AND created_at > queued.at - interval '1 hour')
UNION ALL
SELECT chat_id || '/' || message_id, false FROM telegram_rejected_chats
WHERE bot_id = %(bot)s AND chat_id > %(shared_above)s AND message_id IS NOT NULL
""".encode()

# A message with an event is answered. Candidates are found by their platform ids, which are consecutive in an album.
# Retention deletes events after days; the messages of an album arrive within seconds of each other.
_ALBUM = """
SELECT bool_or(message ? 'caption') AS has_caption FROM (
    SELECT coalesce(m.payload -> 'message', m.payload -> 'edited_message') AS message
    FROM messages m JOIN events e ON e.conversation_id = m.conversation_id AND e.id = m.id
    WHERE m.conversation_id = %(conversation)s AND m.platform_id = ANY(%(names)s)
) answered
WHERE message ->> 'media_group_id' = %(album)s
"""

SHARED_NUMBERS_ABOVE = -1_000_000_000_000
"""Chats with ids above it share one numbering of messages per bot. Supergroups and channels, below it, have their own."""


@dataclass(frozen=True, slots=True)
class WaitingUpdate:
    """An update that is not processed yet."""

    update_id: int
    chat_id: int
    payload: str
    attempts: int


@dataclass(frozen=True, slots=True)
class MappedChat:
    """A Telegram chat and its conversation."""

    chat_id: int
    conversation_id: str
    owner_id: str
    first_id: int
    """The first id of the chat: a group that becomes a supergroup gets a new one."""


@dataclass(frozen=True, slots=True)
class RejectedChat:
    """A chat that may not use the bot."""

    chat_id: int
    kind: ConversationKind
    name: str
    times: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class TelegramUpdates:
    connection: Connection
    bot_id: int

    async def store(self, update_id: int, chat_id: int, payload: str, *, message_id: int | None) -> bool:
        """Store an update; return False if it was known. `message_id` is the number of its message, if the bot did not write it."""
        cursor = await self.connection.execute(
            "INSERT INTO telegram_updates (bot_id, update_id, chat_id, payload, message_id) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (self.bot_id, update_id, chat_id, payload, message_id),
        )
        return cursor.rowcount == 1

    async def list_waiting(self, limit: int, *, except_for: Sequence[int] = ()) -> list[WaitingUpdate]:
        """Return the unprocessed updates of the chat with the oldest one, in order, leaving out chats of `except_for`."""
        cursor = await self.connection.execute(
            _WAITING, {"bot": self.bot_id, "limit": limit, "except_for": list(except_for)}
        )
        return [WaitingUpdate(row.update_id, row.chat_id, row.payload, row.attempts) for row in await cursor.fetchall()]

    async def list_of_chat(self, chat_id: int, *, limit: int) -> list[str]:
        """Return the payloads of one chat's unprocessed updates, in order."""
        cursor = await self.connection.execute(
            "SELECT payload FROM telegram_updates WHERE bot_id = %s AND chat_id = %s AND done_at IS NULL"
            " ORDER BY update_id LIMIT %s",
            (self.bot_id, chat_id, limit),
        )
        return [row.payload for row in await cursor.fetchall()]

    async def is_waiting(self, chat_id: int) -> bool:
        """Return True if the chat has an unprocessed update: only updates of permitted chats are stored."""
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM telegram_updates WHERE bot_id = %s AND chat_id = %s AND done_at IS NULL) AS is_waiting",
            (self.bot_id, chat_id),
        )
        row = await cursor.fetchone()
        return row is not None and row.is_waiting

    async def mark_done(self, update_id: int, *, error: str | None = None) -> None:
        """Record that an update is processed. With `error` it could not be, and its payload is kept for diagnosis."""
        await self.connection.execute(
            "UPDATE telegram_updates SET done_at = clock_timestamp(), error = %(error)s,"
            " payload = CASE WHEN %(error)s::text IS NOT NULL THEN payload END"
            " WHERE bot_id = %(bot)s AND update_id = %(update)s",
            {"error": error, "bot": self.bot_id, "update": update_id},
        )

    async def mark_failed(self, update_id: int, *, error: str) -> None:
        """Count a failed attempt to process an update."""
        await self.connection.execute(
            "UPDATE telegram_updates SET attempts = attempts + 1, error = %s WHERE bot_id = %s AND update_id = %s",
            (error, self.bot_id, update_id),
        )

    async def delete_old(self) -> None:
        """Delete processed updates that Telegram can't repeat any more."""
        await self.connection.execute(
            "DELETE FROM telegram_updates WHERE bot_id = %s AND done_at < clock_timestamp() - %s * interval '1 day'",
            (self.bot_id, UPDATE_RETENTION_DAYS),
        )

    async def reject_chat(self, chat_id: int, *, kind: str, name: str, message_id: int | None) -> None:
        """Record a rejected chat and its newest message number; only the latest chats are kept."""
        values = {"bot": self.bot_id, "chat": chat_id, "kind": kind, "name": name, "message": message_id}
        values |= {"kept": MAX_REJECTED_CHATS}
        await self.connection.execute(_REJECT, values)
        await self.connection.execute(_DELETE_OLD_REJECTED, values)

    async def list_rejected_chats(self) -> Sequence[RejectedChat]:
        """Return the rejected chats, the latest first."""
        cursor = await self.connection.execute(
            "SELECT chat_id, kind, name, times, last_at FROM telegram_rejected_chats WHERE bot_id = %s ORDER BY last_at DESC",
            (self.bot_id,),
        )
        return [
            RejectedChat(row.chat_id, row.kind, row.name, row.times, row.last_at) for row in await cursor.fetchall()
        ]


@dataclass(frozen=True, slots=True)
class ChatMapping:
    connection: Connection
    bot_id: int

    async def find_by_chat(self, chat_id: int) -> MappedChat | None:
        return await self._find("chat_id", chat_id)

    async def find_by_conversation(self, conversation_id: str) -> MappedChat | None:
        return await self._find("conversation_id", conversation_id)

    async def get_first_id(self, chat_id: int) -> int:
        """Return the first id of a chat, also of one without a conversation."""
        cursor = await self.connection.execute(
            "SELECT first_id FROM telegram_chat_migrations WHERE bot_id = %s AND chat_id = %s", (self.bot_id, chat_id)
        )
        row = await cursor.fetchone()
        return row.first_id if row else chat_id

    async def map_chat(self, chat_id: int, conversation_id: str, owner_id: str) -> None:
        """Map the chat to that conversation from now on."""
        await self.connection.execute(
            "INSERT INTO telegram_chats (bot_id, chat_id, conversation_id, owner_id) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (bot_id, chat_id) DO UPDATE SET conversation_id = excluded.conversation_id,"
            " owner_id = excluded.owner_id",
            (self.bot_id, chat_id, conversation_id, owner_id),
        )

    async def rename_bot(self, username: str) -> None:
        """Set the bot's username as the agent's handle in all of its conversations."""
        await self.connection.execute(_RENAME_BOT, {"bot": self.bot_id, "name": username})

    async def list_platform_ids(self, chat_id: int, conversation_id: str, message_id: str) -> list[tuple[str, bool]]:
        """Return the platform ids of the chat's messages, each with True if it certainly existed before that one was queued."""
        return await self._list_platform_ids(_PLATFORM_IDS, chat_id, conversation_id, message_id)

    async def list_platform_ids_elsewhere(
        self, chat_id: int, conversation_id: str, message_id: str
    ) -> list[tuple[str, bool]]:
        """Return the same for other chats that share the numbering, from shortly before that message on."""
        return await self._list_platform_ids(_PLATFORM_IDS_ELSEWHERE, chat_id, conversation_id, message_id)

    async def _list_platform_ids(
        self, statement: bytes, chat_id: int, conversation_id: str, message_id: str
    ) -> list[tuple[str, bool]]:
        cursor = await self.connection.execute(
            statement,
            {
                "bot": self.bot_id,
                "shared_above": SHARED_NUMBERS_ABOVE,
                "chat": chat_id,
                "conversation": conversation_id,
                "message": message_id,
            },
        )
        return [(row.platform_id, row.was_before) for row in await cursor.fetchall()]

    async def find_answered_in_album(self, conversation_id: str, album: str, *, among: Sequence[str]) -> bool | None:
        """Return whether the answered message of an album has a caption; None if none of these messages is answered."""
        cursor = await self.connection.execute(
            _ALBUM, {"conversation": conversation_id, "album": album, "names": list(among)}
        )
        row = await cursor.fetchone()
        return row.has_caption if row else None

    async def migrate_chat(self, old: int, new: int) -> bool:
        """Give the chat its new id; return False if the old chat has no conversation or the new one has. Call it in a transaction."""
        cursor = await self.connection.execute(_MIGRATE, {"bot": self.bot_id, "old": old, "new": new})
        if cursor.rowcount == 1:
            await self.record_migration(old, new)
        return cursor.rowcount == 1

    async def record_migration(self, old: int, new: int) -> bool:
        """Record the previous id of a chat, also without a conversation; return False if it was recorded before."""
        cursor = await self.connection.execute(_RECORD_MIGRATION, {"bot": self.bot_id, "old": old, "new": new})
        return cursor.rowcount == 1

    async def _find(self, column: str, value: object) -> MappedChat | None:
        cursor = await self.connection.execute(_MAPPED_CHAT.format(column).encode(), (self.bot_id, value))
        row = await cursor.fetchone()
        return MappedChat(row.chat_id, row.conversation_id, row.owner_id, row.first_id) if row else None


@dataclass(frozen=True, slots=True)
class TelegramUsernames:
    connection: Connection

    async def store(self, username: str, user_id: int) -> None:
        """Store whose username it is. An unchanged row is not written."""
        await self.connection.execute(
            "INSERT INTO telegram_usernames (username, user_id) VALUES (%s, %s)"
            " ON CONFLICT (username) DO UPDATE SET user_id = excluded.user_id WHERE telegram_usernames.user_id <> excluded.user_id",
            (username.lower(), user_id),
        )

    async def find_user_ids(self, usernames: Sequence[str]) -> dict[str, int]:
        """Return the user ids of the known usernames among these, by lower-case username."""
        cursor = await self.connection.execute(
            "SELECT username, user_id FROM telegram_usernames WHERE username = ANY(%s)",
            ([name.lower() for name in usernames],),
        )
        return {row.username: row.user_id for row in await cursor.fetchall()}

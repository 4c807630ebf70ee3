"""What Telegram has given us: updates until they are worked through, chats as conversations, names, and who was refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.conversation_kind import ConversationKind
from rapport.storage.database import Connection
from rapport.storage.messages.incoming import CLOCK_SKEW_SECONDS

UPDATE_RETENTION_DAYS = 3
"""So long the numbers of updates are known. Telegram repeats none that is older than a day."""
MAX_REJECTED_CHATS = 50
"""Chats that were not let in: anybody may try, and what is kept of it must not grow."""

# In the order in which Telegram numbers them, whatever the order in which they came; of one chat, so that each can be gone on
# with by itself.
_WAITING = """
SELECT u.update_id, u.chat_id, u.payload, u.attempts FROM telegram_updates u JOIN (
    SELECT chat_id FROM telegram_updates
    WHERE bot_id = %(bot)s AND done_at IS NULL AND chat_id <> ALL(%(except_for)s) ORDER BY update_id LIMIT 1
) AS head USING (chat_id)
WHERE u.bot_id = %(bot)s AND u.done_at IS NULL ORDER BY u.update_id LIMIT %(limit)s
"""

_REFUSE = """
INSERT INTO telegram_rejected_chats (bot_id, chat_id, kind, name, message_id)
VALUES (%(bot)s, %(chat)s, %(kind)s, %(name)s, %(message)s)
ON CONFLICT (bot_id, chat_id) DO UPDATE SET times = least(telegram_rejected_chats.times + 1, 1000000), name = excluded.name,
    last_at = clock_timestamp(), message_id = greatest(telegram_rejected_chats.message_id, excluded.message_id)
"""

_FORGET_REFUSED = """
DELETE FROM telegram_rejected_chats WHERE bot_id = %(bot)s AND chat_id NOT IN (
    SELECT chat_id FROM telegram_rejected_chats WHERE bot_id = %(bot)s ORDER BY last_at DESC LIMIT %(kept)s)
"""

# The group and the supergroup that it has become are one conversation. Both sides of the move tell of it, and a message may
# have come from the new side first: then that one has begun a conversation of its own, and the old one stays as it is.
_MOVE = """
UPDATE telegram_chats SET chat_id = %(new)s WHERE bot_id = %(bot)s AND chat_id = %(old)s
  AND NOT EXISTS (SELECT FROM telegram_chats WHERE bot_id = %(bot)s AND chat_id = %(new)s)
"""
_NOTE_MOVE = """
INSERT INTO telegram_chat_migrations (bot_id, chat_id, first_id) VALUES (%(bot)s, %(new)s, %(old)s) ON CONFLICT DO NOTHING
"""

# By its chat or by its conversation; what isn't a conversation may have moved all the same.
_PLACE = """
SELECT c.chat_id, c.conversation_id, c.owner_id, coalesce(m.first_id, c.chat_id)
FROM telegram_chats c LEFT JOIN telegram_chat_migrations m USING (bot_id, chat_id) WHERE c.bot_id = %s AND c.{} = %s
"""

# The agent is called as the bot is.
_RENAME_BOT = """
UPDATE conversations SET handle = %(name)s FROM telegram_chats c
WHERE c.bot_id = %(bot)s AND conversations.id = c.conversation_id AND handle IS DISTINCT FROM %(name)s
"""

# What the platform calls the messages of a chat, those of others and our own with all their parts; and of each whether it
# was surely there before that one was to be sent. Of what others said, all that has come since an hour before, read or not:
# what had come by then was there. And the latest of the conversation, if that was long ago: by their dates, well before,
# because clocks differ.
_SENT_AT = "SELECT created_at FROM outbox WHERE conversation_id = %(conversation)s AND message_id = %(message)s"
_RECEIVED = f"""
SELECT chat_id || '/' || message_id, received_at < doubt.at FROM telegram_updates, ({_SENT_AT}) AS doubt (at)
WHERE bot_id = %(bot)s AND {{where}} AND message_id IS NOT NULL
  AND (done_at IS NULL OR done_at > doubt.at - interval '1 hour')
"""
_NUMBERS = f"""
{_RECEIVED.format(where="chat_id = %(chat)s")}
UNION ALL
SELECT platform_id, created_at < ({_SENT_AT}) - interval '{CLOCK_SKEW_SECONDS} seconds' FROM (
    SELECT platform_id, created_at FROM messages
    WHERE conversation_id = %(conversation)s AND platform_id IS NOT NULL ORDER BY created_at DESC, id DESC LIMIT 500
) said
UNION ALL
SELECT jsonb_array_elements_text(platform_ids), false FROM (
    SELECT platform_ids FROM outbox WHERE conversation_id = %(conversation)s AND message_id <> %(message)s
    ORDER BY seq DESC LIMIT 500
) sent
""".encode()

# The same of the bot's other chats that share their numbers with this one, from an hour before it on; of those that are not
# let in, the latest.
_NUMBERS_ELSEWHERE = f"""
{_RECEIVED.format(where="chat_id > %(own_numbers)s AND chat_id <> %(chat)s")}
UNION ALL
(SELECT jsonb_array_elements_text(platform_ids), false
 FROM telegram_chats JOIN outbox USING (conversation_id), ({_SENT_AT}) AS doubt (at)
 WHERE bot_id = %(bot)s AND chat_id > %(own_numbers)s AND conversation_id <> %(conversation)s
   AND created_at > doubt.at - interval '1 hour')
UNION ALL
SELECT chat_id || '/' || message_id, false FROM telegram_rejected_chats
WHERE bot_id = %(bot)s AND chat_id > %(own_numbers)s AND message_id IS NOT NULL
""".encode()

# Whether a message of an album is answered, and then whether it has words: known by names near to one of them, because
# messages of an album have numbers near to each other.
_ALBUM = """
SELECT bool_or(told ? 'caption') FROM (
    SELECT coalesce(m.payload -> 'message', m.payload -> 'edited_message') AS told
    FROM messages m JOIN events e ON e.conversation_id = m.conversation_id AND e.id = m.id
    WHERE m.conversation_id = %(conversation)s AND m.platform_id = ANY(%(names)s)
) answered
WHERE told ->> 'media_group_id' = %(album)s
"""

SHARED_NUMBERS_ABOVE = -1_000_000_000_000
"""Chats whose ids lie below it, supergroups and channels, number their messages by themselves; all others of a bot share."""


@dataclass(frozen=True, slots=True)
class WaitingUpdate:
    """An update that has not been worked through."""

    update_id: int
    chat_id: int
    payload: str
    attempts: int


@dataclass(frozen=True, slots=True)
class MappedChat:
    """A chat of Telegram, and the conversation that it is here."""

    chat_id: int
    conversation_id: str
    owner_id: str
    first_id: int
    """The id that it had at first: a group that becomes a supergroup gets another."""


@dataclass(frozen=True, slots=True)
class RejectedChat:
    """A chat that wanted to talk and was not let in."""

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
        """Keep an update; False if it was known. `message_id` is the number of what somebody else than the bot has said."""
        found = await self.connection.execute(
            "INSERT INTO telegram_updates (bot_id, update_id, chat_id, payload, message_id) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (self.bot_id, update_id, chat_id, payload, message_id),
        )
        return found.rowcount == 1

    async def list_waiting(self, limit: int, *, except_for: Sequence[int] = ()) -> list[WaitingUpdate]:
        """What has not been worked through of the chat that waits longest, but for those: the oldest number first."""
        found = await self.connection.execute(
            _WAITING, {"bot": self.bot_id, "limit": limit, "except_for": list(except_for)}
        )
        return [WaitingUpdate(*row) for row in await found.fetchall()]

    async def list_of_chat(self, chat_id: int, *, limit: int) -> list[str]:
        """What has not been worked through of one chat: the oldest number first."""
        found = await self.connection.execute(
            "SELECT payload FROM telegram_updates WHERE bot_id = %s AND chat_id = %s AND done_at IS NULL"
            " ORDER BY update_id LIMIT %s",
            (self.bot_id, chat_id, limit),
        )
        return [row[0] for row in await found.fetchall()]

    async def is_waiting(self, chat_id: int) -> bool:
        """Whether something from that chat waits: what is stored was let in."""
        found = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM telegram_updates WHERE bot_id = %s AND chat_id = %s AND done_at IS NULL)",
            (self.bot_id, chat_id),
        )
        row = await found.fetchone()
        return row is not None and row[0]

    async def mark_done(self, update_id: int, *, error: str | None = None) -> None:
        """It has been worked through, or can't be: then its words stay with the number, for whoever looks into it."""
        await self.connection.execute(
            "UPDATE telegram_updates SET done_at = clock_timestamp(), error = %(error)s,"
            " payload = CASE WHEN %(error)s::text IS NOT NULL THEN payload END"
            " WHERE bot_id = %(bot)s AND update_id = %(update)s",
            {"error": error, "bot": self.bot_id, "update": update_id},
        )

    async def mark_failed(self, update_id: int, *, error: str) -> None:
        """It could not be worked through now."""
        await self.connection.execute(
            "UPDATE telegram_updates SET attempts = attempts + 1, error = %s WHERE bot_id = %s AND update_id = %s",
            (error, self.bot_id, update_id),
        )

    async def delete_old(self) -> None:
        """Drop the numbers that can't come again."""
        await self.connection.execute(
            "DELETE FROM telegram_updates WHERE bot_id = %s AND done_at < clock_timestamp() - %s * interval '1 day'",
            (self.bot_id, UPDATE_RETENTION_DAYS),
        )

    async def reject_chat(self, chat_id: int, *, kind: str, name: str, message_id: int | None) -> None:
        """Remember that a chat was not let in, and the number of what was said there: the latest of them are."""
        values = {"bot": self.bot_id, "chat": chat_id, "kind": kind, "name": name, "message": message_id}
        values |= {"kept": MAX_REJECTED_CHATS}
        await self.connection.execute(_REFUSE, values)
        await self.connection.execute(_FORGET_REFUSED, values)

    async def list_rejected_chats(self) -> Sequence[RejectedChat]:
        """Who was not let in lately, the latest first."""
        found = await self.connection.execute(
            "SELECT chat_id, kind, name, times, last_at FROM telegram_rejected_chats WHERE bot_id = %s ORDER BY last_at DESC",
            (self.bot_id,),
        )
        return [RejectedChat(*row) for row in await found.fetchall()]


@dataclass(frozen=True, slots=True)
class ChatMapping:
    connection: Connection
    bot_id: int

    async def find_by_chat(self, chat_id: int) -> MappedChat | None:
        return await self._find("chat_id", chat_id)

    async def find_by_conversation(self, conversation_id: str) -> MappedChat | None:
        return await self._find("conversation_id", conversation_id)

    async def get_first_id(self, chat_id: int) -> int:
        """The id that a chat had at first, whether it is a conversation or not."""
        found = await self.connection.execute(
            "SELECT first_id FROM telegram_chat_migrations WHERE bot_id = %s AND chat_id = %s", (self.bot_id, chat_id)
        )
        row = await found.fetchone()
        return row[0] if row else chat_id

    async def map_chat(self, chat_id: int, conversation_id: str, owner_id: str) -> None:
        """From now on this chat is that conversation."""
        await self.connection.execute(
            "INSERT INTO telegram_chats (bot_id, chat_id, conversation_id, owner_id) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (bot_id, chat_id) DO UPDATE SET conversation_id = excluded.conversation_id,"
            " owner_id = excluded.owner_id",
            (self.bot_id, chat_id, conversation_id, owner_id),
        )

    async def rename_bot(self, username: str) -> None:
        """The bot has this name now, in all of its conversations."""
        await self.connection.execute(_RENAME_BOT, {"bot": self.bot_id, "name": username})

    async def list_platform_ids(self, chat_id: int, conversation_id: str, message_id: str) -> list[tuple[str, bool]]:
        """What the platform calls the messages there, and of each whether it was there before that one was sent."""
        return await self._list_platform_ids(_NUMBERS, chat_id, conversation_id, message_id)

    async def list_platform_ids_elsewhere(
        self, chat_id: int, conversation_id: str, message_id: str
    ) -> list[tuple[str, bool]]:
        """The same of the other chats that share their numbers with it, from shortly before that one on."""
        return await self._list_platform_ids(_NUMBERS_ELSEWHERE, chat_id, conversation_id, message_id)

    async def _list_platform_ids(
        self, statement: bytes, chat_id: int, conversation_id: str, message_id: str
    ) -> list[tuple[str, bool]]:
        found = await self.connection.execute(
            statement,
            {
                "bot": self.bot_id,
                "own_numbers": SHARED_NUMBERS_ABOVE,
                "chat": chat_id,
                "conversation": conversation_id,
                "message": message_id,
            },
        )
        return [(row[0], row[1]) for row in await found.fetchall()]

    async def find_answered_in_album(self, conversation_id: str, album: str, *, among: Sequence[str]) -> bool | None:
        """Whether the message of an album that is answered has words; None if none of those is."""
        found = await self.connection.execute(
            _ALBUM, {"conversation": conversation_id, "album": album, "names": list(among)}
        )
        row = await found.fetchone()
        return row[0] if row else None

    async def migrate_chat(self, old: int, new: int) -> bool:
        """The chat has another id now; False if it is no conversation, or the new one is already. Call it in a transaction."""
        found = await self.connection.execute(_MOVE, {"bot": self.bot_id, "old": old, "new": new})
        if found.rowcount == 1:
            await self.record_migration(old, new)
        return found.rowcount == 1

    async def record_migration(self, old: int, new: int) -> bool:
        """Which id a chat had before is known from now on, whatever becomes of its conversation; False if it was."""
        found = await self.connection.execute(_NOTE_MOVE, {"bot": self.bot_id, "old": old, "new": new})
        return found.rowcount == 1

    async def _find(self, column: str, value: object) -> MappedChat | None:
        found = await self.connection.execute(_PLACE.format(column).encode(), (self.bot_id, value))
        row: tuple[Any, ...] | None = await found.fetchone()
        return MappedChat(*row) if row else None


@dataclass(frozen=True, slots=True)
class TelegramUsernames:
    connection: Connection

    async def store(self, username: str, user_id: int) -> None:
        """That name is this person's now. Nothing is written if it was."""
        await self.connection.execute(
            "INSERT INTO telegram_usernames (username, user_id) VALUES (%s, %s)"
            " ON CONFLICT (username) DO UPDATE SET user_id = excluded.user_id WHERE telegram_usernames.user_id <> excluded.user_id",
            (username.lower(), user_id),
        )

    async def find_user_ids(self, usernames: Sequence[str]) -> dict[str, int]:
        """The ids of those who are known by these names."""
        found = await self.connection.execute(
            "SELECT username, user_id FROM telegram_usernames WHERE username = ANY(%s)",
            ([name.lower() for name in usernames],),
        )
        return {row[0]: row[1] for row in await found.fetchall()}

"""Load the messages that a reflection reads after a pause, and record up to where one has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.chat_archive import KEY_PREFIX
from rapport.domain.conversation import Message
from rapport.domain.follow_up import PastFollowUp
from rapport.storage.database import Connection
from rapport.storage.followups.past_followups import PAST_FOLLOWUPS, read_past_followups
from rapport.storage.messages.messages import COLUMNS, to_message

# The newest messages. Of those that an earlier reflection has read, only a few, as context for the new ones.
_SAID = f"""
WITH newest AS (
    SELECT {COLUMNS.replace(" blocks,", " NULL::jsonb AS blocks,")} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
    ORDER BY created_at DESC, id DESC LIMIT %(limit)s
)
SELECT newest.* FROM newest
WHERE created_at > (SELECT reflected_until FROM conversations WHERE id = %(conversation)s)
   OR id IN (SELECT id FROM newest ORDER BY created_at DESC, id DESC LIMIT %(known)s)
ORDER BY created_at, id
"""


@dataclass(frozen=True, slots=True)
class PausedConversation:
    """A conversation in which nobody has written for a while."""

    messages: Sequence[Message]
    """The newest messages, oldest first."""
    fresh: Sequence[Message]
    """Those of people that no reflection has read."""
    autonomy_enabled: bool | None
    past_followups: Sequence[PastFollowUp]
    """Its latest follow-ups, the newest first."""
    consecutive_followups: int
    """Delivered since a person last wrote."""


@dataclass(frozen=True, slots=True)
class Reflections:
    connection: Connection

    async def load_pause(
        self, owner_id: str, conversation_id: str, *, user_message_count: int, limit: int = 24, known: int = 6
    ) -> PausedConversation | None:
        """Return the conversation's state; None if a person has written since, or it was deleted."""
        cursor = await self.connection.execute(
            # Before the first reflection it is -infinity, which no datetime can hold.
            f"SELECT autonomy_enabled, CASE WHEN isfinite(reflected_until) THEN reflected_until END AS reflected_until,"
            f" consecutive_followups, {PAST_FOLLOWUPS} AS past_followups"
            " FROM conversations c WHERE id = %s AND owner_id = %s AND user_message_count = %s".encode(),
            (conversation_id, owner_id, user_message_count),
        )
        conversation = await cursor.fetchone()
        if conversation is None:
            return None
        parameters = {"conversation": conversation_id, "owner": owner_id, "limit": limit, "known": known}
        rows = await (await self.connection.execute(_SAID, parameters)).fetchall()
        messages = [to_message(row) for row in rows]
        read_until = conversation.reflected_until
        unread = [
            message
            for message in messages
            if _is_by_owner(message) and (read_until is None or message.created_at > read_until)
        ]
        return PausedConversation(
            messages=messages,
            fresh=unread,
            autonomy_enabled=conversation.autonomy_enabled,
            past_followups=read_past_followups(conversation.past_followups),
            consecutive_followups=conversation.consecutive_followups,
        )

    async def mark_reflected(
        self, owner_id: str, conversation_id: str, *, user_message_count: int, upto: datetime, followups: int = 0
    ) -> bool:
        """Record that a reflection has read up to `upto`; return False and change nothing if anything was said since.

        Locks the conversation's row until the transaction ends.
        """
        cursor = await self.connection.execute(
            "UPDATE conversations SET reflected_until = greatest(reflected_until, %s)"
            " WHERE id = %s AND owner_id = %s AND user_message_count = %s AND consecutive_followups = %s",
            (upto, conversation_id, owner_id, user_message_count, followups),
        )
        return cursor.rowcount == 1


def _is_by_owner(message: Message) -> bool:
    """Return True if a person wrote it in this conversation, not an import."""
    return (
        message.role == "user" and not message.is_bot and not (message.client_message_id or "").startswith(KEY_PREFIX)
    )

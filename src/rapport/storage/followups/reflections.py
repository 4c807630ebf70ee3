"""What the model is asked about after a conversation has paused, and up to where it has been asked."""

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

# The newest messages, but of those that it was asked about before only a few: they say what the new ones are about.
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
    """A conversation in which nobody says anything at the moment."""

    messages: Sequence[Message]
    """The newest messages, oldest first."""
    fresh: Sequence[Message]
    """Those of them that people said and the model has not been asked about."""
    autonomy_enabled: bool | None
    past_followups: Sequence[PastFollowUp]
    """Its latest follow-ups, the newest first."""
    consecutive_followups: int
    """Said since somebody spoke."""


@dataclass(frozen=True, slots=True)
class Reflections:
    connection: Connection

    async def load_pause(
        self, owner_id: str, conversation_id: str, *, user_message_count: int, limit: int = 24, known: int = 6
    ) -> PausedConversation | None:
        """What there is to think about; None when somebody has spoken since, or the conversation is gone."""
        found = await self.connection.execute(
            # Before the first time it is -infinity, which no datetime can hold.
            f"SELECT autonomy_enabled, CASE WHEN isfinite(reflected_until) THEN reflected_until END, consecutive_followups, {PAST_FOLLOWUPS}"
            " FROM conversations c WHERE id = %s AND owner_id = %s AND user_message_count = %s".encode(),
            (conversation_id, owner_id, user_message_count),
        )
        here = await found.fetchone()
        if here is None:
            return None
        parameters = {"conversation": conversation_id, "owner": owner_id, "limit": limit, "known": known}
        rows = await (await self.connection.execute(_SAID, parameters)).fetchall()
        said = [to_message(row) for row in rows]
        fresh = [one for one in said if _is_by_owner(one) and (here[1] is None or one.created_at > here[1])]
        return PausedConversation(said, fresh, here[0], read_past_followups(here[3]), here[2])

    async def mark_reflected(
        self, owner_id: str, conversation_id: str, *, user_message_count: int, upto: datetime, followups: int = 0
    ) -> bool:
        """Everything up to then has been thought about; False, and nothing changed, when anything has been said since.

        Holds the conversation's line until the transaction ends.
        """
        found = await self.connection.execute(
            "UPDATE conversations SET reflected_until = greatest(reflected_until, %s)"
            " WHERE id = %s AND owner_id = %s AND user_message_count = %s AND consecutive_followups = %s",
            (upto, conversation_id, owner_id, user_message_count, followups),
        )
        return found.rowcount == 1


def _is_by_owner(message: Message) -> bool:
    """Whether the owner has said it here."""
    return (
        message.role == "user" and not message.is_bot and not (message.client_message_id or "").startswith(KEY_PREFIX)
    )

"""What a turn begins with, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.conversation import Message
from rapport.domain.event import ClaimedEvent
from rapport.domain.notes import Shelf
from rapport.storage.database import Connection
from rapport.storage.messages import SPOKEN, message_of

# Messages that people sent later wait for turns of their own and are left out; replies that came later belong to messages
# before it, because turns run in order, and are in. A backward walk of messages_order from the end to what the summary
# covers, the asked message by its key, the summary by its key: flat, however long the conversation is. (Both keys in one
# IN would be looked for along the whole of messages_order while the table has no statistics.)
_LOAD = f"""
WITH here AS (
    SELECT summary_id, summarised_to, coalesce(resting_until > clock_timestamp(), false) AS is_resting
    FROM conversations WHERE id = %(conversation)s AND owner_id = %(owner)s
), told AS (
    (SELECT {SPOKEN} FROM messages
     WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary'
       AND created_at > (SELECT summarised_to FROM here)
       AND (role <> 'user' OR created_at < (
           SELECT created_at FROM messages WHERE conversation_id = %(conversation)s AND id = %(upto)s))
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    UNION ALL
    SELECT {SPOKEN} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = %(upto)s
    UNION ALL
    SELECT {SPOKEN} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = (SELECT summary_id FROM here)
)
SELECT here.is_resting, coalesce(shelves.chunks, 0), shelves.min_similarity, told.*
FROM here CROSS JOIN told LEFT JOIN shelves ON shelves.owner_id = %(owner)s AND shelves.embedder = %(embedder)s
"""


@dataclass(frozen=True, slots=True)
class Material:
    """What a turn has to work with."""

    asked: Message
    """What is to be answered."""
    earlier: Sequence[Message]
    """The newest messages before it that no summary covers, oldest first."""
    summary: Message | None
    """What stands for everything before those."""
    shelf: Shelf
    is_resting: bool
    """The breaker is open: no model is asked."""


async def load(connection: Connection, event: ClaimedEvent, *, limit: int, embedder: str) -> Material | None:
    """Everything a turn about this event may see, with at most `limit` earlier messages; None if its message is gone."""
    found = await connection.execute(
        _LOAD,
        {
            "conversation": event.conversation_id,
            "owner": event.owner_id,
            "upto": event.id,
            "limit": limit,
            "embedder": embedder,
        },
    )
    rows = await found.fetchall()
    messages = [message_of(row[3:]) for row in rows]
    asked = next((message for message in messages if message.id == event.id), None)
    if asked is None:
        return None
    earlier = [message for message in messages if message is not asked and message.role != "system-summary"]
    earlier.sort(key=lambda message: (message.created_at, message.id))
    summary = next((message for message in messages if message.role == "system-summary"), None)
    is_resting, chunks, min_similarity = rows[0][:3]
    return Material(asked, earlier, summary, Shelf(chunks, min_similarity), is_resting)

"""What a turn begins with, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.conversation import Message
from rapport.domain.event import ClaimedEvent
from rapport.domain.notes import Shelf
from rapport.storage.database import Connection
from rapport.storage.messages import SPOKEN, message_of

_MATTERS = 20
"""So many of the latest follow-ups are remembered, in order not to ask about the same again. They are looked for among five
times as many that fired: in a chat that was muted for years nearly all were held back."""

# With what says of a message that the agent said it unasked: the planner looks at that. (The rest of the metadata may be long.)
_TOLD = f"""{SPOKEN}, reply_to_id, client_message_id, event_id, '[]'::jsonb,
    CASE WHEN metadata ? 'autonomous' THEN metadata ELSE '{{}}' END"""

# Messages that people sent later wait for turns of their own and are left out; replies that came later belong to messages
# before it, because turns run in order, and are in. A backward walk of messages_order from the end to what the summary
# covers, the asked message by its key, the summary by its key: flat, however long the conversation is. (Both keys in one
# IN would be looked for along the whole of messages_order while the table has no statistics.)
_LOAD = f"""
WITH here AS (
    SELECT summary_id, summarised_to, coalesce(resting_until > clock_timestamp(), false) AS is_resting, autonomy,
        EXISTS (SELECT FROM memories WHERE owner_id = %(owner)s AND agent_id = %(agent)s) AS has_memories,
        CASE WHEN followed_up_at IS NULL THEN '{{}}' ELSE ARRAY(
            SELECT matter FROM (
                SELECT matter, state FROM timers WHERE owner_id = %(owner)s AND conversation_id = %(conversation)s
                  AND fired_at IS NOT NULL ORDER BY fired_at DESC LIMIT {5 * _MATTERS}) AS latest
            WHERE state = 'delivered' LIMIT {_MATTERS}) END AS matters
    FROM conversations WHERE id = %(conversation)s AND owner_id = %(owner)s
), told AS (
    (SELECT {_TOLD} FROM messages
     WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
       AND created_at > (SELECT summarised_to FROM here){{before}}
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    UNION ALL
    SELECT {_TOLD} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = %(upto)s
    UNION ALL
    SELECT {_TOLD} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = (SELECT summary_id FROM here)
)
SELECT here.is_resting, here.autonomy, here.has_memories, here.matters, coalesce(shelves.chunks, 0),
       shelves.min_similarity, told.*
FROM here LEFT JOIN told ON true LEFT JOIN shelves ON shelves.owner_id = %(owner)s AND shelves.embedder = %(embedder)s
"""
_UP_TO_ASKED = """
       AND (role <> 'user' OR created_at < (
           SELECT created_at FROM messages WHERE conversation_id = %(conversation)s AND id = %(upto)s))"""
_LOAD_MESSAGE = _LOAD.replace("{before}", _UP_TO_ASKED)
_LOAD_SILENCE = _LOAD.replace("{before}", "")


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
    autonomy: bool | None
    """What somebody has said about follow-ups in this conversation; None when nobody has."""
    has_memories: bool
    matters: Sequence[str]
    """What its latest follow-ups were about."""


async def load(
    connection: Connection, event: ClaimedEvent, *, limit: int, embedder: str, asked: Message | None = None
) -> Material | None:
    """Everything a turn about this event may see, with at most `limit` earlier messages; None if its message is gone.

    With `asked`, which nobody said and the log doesn't hold, it is everything that was said so far.
    """
    found = await connection.execute(
        (_LOAD_MESSAGE if asked is None else _LOAD_SILENCE).encode(),
        {
            "conversation": event.conversation_id,
            "owner": event.owner_id,
            "agent": event.agent_id,
            "upto": event.id,
            "limit": limit,
            "embedder": embedder,
        },
    )
    rows = await found.fetchall()
    messages = [message_of(row[6:]) for row in rows if row[6] is not None]
    asked = asked or next((message for message in messages if message.id == event.id), None)
    if asked is None or not rows:
        return None
    earlier = [message for message in messages if message.id != asked.id and message.role != "system-summary"]
    earlier.sort(key=lambda message: (message.created_at, message.id))
    summary = next((message for message in messages if message.role == "system-summary"), None)
    is_resting, autonomy, has_memories, matters, chunks, min_similarity = rows[0][:6]
    return Material(asked, earlier, summary, Shelf(chunks, min_similarity), is_resting, autonomy, has_memories, matters)

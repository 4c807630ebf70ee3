"""What a turn begins with, in one statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.conversation import Message
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import PastFollowUp
from rapport.domain.note import NoteCounts
from rapport.storage.database import Connection
from rapport.storage.followups.past_followups import PAST_FOLLOWUPS, read_past_followups
from rapport.storage.messages.messages import COMMON_COLUMNS, PROMPT_COLUMNS, to_message

PICTURES = 12
"""So many of the newest messages are loaded with their pictures, which can be megabytes each; of others the words."""

_TOLD = f"{COMMON_COLUMNS}, {PROMPT_COLUMNS}"

# Messages that people sent later wait for turns of their own and are left out; replies that came later belong to messages
# before it, because turns run in order, and are in.
_NEWEST = f"""
    SELECT id, conversation_id, role,
        CASE WHEN content = '' AND blocks IS NOT NULL AND NOT is_newest THEN '[picture]' ELSE content END,
        CASE WHEN is_newest THEN blocks END, created_at, author_id, author_name, {PROMPT_COLUMNS}
    FROM (
        SELECT *, row_number() OVER (ORDER BY created_at DESC, id DESC) <= {PICTURES} AS is_newest FROM messages
        WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
          AND {{where}}
        ORDER BY created_at DESC, id DESC LIMIT %(limit)s) AS newest"""
_WHOLE_CHAT = _NEWEST.replace(
    "{where}", "(SELECT thread_id FROM asked) IS NULL AND created_at > (SELECT summarized_until FROM here){before}"
)
_TOPIC = _NEWEST.replace("{where}", "thread_id = (SELECT thread_id FROM asked){before}")

# One backward walk, of messages_order from the end to what the summary covers or, in a forum, of the topic's messages; the
# asked message by its key, the summary by its key: flat, however long the conversation is. (Both keys in one IN would be
# looked for along the whole of messages_order while the table has no statistics.) In a group no summary stands for
# anything: what belongs to a question is chosen from what was said. Only groups have topics: a direct chat is one talk.
_LOAD = f"""
WITH here AS (
    SELECT kind, CASE kind WHEN 'direct' THEN summary_id END AS summary_id,
        CASE kind WHEN 'direct' THEN summarized_until ELSE '-infinity' END AS summarized_until,
        coalesce(breaker_open_until > clock_timestamp(), false) AS is_resting, autonomy_enabled,
        coalesce(muted_until > clock_timestamp(), false) AS is_muted,
        (SELECT time_zone FROM preferences WHERE owner_id = %(owner)s) AS time_zone,
        EXISTS (SELECT FROM memories WHERE owner_id = %(owner)s AND agent_id = %(agent)s) AS has_memories,
        {PAST_FOLLOWUPS} AS brought_up
    FROM conversations c WHERE id = %(conversation)s AND owner_id = %(owner)s
), asked AS MATERIALIZED (
    SELECT created_at, CASE (SELECT kind FROM here) WHEN 'group' THEN thread_id END AS thread_id
    FROM messages WHERE conversation_id = %(conversation)s AND id = %(upto)s
), told AS (
    ({_WHOLE_CHAT})
    UNION ALL
    ({_TOPIC})
    UNION ALL
    SELECT {_TOLD} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = %(upto)s
    UNION ALL
    SELECT {_TOLD} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = (SELECT summary_id FROM here)
)
SELECT here.is_resting, here.autonomy_enabled, here.has_memories, here.brought_up, coalesce(n.chunks, 0),
       n.min_similarity, here.is_muted, here.time_zone, told.*
FROM here LEFT JOIN told ON true LEFT JOIN note_counts n ON n.owner_id = %(owner)s AND n.embedder = %(embedder)s
"""
# psycopg converts a statement anew on every use when it has more than 4,096 characters: indentation is left out.
_SHORT_LOAD = re.sub(r"\n +", "\n", _LOAD)
_LOAD_MESSAGE = _SHORT_LOAD.replace("{before}", " AND (role <> 'user' OR created_at < (SELECT created_at FROM asked))")
_LOAD_SILENCE = _SHORT_LOAD.replace("{before}", "")


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What a turn has to work with."""

    message: Message
    """What is to be answered."""
    earlier: Sequence[Message]
    """The newest messages before it that no summary covers, oldest first; in a forum, those of its topic."""
    summary: Message | None
    """What stands for everything before those."""
    note_counts: NoteCounts
    is_breaker_open: bool
    """The breaker is open: no model is asked."""
    autonomy_enabled: bool | None
    """What somebody has said about follow-ups in this conversation; None when nobody has."""
    has_memories: bool
    past_follow_ups: Sequence[PastFollowUp]
    """Its latest follow-ups, the newest first."""
    is_muted: bool = False
    """Whether the owner wants no follow-ups in this conversation now."""
    time_zone: str | None = None
    """The zone that the owner has set; None when they have set none."""


async def load_turn_input(
    connection: Connection, event: ClaimedEvent, *, limit: int, embedder: str, question: Message | None = None
) -> TurnInput | None:
    """Everything a turn about this event may see, with at most `limit` earlier messages; None if its message is gone.

    With `asked`, which nobody said and the log doesn't hold, it is everything that was said so far.
    """
    found = await connection.execute(
        (_LOAD_MESSAGE if question is None else _LOAD_SILENCE).encode(),
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
    messages = [to_message(row[8:]) for row in rows if row[8] is not None]
    question = question or next((message for message in messages if message.id == event.id), None)
    if question is None or not rows:
        return None
    earlier = [message for message in messages if message.id != question.id and message.role != "system-summary"]
    earlier.sort(key=lambda message: (message.created_at, message.id))
    summary = next((message for message in messages if message.role == "system-summary"), None)
    is_resting, autonomy, has_memories, made, chunks, min_similarity, is_muted, time_zone = rows[0][:8]
    return TurnInput(
        question,
        earlier,
        summary,
        NoteCounts(chunks, min_similarity),
        is_resting,
        autonomy,
        has_memories,
        read_past_followups(made),
        is_muted,
        time_zone,
    )

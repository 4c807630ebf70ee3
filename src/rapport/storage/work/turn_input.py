"""Load the input of a turn in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapport.domain.conversation import Message
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import PastFollowUp
from rapport.domain.note import NoteCounts
from rapport.storage.agents import AGENT_STAMP
from rapport.storage.database import Connection
from rapport.storage.followups.past_followups import PAST_FOLLOWUPS, read_past_followups
from rapport.storage.messages.messages import COMMON_COLUMNS, PROMPT_COLUMNS, to_message
from rapport.storage.notes.visibility import COUNT_SHARED_FOR_TURN
from rapport.storage.prepared_statement import PreparedStatement

PICTURES = 12
"""The number of the newest messages that are loaded with their pictures, which can be megabytes each; others only as text."""

_MESSAGE = f"{COMMON_COLUMNS}, {PROMPT_COLUMNS}"

# `{before}` leaves out later messages of users, which have turns of their own. Later replies stay: turns run in order, so they
# answer earlier messages.
_NEWEST = f"""
    SELECT id, conversation_id, role,
        CASE WHEN content = '' AND blocks IS NOT NULL AND NOT is_newest THEN '[picture]' ELSE content END AS content,
        CASE WHEN is_newest THEN blocks END AS blocks, created_at, author_id, author_name, {PROMPT_COLUMNS}
    FROM (
        SELECT *, row_number() OVER (ORDER BY created_at DESC, id DESC) <= {PICTURES} AS is_newest FROM messages
        WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
          AND {{where}}
        ORDER BY created_at DESC, id DESC LIMIT %(limit)s) newest"""
_UNCOVERED = "created_at > (SELECT summarized_until FROM here){before}"
_DIRECT_CHAT = f"({_NEWEST.replace('{where}', _UNCOVERED)})"
# A topic is read by its own index. One of the two branches finds nothing.
_GROUP_CHAT = f"""
    ({_NEWEST.replace("{where}", f"(SELECT thread_id FROM call) IS NULL AND {_UNCOVERED}")})
    UNION ALL
    ({_NEWEST.replace("{where}", "thread_id = (SELECT thread_id FROM call){before}")})"""

# One backward scan of messages_order or messages_topic, and the message and the summary by key: flat, however long the
# conversation is. Both keys in one IN would scan messages_order while the table has no statistics. Groups use no summary:
# the context of a question is selected from the messages. Only groups have topics.
_LOAD = f"""
WITH here AS (
    SELECT kind, CASE kind WHEN 'direct' THEN summary_id END AS summary_id,
        CASE kind WHEN 'direct' THEN summarized_until ELSE '-infinity' END AS summarized_until,
        coalesce(breaker_open_until > clock_timestamp(), false) AS is_resting, autonomy_enabled,
        coalesce(muted_until > clock_timestamp(), false) AS is_muted,
        (SELECT time_zone FROM preferences WHERE owner_id = %(owner)s) AS time_zone,
        (SELECT monthly_tokens FROM usage_budgets WHERE owner_id = %(owner)s) AS owner_budget,
        EXISTS (SELECT FROM memories WHERE owner_id = %(owner)s AND agent_id = %(agent)s) AS has_memories,
        {PAST_FOLLOWUPS} AS past_followups, {AGENT_STAMP} AS agent_stamp
    FROM conversations c WHERE id = %(conversation)s AND owner_id = %(owner)s
), call AS MATERIALIZED (
    SELECT created_at, CASE (SELECT kind FROM here) WHEN 'group' THEN thread_id END AS thread_id
    FROM messages WHERE conversation_id = %(conversation)s AND id = %(upto)s
), chat AS (
    {{chat}}
    UNION ALL
    SELECT {_MESSAGE} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = %(upto)s
    UNION ALL
    SELECT {_MESSAGE} FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND id = (SELECT summary_id FROM here)
)
SELECT is_resting, autonomy_enabled, has_memories, past_followups, coalesce(chunks, 0) AS chunks,
       min_similarity, is_muted, time_zone, agent_stamp, owner_budget, ({COUNT_SHARED_FOR_TURN}) AS shared_chunks, chat.*
FROM here LEFT JOIN chat ON true LEFT JOIN note_counts ON owner_id = %(owner)s AND embedder = %(embedder)s
"""
_BEFORE = " AND (role <> 'user' OR created_at < (SELECT created_at FROM call))"


def _make_load(chat: str, before: str) -> PreparedStatement:
    return PreparedStatement(_LOAD.replace("{chat}", chat).replace("{before}", before))


_CHATS: Mapping[ConversationKind, str] = {"direct": _DIRECT_CHAT, "group": _GROUP_CHAT}
_LOAD_MESSAGE = {kind: _make_load(chat, _BEFORE) for kind, chat in _CHATS.items()}
_LOAD_SILENCE = {kind: _make_load(chat, "") for kind, chat in _CHATS.items()}


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Everything a turn reads from the database before it starts."""

    message: Message
    """The message to answer."""
    earlier: Sequence[Message]
    """The newest messages before it that no summary covers, oldest first; in a forum, those of its topic."""
    summary: Message | None
    """The summary of everything before those."""
    note_counts: NoteCounts
    is_breaker_open: bool
    """True if the breaker is open: no model is called."""
    autonomy_enabled: bool | None
    """The setting for follow-ups in this conversation; None if unset."""
    has_memories: bool
    past_follow_ups: Sequence[PastFollowUp]
    """Its latest follow-ups, the newest first."""
    is_muted: bool = False
    """True if the owner has muted follow-ups in this conversation now."""
    time_zone: str | None = None
    """The owner's time zone; None if unset."""
    agent_stamp: int = 0
    """The stamp of the conversation's agent; 0 if the agent was deleted."""
    owner_budget: int | None = None
    """The tokens that the owner may use in a month; None: no limit."""


async def load_turn_input(
    connection: Connection, event: ClaimedEvent, *, limit: int, embedder: str, question: Message | None = None
) -> TurnInput | None:
    """Return the input of a turn, with at most `limit` earlier messages; None if the event's message is gone.

    With `question`, the synthetic message of a follow-up that is not stored, all messages so far count as earlier.
    """
    rows = await (_LOAD_MESSAGE if question is None else _LOAD_SILENCE)[event.kind].execute(
        connection,
        {
            "conversation": event.conversation_id,
            "owner": event.owner_id,
            "agent": event.agent_id,
            "upto": event.message_id,
            "limit": limit,
            "embedder": embedder,
        },
    )
    messages = [to_message(row) for row in rows if row.id is not None]
    question = question or next((message for message in messages if message.id == event.message_id), None)
    if question is None or not rows:
        return None
    earlier = [message for message in messages if message.id != question.id and message.role != "system-summary"]
    earlier.sort(key=lambda message: (message.created_at, message.id))
    summary = next((message for message in messages if message.role == "system-summary"), None)
    state = rows[0]
    return TurnInput(
        question,
        earlier,
        summary,
        NoteCounts(state.chunks, state.min_similarity, int(state.shared_chunks)),
        state.is_resting,
        state.autonomy_enabled,
        state.has_memories,
        read_past_followups(state.past_followups),
        state.is_muted,
        state.time_zone,
        state.agent_stamp or 0,
        state.owner_budget,
    )

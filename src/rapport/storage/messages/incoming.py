"""Store incoming messages with the event that answers them, and edits of stored messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from rapport.domain.agent_profile import EVERYONE
from rapport.domain.conversation import Audience, Incoming, Message, extract_text
from rapport.domain.event import Accepted, ClaimedEvent
from rapport.domain.ids import new_id
from rapport.storage.conversations.conversations import no_such_conversation
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message
from rapport.storage.prepared_statement import PreparedStatement

CLOCK_SKEW_SECONDS = 60
"""Allowed difference between a platform's clock and ours, with the time that a message takes to arrive."""

MAX_STORED_EDITS = 50
"""The number of edits of a message that `payload` keeps; each edit rewrites them all."""

# `ingest/addressing.py` decides what is for the agent; this picks its decision for the conversation's row (ADR 43).
_FOR_AGENT = (
    "(CASE WHEN kind = 'direct' THEN %(in_direct_chats)s"
    " ELSE %(in_group_chats)s OR agent_id = ANY(%(in_groups_of)s) OR (%(in_groups_of_deleted)s AND NOT EXISTS"
    f" (SELECT FROM agents a WHERE a.id = agent_id AND a.owner_id IN (%(owner)s, '{EVERYONE}'))) END)"
)
# One statement is one transaction. `line` locks the conversation's row, so writers take turns and times increase.
# If no other event is open and `claim` is set, the event starts as running, without a poll of the queue in between.
_STORE = f"""
WITH line AS (
    -- A bot's message does not count as a user's: it must not cancel follow-ups or reset their count.
    UPDATE conversations
    SET last_at = {{last_at}},
        open_event_count = open_event_count + {_FOR_AGENT}::int, user_message_count = user_message_count + (NOT %(is_bot)s)::int,
        consecutive_followups = CASE WHEN %(is_bot)s THEN consecutive_followups ELSE 0 END, unreachable_since = NULL
    WHERE id = %(conversation)s AND owner_id = %(owner)s
    RETURNING {{at}} AS at, last_at, handle, agent_id, kind, channel, user_message_count,
        {_FOR_AGENT} AS is_for_agent, {_FOR_AGENT} AND %(claim)s AND open_event_count = 1 AS is_free
), message AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, blocks, reply_to_id,
                          client_message_id, created_at, mentions, thread_id, is_bot, platform_id, context_snapshot, payload)
    SELECT %(conversation)s, %(id)s, %(owner)s, 'user', %(author_id)s, %(author_name)s, %(text)s, %(blocks)s,
           %(reply_to)s, %(client_id)s, line.at, %(mentions)s, %(topic)s, %(is_bot)s, %(platform_id)s, %(snapshot)s,
           %(payload)s
    FROM line
), cancelled AS (
    -- A user's message ends the silence that follow-ups wait for (AUTO-11). A timer made while this statement waited for the
    -- lock is not visible here; it has an older `user_message_count` and is dropped when it is due.
    DELETE FROM timers t USING line WHERE t.conversation_id = %(conversation)s AND t.state = 'pending'
      AND NOT %(is_bot)s
), overtaken AS (
    UPDATE events e SET state = 'done', finished_at = clock_timestamp(), error = 'superseded' FROM line
    WHERE e.conversation_id = %(conversation)s AND e.trigger_type IS NOT NULL AND e.state <> 'done'
      AND NOT %(is_bot)s
    RETURNING e.id, e.trigger_type, e.worker_id
), superseded AS (
    UPDATE timers t SET state = 'superseded', ended_at = clock_timestamp() FROM overtaken
    WHERE t.conversation_id = %(conversation)s AND t.id = overtaken.id
), event AS (
    INSERT INTO events (conversation_id, id, owner_id, state, worker_id, fence, attempts, accepted_by, user_message_count)
    SELECT %(conversation)s, %(id)s, %(owner)s,
           CASE WHEN is_free THEN 'running' ELSE 'queued' END, CASE WHEN is_free THEN %(worker)s END,
           is_free::int, is_free::int, %(worker)s, user_message_count
    -- Joined, so that overtaken events are done first: only one may run.
    FROM line, (SELECT count(*) FROM overtaken) AS first WHERE is_for_agent
){{late}}
SELECT at, agent_id, kind, channel, handle, user_message_count, is_for_agent, is_free,
       ARRAY(SELECT ARRAY[id, trigger_type] FROM overtaken) AS overtaken,
       (SELECT id FROM overtaken WHERE worker_id IS NOT NULL LIMIT 1) AS interrupted
FROM line
"""

_STORE_NOW = PreparedStatement(
    _STORE.format(last_at="greatest(clock_timestamp(), last_at + interval '1 microsecond')", at="last_at", late="")
)

# A message with a platform time is stored at that time, however late it arrives. A time well in the future is replaced by now.
_DATED = f"""
CASE WHEN %(said_at)s::timestamptz > transaction_timestamp() + interval '{CLOCK_SKEW_SECONDS} seconds'
     THEN transaction_timestamp() ELSE %(said_at)s END
"""
# A recent message is placed after the agent's last reply, because the two clocks differ and the platform's may count whole
# seconds. Messages with a later platform time are placed after it, too.
_PLACED = f"""
greatest({_DATED}, last_platform_created_at + interval '1 microsecond',
         CASE WHEN {_DATED} > transaction_timestamp() - interval '{CLOCK_SKEW_SECONDS} seconds'
              THEN replied_at + interval '1 microsecond' END)
"""
# `late` moves the embedding mark back when a message is stored before the newest one.
_STORE_DATED = PreparedStatement(
    _STORE.format(
        last_at=f"greatest(last_at, CASE WHEN {_DATED} < last_platform_time THEN {_DATED} ELSE {_PLACED} END),"
        f" last_platform_time = greatest(last_platform_time, {_DATED}), last_platform_created_at = CASE WHEN {_DATED} < last_platform_time THEN last_platform_created_at ELSE {_PLACED} END",
        at=f"CASE WHEN {_DATED} < last_platform_time THEN {_DATED} ELSE last_platform_created_at END",  # RETURNING sees the updated row
        late=""", late AS (
    UPDATE embedding_progress i SET embedded_until = least(embedded_until, line.at - interval '1 microsecond'), imports = imports + 1
    FROM line WHERE i.conversation_id = %(conversation)s AND line.at < line.last_at
)""",
    )
)

# One branch per unique index; the client's id has precedence over the platform's.
_KNOWN = f"""
SELECT (SELECT agent_id FROM conversations c WHERE c.id = m.conversation_id) AS agent_id,
       EXISTS (SELECT FROM events e WHERE e.conversation_id = m.conversation_id AND e.id = m.id)
       OR EXISTS (SELECT FROM messages r WHERE r.conversation_id = m.conversation_id AND r.event_id = m.id) AS is_for_agent, m.*
FROM (
    (SELECT {COLUMNS} FROM messages
     WHERE conversation_id = %(conversation)s AND client_message_id = %(client_id)s AND owner_id = %(owner)s)
    UNION ALL
    (SELECT {COLUMNS} FROM messages
     WHERE conversation_id = %(conversation)s AND platform_id = %(platform_id)s AND owner_id = %(owner)s)
    LIMIT 1
) AS m
"""

# Apply an edit: `content` is replaced, and the platform's update is added to `payload`, so earlier texts are kept. An edit
# older than the stored one is ignored, and so is one with the same text, except the first: it may have arrived before the
# message itself. The message's vector is deleted, and the embedding mark is moved back to make it anew.
_EDIT = """
WITH held AS (
    SELECT id FROM conversations WHERE id = %(conversation)s FOR NO KEY UPDATE  -- `seq` is assigned under this lock
), changed AS (
    UPDATE messages
    SET content = %(text)s, mentions = %(mentions)s, seq = DEFAULT,
        metadata = metadata || jsonb_build_object('edited_at', %(edited_at)s::text),
        payload = coalesce(payload, '{}') || jsonb_build_object('edits',
            CASE WHEN jsonb_array_length(payload -> 'edits') >= %(kept)s THEN (payload -> 'edits') - 0
                 ELSE coalesce(payload -> 'edits', '[]') END || jsonb_build_array(coalesce(%(payload)s::jsonb, 'null')))
    FROM held WHERE conversation_id = held.id AND platform_id = %(platform_id)s AND owner_id = %(owner)s AND role = 'user'
      AND (metadata ->> 'edited_at' IS NULL OR (metadata ->> 'edited_at')::timestamptz < %(edited_at)s::timestamptz)
      AND (content <> %(text)s OR metadata ->> 'edited_at' IS NULL)
    RETURNING messages.id, created_at
), vectors AS (
    DELETE FROM message_vectors v USING changed WHERE v.conversation_id = %(conversation)s AND v.message_id = changed.id
    RETURNING v.embedder
), late AS (
    UPDATE embedding_progress i SET embedded_until = least(embedded_until, changed.created_at - interval '1 microsecond'),
        imports = imports + 1, vectors = vectors - (SELECT count(*) FROM vectors v WHERE v.embedder = i.embedder)
    FROM changed WHERE i.conversation_id = %(conversation)s
)
SELECT id FROM changed
"""

# Queue an event for a stored message that an edit has addressed to the agent, at most once.
_QUEUE_EDITED = f"""
WITH line AS (
    UPDATE conversations SET open_event_count = open_event_count + 1
    WHERE id = %(conversation)s AND owner_id = %(owner)s AND {_FOR_AGENT}
      AND NOT EXISTS (SELECT FROM events WHERE conversation_id = %(conversation)s AND id = %(message)s)
      AND NOT EXISTS (SELECT FROM messages WHERE conversation_id = %(conversation)s AND event_id = %(message)s)
    RETURNING user_message_count
)
INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count)
SELECT %(conversation)s, %(message)s, %(owner)s, 'queued', %(worker)s, user_message_count FROM line
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class IncomingMessages:
    """Store what channels receive."""

    connection: Connection

    async def store(self, incoming: Incoming, *, audience: Audience, worker_id: str, claim: bool) -> Accepted | None:
        """Store a message and, if it is for the agent, its event; return None when its client or platform id is known."""
        message_id = new_id()
        parameters = {
            "conversation": incoming.conversation_id,
            "id": message_id,
            "owner": incoming.owner_id,
            "author_id": incoming.author and incoming.author.id,
            "author_name": incoming.author and incoming.author.name,
            "text": extract_text(incoming.content),
            "blocks": None if isinstance(incoming.content, str) else Jsonb(list(incoming.content)),
            "reply_to": incoming.reply_to_id,
            "client_id": incoming.client_message_id,
            "worker": worker_id,
            **_audience_parameters(audience),
            "mentions": list(incoming.mentions),
            "topic": incoming.thread_id,
            "is_bot": incoming.is_bot,
            "platform_id": incoming.platform_id,
            "snapshot": incoming.context_snapshot and Jsonb(dict(incoming.context_snapshot)),
            "payload": incoming.payload and Jsonb(dict(incoming.payload)),
            "said_at": incoming.said_at,
        }
        try:
            rows = await self._store({**parameters, "claim": claim})
        except UniqueViolation as violation:
            if violation.diag.constraint_name in ("messages_client_id", "messages_platform_id"):
                return None
            raise
        if not rows:
            raise no_such_conversation(incoming.conversation_id)
        [row] = rows
        claimed = None
        if row.is_free:
            claimed = ClaimedEvent(
                id=message_id,
                conversation_id=incoming.conversation_id,
                owner_id=incoming.owner_id,
                fence=1,
                attempts=1,
                agent_id=row.agent_id,
                kind=row.kind,
                channel=row.channel,
                accepted_by=worker_id,
                user_message_count=row.user_message_count,
                handle=row.handle,
            )
        ids = (message_id, incoming.conversation_id, incoming.owner_id, row.agent_id)
        overtaken = [(id_, type_) for id_, type_ in row.overtaken]
        return Accepted(*ids, row.at, row.is_for_agent, claimed, overtaken=overtaken, interrupted=row.interrupted)

    async def _store(self, parameters: dict[str, Any]) -> list[Any]:
        """Run the insert; retry once if a follow-up started while it waited for the lock, to supersede that follow-up."""
        statement = _STORE_NOW if parameters["said_at"] is None else _STORE_DATED
        try:
            return await statement.execute(self.connection, parameters)
        except UniqueViolation as violation:
            if violation.diag.constraint_name != "events_one_running":
                raise
            return await statement.execute(self.connection, parameters)

    async def find_known(self, incoming: Incoming) -> tuple[Message, Accepted] | None:
        """Return the message stored under the client's or else the platform's id, with the outcome of accepting it."""
        cursor = await self.connection.execute(
            _KNOWN,
            {
                "conversation": incoming.conversation_id,
                "owner": incoming.owner_id,
                "client_id": incoming.client_message_id,
                "platform_id": incoming.platform_id,
            },
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        message = to_message(row)
        return message, Accepted(
            message.id,
            incoming.conversation_id,
            incoming.owner_id,
            row.agent_id,
            message.created_at,
            row.is_for_agent,
            is_repeated=True,
        )

    async def store_edit(self, incoming: Incoming) -> str | None:
        """Apply an edit to the message with its platform id; return the message's id.

        Return None if there is no such message, its text is the same, or a newer edit is stored.
        """
        assert incoming.edited_at is not None
        cursor = await self.connection.execute(
            _EDIT,
            {
                "conversation": incoming.conversation_id,
                "owner": incoming.owner_id,
                "platform_id": incoming.platform_id,
                "text": extract_text(incoming.content),
                "mentions": list(incoming.mentions),
                "edited_at": incoming.edited_at.isoformat(),
                "kept": MAX_STORED_EDITS,
                "payload": incoming.payload and Jsonb(dict(incoming.payload)),
            },
        )
        row = await cursor.fetchone()
        return row.id if row else None

    async def mark_for_agent(self, incoming: Incoming, message_id: str, *, audience: Audience, worker_id: str) -> bool:
        """Queue an event for a stored message; return False if it is not for the agent or was queued before.

        Call it in a transaction.
        """
        cursor = await self.connection.execute(
            _QUEUE_EDITED,
            {
                "conversation": incoming.conversation_id,
                "owner": incoming.owner_id,
                "message": message_id,
                "worker": worker_id,
                **_audience_parameters(audience),
            },
        )
        return cursor.rowcount == 1


def _audience_parameters(audience: Audience) -> dict[str, Any]:
    return {
        "in_direct_chats": audience.in_direct_chats,
        "in_group_chats": audience.in_group_chats,
        "in_groups_of": list(audience.in_groups_of),
        "in_groups_of_deleted": audience.in_groups_of_deleted,
    }

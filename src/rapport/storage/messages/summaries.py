"""Summaries: each stands for the messages before it when the model is asked; what was said stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rapport.domain.conversation import Message
from rapport.domain.ids import new_id
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message

# One statement. Who comes second finds another summary than the one it went on from, and stores nothing. Every message
# is marked once, by the summary that covers it first; the summary before this one is marked as folded into it. Both ends
# of what is covered bound a walk of messages_order (hence the subquery, not a join): what was covered before is not seen.
_STORE = f"""
WITH line AS (
    UPDATE conversations
    SET last_at = greatest(clock_timestamp(), last_at + interval '1 microsecond'), summary_id = %(id)s,
        summarized_until = %(upto)s
    WHERE id = %(conversation)s AND owner_id = %(owner)s AND summary_id IS NOT DISTINCT FROM %(previous)s
    RETURNING last_at
), covered AS (
    UPDATE messages SET summary_id = %(id)s
    WHERE conversation_id = %(conversation)s AND role <> 'system-summary' AND NOT synthetic AND EXISTS (SELECT FROM line)
      -- As it was before this statement: its own changes are not visible to it.
      AND created_at > (SELECT summarized_until FROM conversations WHERE id = %(conversation)s) AND created_at <= %(upto)s
    RETURNING id
), folded_in AS (
    UPDATE messages SET summary_id = %(id)s
    WHERE conversation_id = %(conversation)s AND id = %(previous)s AND EXISTS (SELECT FROM line)
)
INSERT INTO messages (conversation_id, id, owner_id, role, content, metadata, created_at)
SELECT %(conversation)s, %(id)s, %(owner)s, 'system-summary', %(text)s,
       %(metadata)s || jsonb_build_object('replaced', (SELECT count(*) FROM covered)), last_at
FROM line
RETURNING {COLUMNS}
"""

# A forward walk of messages_order from where the summary ends to the first message that still waits for its answer: that
# one and what follows is told to the model as it was said. Of what is only summed up nobody needs the pictures, which
# can be megabytes each.
_BACKLOG = f"""
(SELECT {COLUMNS.replace(" blocks,", " NULL::jsonb,")} FROM messages
 WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic
   AND created_at > (SELECT summarized_until FROM conversations WHERE id = %(conversation)s)
   AND created_at < least('infinity',
       (SELECT m.created_at FROM events e JOIN messages m ON m.conversation_id = e.conversation_id AND m.id = e.id
        WHERE e.conversation_id = %(conversation)s AND e.state = 'running'),
       (SELECT m.created_at FROM events e JOIN messages m ON m.conversation_id = e.conversation_id AND m.id = e.id
        WHERE e.conversation_id = %(conversation)s AND e.state = 'queued' AND e.trigger_type IS NULL
        ORDER BY e.seq LIMIT 1))
 ORDER BY created_at, id LIMIT %(limit)s)
UNION ALL
SELECT {COLUMNS} FROM messages WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s
   AND id = (SELECT summary_id FROM conversations WHERE id = %(conversation)s)
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the model would be given of a conversation, as far as it is answered, if it were given everything."""

    summary: Message | None
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Summaries:
    connection: Connection

    async def load_backlog(self, owner_id: str, conversation_id: str, *, limit: int) -> Backlog:
        """The newest summary, and what follows it up to the first message that waits for an answer: the words alone,
        oldest first, at most `limit`."""
        found = await self.connection.execute(
            _BACKLOG, {"conversation": conversation_id, "owner": owner_id, "limit": limit}
        )
        told = [to_message(row) for row in await found.fetchall()]
        summary = next((message for message in told if message.role == "system-summary"), None)
        messages = [message for message in told if message.role != "system-summary"]
        return Backlog(summary, sorted(messages, key=lambda message: (message.created_at, message.id)))

    async def store(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        text: str,
        upto: Message,
        previous: Message | None,
        source_ids: Sequence[str],
    ) -> Message | None:
        """A summary of everything up to and including `upto`, folding in `previous`; None if another one came first."""
        found = await self.connection.execute(
            _STORE,
            {
                "conversation": conversation_id,
                "owner": owner_id,
                "id": new_id(),
                "upto": upto.created_at,
                "previous": previous and previous.id,
                "text": text,
                "metadata": Jsonb({"source_ids": list(source_ids), "lc_source": "summarization"}),
            },
        )
        row = await found.fetchone()
        return to_message(row) if row else None

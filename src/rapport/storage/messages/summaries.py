"""Store and load summaries. In a prompt a summary replaces the messages it covers, which stay stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rapport.domain.conversation import Message
from rapport.domain.ids import new_id
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message

# One statement, guarded by `summary_id`: a concurrent second summary stores nothing. Each message is marked by the first
# summary that covers it, and the previous summary is marked as folded in. A subquery instead of a join, so that both ends
# bound a scan of messages_order.
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
      -- The value before this statement: a statement does not see its own changes.
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

# A forward scan of messages_order from the end of the summary to the first unanswered message. That message and later ones are
# given to the model in full. Pictures are not read: a summary does not need them, and they can be megabytes each.
_BACKLOG = f"""
(SELECT {COLUMNS.replace(" blocks,", " NULL::jsonb AS blocks,")} FROM messages
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
    """The newest summary of a conversation and the answered messages after it."""

    summary: Message | None
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Summaries:
    """Store and load the summaries of conversations."""

    connection: Connection

    async def load_backlog(self, owner_id: str, conversation_id: str, *, limit: int) -> Backlog:
        """Return the newest summary and at most `limit` messages after it, up to the first unanswered one: text only,
        oldest first."""
        cursor = await self.connection.execute(
            _BACKLOG, {"conversation": conversation_id, "owner": owner_id, "limit": limit}
        )
        rows = [to_message(row) for row in await cursor.fetchall()]
        summary = next((message for message in rows if message.role == "system-summary"), None)
        messages = [message for message in rows if message.role != "system-summary"]
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
        """Store a summary of everything up to and including `upto`, folding in `previous`; return None if another came first."""
        cursor = await self.connection.execute(
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
        row = await cursor.fetchone()
        return to_message(row) if row else None

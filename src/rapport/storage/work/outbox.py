"""Store the outbox: messages and notices to send through a channel."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.errors import Permanent, Transient
from rapport.domain.outgoing import Button, Notice, Outgoing
from rapport.storage.database import Connection, run_savepoint
from rapport.storage.work.tool_calls import ToolCalls

# The oldest unsent row of each conversation, so that replies arrive in order even after a retry. Joined with the message and
# the platform id of the message it answers. Only channels that this process has.
_CLAIM = """
WITH taken AS (
    UPDATE outbox o SET state = 'sending', worker_id = %(worker)s, attempts = o.attempts + 1
    FROM (
        SELECT conversation_id, id, state FROM outbox q
        WHERE state IN ('queued', 'unconfirmed') AND due_at <= clock_timestamp() AND channel = ANY(%(channels)s)
          -- A follow-up is sent only if no user has written since. One that has or may have arrived in part is completed.
          AND (user_message_count IS NULL OR state = 'unconfirmed' OR platform_ids <> '[]'
               OR user_message_count = (SELECT c.user_message_count FROM conversations c WHERE c.id = q.conversation_id))
          AND NOT EXISTS (SELECT FROM outbox o WHERE o.conversation_id = q.conversation_id
                          AND o.state IN ('queued', 'sending', 'unconfirmed') AND o.seq < q.seq)
        ORDER BY seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) head
    WHERE o.conversation_id = head.conversation_id AND o.id = head.id
    RETURNING o.*, head.state AS previous_state
)
SELECT t.id, t.channel, t.attempts, t.previous_state = 'unconfirmed' AS is_unconfirmed,
       t.created_at < clock_timestamp() - %(patience)s * interval '1 second' AS is_overdue,
       t.conversation_id, t.owner_id, t.message_id, t.platform_ids, t.notice, m.content, m.thread_id,
       m.metadata -> 'approvals' ->> 0 AS question, m.metadata -> 'reminder' ->> 'id' AS reminder,
       asked.platform_id AS reply_to
FROM taken t LEFT JOIN messages m ON m.conversation_id = t.conversation_id AND m.id = t.message_id
LEFT JOIN messages asked ON asked.conversation_id = m.conversation_id AND asked.id = m.reply_to_id
ORDER BY t.seq
"""


# Delete follow-ups, with their messages, if a user has written between commit and sending. SKIP LOCKED avoids a deadlock with
# a sender or with deleting the conversation, which lock the same rows in another order.
_TAKE_BACK = """
WITH late AS (
    SELECT q.conversation_id, q.id FROM outbox q JOIN conversations c ON c.id = q.conversation_id
    WHERE q.user_message_count IS NOT NULL AND q.state = 'queued' AND q.platform_ids = '[]' AND c.user_message_count <> q.user_message_count
      AND (%(conversation)s::text IS NULL OR q.conversation_id = %(conversation)s)
    FOR UPDATE OF q SKIP LOCKED FOR KEY SHARE OF c SKIP LOCKED
), overtaken AS (
    DELETE FROM outbox o USING late WHERE o.conversation_id = late.conversation_id AND o.id = late.id
    RETURNING o.conversation_id, o.message_id
), deleted AS (
    DELETE FROM messages m USING overtaken o WHERE m.conversation_id = o.conversation_id AND m.id = o.message_id
    RETURNING m.conversation_id, m.event_id
), trigger AS (
    DELETE FROM messages m USING deleted u WHERE m.conversation_id = u.conversation_id AND m.id = u.event_id
)
UPDATE timers t SET state = 'superseded', message_id = NULL FROM deleted u
WHERE t.conversation_id = u.conversation_id AND t.id = u.event_id
"""


# Store the platform id, of the first part if there are several, so that a reply to the message can be linked.
_SET_PLATFORM_ID = """
UPDATE messages m SET platform_id = %(name)s
WHERE m.conversation_id = %(conversation)s AND m.id = %(message)s AND m.platform_id IS NULL
  AND NOT EXISTS (SELECT FROM messages o WHERE o.conversation_id = m.conversation_id AND o.platform_id = %(name)s)
"""

_PLATFORM_ID_LOCK_SECONDS = 2.0
"""Wait up to 2 s for a concurrent insert of the same platform message id."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One row to send."""

    id: str
    channel: str
    attempts: int
    is_unconfirmed: bool
    """True if it may have arrived: a sender lost its connection or died."""
    is_overdue: bool
    """True if it is too old for another try."""
    outgoing: Outgoing

    @property
    def conversation_id(self) -> str:
        return self.outgoing.conversation_id


@dataclass(frozen=True, slots=True)
class Outbox:
    """Claim, add, delete and mark rows to send."""

    connection: Connection

    async def claim(self, *, worker_id: str, channels: Collection[str], limit: int, patience: float) -> list[Effect]:
        """Claim the next rows to send, one per conversation. Claim no more than are sent at once: a row that was never tried
        is never unconfirmed.

        Rows older than `patience` seconds are overdue.
        """
        cursor = await self.connection.execute(
            _CLAIM, {"worker": worker_id, "channels": list(channels), "limit": limit, "patience": patience}
        )
        calls = ToolCalls(self.connection)
        effects: list[Effect] = []
        for row in await cursor.fetchall():
            outgoing = _to_outgoing(row)
            if row.question is not None:
                questions = await calls.list_together(row.owner_id, row.conversation_id, row.question)
                outgoing = replace(outgoing, questions=questions)
            effects.append(Effect(row.id, row.channel, row.attempts, row.is_unconfirmed, row.is_overdue, outgoing))
        return effects

    async def post(self, owner_id: str, conversation_id: str, notice: Notice, *, name: str, channel: str) -> None:
        """Queue a notice, which is not a message; once per name."""
        await self.connection.execute(
            "INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id, notice)"
            " VALUES (%(conversation)s, %(name)s, %(owner)s, %(channel)s, %(name)s, %(notice)s) ON CONFLICT DO NOTHING",
            {
                "conversation": conversation_id,
                "name": name,
                "owner": owner_id,
                "channel": channel,
                "notice": Jsonb(asdict(notice)),
            },
        )

    async def take_back(self, conversation_id: str | None = None) -> int:
        """Delete unsent follow-ups, of one or all conversations, that a user's message has overtaken; return how many."""
        return (await self.connection.execute(_TAKE_BACK, {"conversation": conversation_id})).rowcount

    async def mark_own_unconfirmed(self, *, worker_id: str, except_for: Collection[str]) -> None:
        """Mark rows that this worker was sending, except the given ones, as unconfirmed."""
        await self.connection.execute(
            "UPDATE outbox SET state = 'unconfirmed' WHERE state = 'sending' AND worker_id = %s AND id <> ALL(%s)",
            (worker_id, list(except_for)),
        )

    async def mark_part_arrived(self, effect: Effect, platform_id: str) -> None:
        """Store the platform id of a part that has arrived. Call it in a transaction."""
        # Lock the conversation first, as deleting it does, or the two could deadlock.
        await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s FOR KEY SHARE", (effect.conversation_id,)
        )
        await self.connection.execute(
            "UPDATE outbox SET platform_ids = platform_ids || %s WHERE conversation_id = %s AND id = %s",
            (Jsonb([platform_id]), effect.conversation_id, effect.id),
        )
        # A channel may receive its own messages, so another row may have this platform id. That conflict must not roll back
        # the update above, or a sent part would count as unknown.
        with suppress(Permanent, Transient):
            async with run_savepoint(self.connection, patience=_PLATFORM_ID_LOCK_SECONDS):
                await self.connection.execute(
                    _SET_PLATFORM_ID,
                    {"name": platform_id, "conversation": effect.conversation_id, "message": effect.outgoing.id},
                )

    async def mark_sent(self, effect: Effect) -> None:
        """Mark a row as sent completely."""
        await self.connection.execute(
            "UPDATE outbox SET state = 'sent', sent_at = clock_timestamp(), error = NULL"
            " WHERE conversation_id = %s AND id = %s",
            (effect.conversation_id, effect.id),
        )

    async def try_again(
        self, effect: Effect, *, error: str | None, delay: float = 0.0, is_unconfirmed: bool = False
    ) -> None:
        """Requeue a row after `delay` seconds; an unconfirmed one is looked up before it is sent again."""
        await self.connection.execute(
            "UPDATE outbox SET state = %s, error = %s, due_at = clock_timestamp() + %s * interval '1 second'"
            " WHERE conversation_id = %s AND id = %s",
            ("unconfirmed" if is_unconfirmed else "queued", error, delay, effect.conversation_id, effect.id),
        )

    async def give_up(self, effect: Effect, *, error: str, unknown: bool) -> None:
        """Mark a row as failed, or as unknown when it may have arrived."""
        await self.connection.execute(
            "UPDATE outbox SET state = %s, error = %s WHERE conversation_id = %s AND id = %s",
            ("unknown" if unknown else "failed", error, effect.conversation_id, effect.id),
        )


def _to_outgoing(row: Any) -> Outgoing:
    arrived: list[str] = row.platform_ids
    if row.notice is None:
        text = row.content or ""
        return Outgoing(
            row.conversation_id,
            row.message_id,
            text,
            row.reply_to,
            row.thread_id,
            reminder_id=row.reminder,
            arrived_ids=arrived,
        )
    buttons = [Button(**button) for button in row.notice.pop("buttons")]
    return Outgoing(row.conversation_id, row.message_id, **row.notice, buttons=buttons, arrived_ids=arrived)

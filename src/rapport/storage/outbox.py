"""The outbox: replies on their way to a channel that has to be sent to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rapport.domain.conversation import Message
from rapport.domain.errors import Permanent, Transient
from rapport.storage.database import Connection, attempt
from rapport.storage.messages import COLUMNS, message_of

# The oldest unsent row of each conversation, so that replies arrive in order even when one has to be tried again.
_CLAIM = f"""
WITH taken AS (
    UPDATE outbox o SET state = 'sending', worker_id = %(worker)s, attempts = o.attempts + 1
    FROM (
        SELECT conversation_id, id FROM outbox q
        WHERE state = 'queued' AND due_at <= clock_timestamp()
          -- Nobody has spoken since: what is overtaken this very moment is taken back the next time.
          AND (spoken IS NULL OR spoken = (SELECT c.spoken FROM conversations c WHERE c.id = q.conversation_id))
          AND NOT EXISTS (SELECT FROM outbox o WHERE o.conversation_id = q.conversation_id
                          AND o.state IN ('queued', 'sending') AND o.seq < q.seq)
        ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) head
    WHERE o.conversation_id = head.conversation_id AND o.id = head.id
    RETURNING o.id AS effect_id, o.conversation_id, o.owner_id AS effect_owner, o.channel, o.attempts, o.message_id
)
SELECT effect_id, effect_owner, channel, attempts, {", ".join("m." + column.strip() for column in COLUMNS.split(","))}
FROM taken JOIN messages m ON m.conversation_id = taken.conversation_id AND m.id = taken.message_id
"""


# Somebody spoke between the commit of a follow-up and its sending: it is taken back, as if it had never been said. SKIP
# LOCKED: never a wait for whoever is just sending it or erasing its conversation, who takes the same rows in another order.
_TAKE_BACK = """
WITH late AS (
    SELECT q.conversation_id, q.id FROM outbox q JOIN conversations c ON c.id = q.conversation_id
    WHERE q.spoken IS NOT NULL AND q.state = 'queued' AND c.spoken <> q.spoken
      AND (%(conversation)s::text IS NULL OR q.conversation_id = %(conversation)s)
    FOR UPDATE OF q SKIP LOCKED FOR KEY SHARE OF c SKIP LOCKED
), overtaken AS (
    DELETE FROM outbox o USING late WHERE o.conversation_id = late.conversation_id AND o.id = late.id
    RETURNING o.conversation_id, o.message_id
), unsaid AS (
    DELETE FROM messages m USING overtaken o WHERE m.conversation_id = o.conversation_id AND m.id = o.message_id
    RETURNING m.conversation_id, m.event_id
), trigger AS (
    DELETE FROM messages m USING unsaid u WHERE m.conversation_id = u.conversation_id AND m.id = u.event_id
)
UPDATE timers t SET state = 'superseded', message_id = NULL FROM unsaid u
WHERE t.conversation_id = u.conversation_id AND t.id = u.event_id
"""


# What the platform calls it (the first part of it, if it was sent in several), so that a reply to it is known as one.
_NAME = """
UPDATE messages m SET platform_id = %(name)s
WHERE m.conversation_id = %(conversation)s AND m.id = %(message)s AND m.platform_id IS NULL
  AND NOT EXISTS (SELECT FROM messages o WHERE o.conversation_id = m.conversation_id AND o.platform_id = %(name)s)
"""

_NAMING_SECONDS = 2.0
"""So long it is waited for whoever stores, this very moment, a message that the platform calls the same."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One message to send."""

    id: str
    owner_id: str
    channel: str
    attempts: int
    message: Message


@dataclass(frozen=True, slots=True)
class Outbox:
    connection: Connection

    async def claim(self, *, worker_id: str) -> Effect | None:
        """The next message to send; nobody else sends it meanwhile. One at a time: what was never tried is never lost."""
        found = await self.connection.execute(_CLAIM, {"worker": worker_id})
        row = await found.fetchone()
        return Effect(row[0], row[1], row[2], row[3], message_of(row[4:])) if row else None

    async def take_back(self, conversation_id: str | None = None) -> int:
        """Follow-ups, everywhere or there, that somebody's words have overtaken before they were sent; returns how many."""
        return (await self.connection.execute(_TAKE_BACK, {"conversation": conversation_id})).rowcount

    async def give_up_own(self, *, worker_id: str) -> None:
        """What this worker was sending when it lost track: it may have arrived."""
        await self.connection.execute(
            "UPDATE outbox SET state = 'unknown' WHERE state = 'sending' AND worker_id = %s", (worker_id,)
        )

    async def sent(self, effect: Effect, *, platform_ids: Sequence[str]) -> None:
        """It has arrived, and this is what the platform calls it. Call it in a transaction."""
        conversation_id = effect.message.conversation_id
        # Whoever erases the conversation locks its row first: so does this, or the two would wait for each other.
        await self.connection.execute("SELECT id FROM conversations WHERE id = %s FOR KEY SHARE", (conversation_id,))
        await self.connection.execute(
            "UPDATE outbox SET state = 'sent', sent_at = clock_timestamp(), platform_ids = %s, error = NULL"
            " WHERE conversation_id = %s AND id = %s",
            (Jsonb(list(platform_ids)), conversation_id, effect.id),
        )
        if not platform_ids:
            return
        # A channel may hear its own messages: then another one has that name by now, or gets it this very moment. That
        # must not undo the mark, or what was sent would count as unknown.
        with suppress(Permanent, Transient):
            async with attempt(self.connection, patience=_NAMING_SECONDS):
                await self.connection.execute(
                    _NAME, {"name": platform_ids[0], "conversation": conversation_id, "message": effect.message.id}
                )

    async def try_again(self, effect: Effect, *, error: str, delay: float) -> None:
        await self.connection.execute(
            "UPDATE outbox SET state = 'queued', error = %s, due_at = clock_timestamp() + %s * interval '1 second'"
            " WHERE conversation_id = %s AND id = %s",
            (error, delay, effect.message.conversation_id, effect.id),
        )

    async def give_up(self, effect: Effect, *, error: str, unknown: bool) -> None:
        """Park it: `unknown` when it may have arrived after all."""
        await self.connection.execute(
            "UPDATE outbox SET state = %s, error = %s WHERE conversation_id = %s AND id = %s",
            ("unknown" if unknown else "failed", error, effect.message.conversation_id, effect.id),
        )

"""The outbox: replies on their way to a channel that has to be sent to."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.errors import Permanent, Transient
from rapport.domain.outgoing import Button, Notice, Outgoing
from rapport.storage.database import Connection, run_savepoint

# The oldest unsent row of each conversation, so that replies arrive in order even when one has to be tried again; with the
# message, if it is one, and what the platform calls the message that it answers. Only what this process has a channel for.
_CLAIM = """
WITH taken AS (
    UPDATE outbox o SET state = 'sending', worker_id = %(worker)s, attempts = o.attempts + 1
    FROM (
        SELECT conversation_id, id, state FROM outbox q
        WHERE state IN ('queued', 'unconfirmed') AND due_at <= clock_timestamp() AND channel = ANY(%(channels)s)
          -- Nobody has spoken since: what is overtaken this very moment is taken back the next time. What has arrived in
          -- part, or may have, can't be taken back.
          AND (user_message_count IS NULL OR state = 'unconfirmed' OR platform_ids <> '[]'
               OR user_message_count = (SELECT c.user_message_count FROM conversations c WHERE c.id = q.conversation_id))
          AND NOT EXISTS (SELECT FROM outbox o WHERE o.conversation_id = q.conversation_id
                          AND o.state IN ('queued', 'sending', 'unconfirmed') AND o.seq < q.seq)
        ORDER BY seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) head
    WHERE o.conversation_id = head.conversation_id AND o.id = head.id
    RETURNING o.*, head.state AS found
)
SELECT t.id, t.channel, t.attempts, t.found = 'unconfirmed',
       t.created_at < clock_timestamp() - %(patience)s * interval '1 second',
       t.conversation_id, t.message_id, t.platform_ids, t.notice, m.content, m.thread_id, asked.platform_id
FROM taken t LEFT JOIN messages m ON m.conversation_id = t.conversation_id AND m.id = t.message_id
LEFT JOIN messages asked ON asked.conversation_id = m.conversation_id AND asked.id = m.reply_to_id
ORDER BY t.seq
"""


# Somebody spoke between the commit of a follow-up and its sending: it is taken back, as if it had never been said. SKIP
# LOCKED: never a wait for whoever is just sending it or erasing its conversation, who takes the same rows in another order.
_TAKE_BACK = """
WITH late AS (
    SELECT q.conversation_id, q.id FROM outbox q JOIN conversations c ON c.id = q.conversation_id
    WHERE q.user_message_count IS NOT NULL AND q.state = 'queued' AND q.platform_ids = '[]' AND c.user_message_count <> q.user_message_count
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
    """One thing to send."""

    id: str
    channel: str
    attempts: int
    is_unconfirmed: bool
    """It may have arrived: somebody was at it when the connection broke, or died."""
    is_overdue: bool
    """It has been tried for so long that it is not worth another try."""
    outgoing: Outgoing

    @property
    def conversation_id(self) -> str:
        return self.outgoing.conversation_id


@dataclass(frozen=True, slots=True)
class Outbox:
    connection: Connection

    async def claim(self, *, worker_id: str, channels: Collection[str], limit: int, patience: float) -> list[Effect]:
        """The next things to send, each to another conversation; nobody else sends them meanwhile. No more than are sent at
        once: what was never tried is never in doubt.

        After `patience` seconds it is not worth another try.
        """
        found = await self.connection.execute(
            _CLAIM, {"worker": worker_id, "channels": list(channels), "limit": limit, "patience": patience}
        )
        rows = await found.fetchall()
        return [Effect(row[0], row[1], row[2], row[3], row[4], _outgoing(*row[5:])) for row in rows]

    async def post(self, owner_id: str, conversation_id: str, notice: Notice, *, name: str, channel: str) -> None:
        """Have something said that is nobody's message; under the same name only once."""
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
        """Follow-ups, everywhere or there, that somebody's words have overtaken before they were sent; returns how many."""
        return (await self.connection.execute(_TAKE_BACK, {"conversation": conversation_id})).rowcount

    async def mark_own_unconfirmed(self, *, worker_id: str, except_for: Collection[str]) -> None:
        """What this worker was sending when it lost track: it may have arrived."""
        await self.connection.execute(
            "UPDATE outbox SET state = 'unconfirmed' WHERE state = 'sending' AND worker_id = %s AND id <> ALL(%s)",
            (worker_id, list(except_for)),
        )

    async def mark_part_arrived(self, effect: Effect, platform_id: str) -> None:
        """A part of it has arrived, and this is what the platform calls it. Call it in a transaction."""
        # Whoever erases the conversation locks its row first: so does this, or the two would wait for each other.
        await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s FOR KEY SHARE", (effect.conversation_id,)
        )
        await self.connection.execute(
            "UPDATE outbox SET platform_ids = platform_ids || %s WHERE conversation_id = %s AND id = %s",
            (Jsonb([platform_id]), effect.conversation_id, effect.id),
        )
        # A channel may hear its own messages: then another one has that name by now, or gets it this very moment. That
        # must not undo the mark, or what was sent would count as unknown.
        with suppress(Permanent, Transient):
            async with run_savepoint(self.connection, patience=_NAMING_SECONDS):
                await self.connection.execute(
                    _NAME, {"name": platform_id, "conversation": effect.conversation_id, "message": effect.outgoing.id}
                )

    async def mark_sent(self, effect: Effect) -> None:
        """All of it has arrived."""
        await self.connection.execute(
            "UPDATE outbox SET state = 'sent', sent_at = clock_timestamp(), error = NULL"
            " WHERE conversation_id = %s AND id = %s",
            (effect.conversation_id, effect.id),
        )

    async def try_again(
        self, effect: Effect, *, error: str | None, delay: float = 0.0, is_unconfirmed: bool = False
    ) -> None:
        """Later; if it is unconfirmed, to look for it first."""
        await self.connection.execute(
            "UPDATE outbox SET state = %s, error = %s, due_at = clock_timestamp() + %s * interval '1 second'"
            " WHERE conversation_id = %s AND id = %s",
            ("unconfirmed" if is_unconfirmed else "queued", error, delay, effect.conversation_id, effect.id),
        )

    async def give_up(self, effect: Effect, *, error: str, unknown: bool) -> None:
        """Park it: `unknown` when it may have arrived after all."""
        await self.connection.execute(
            "UPDATE outbox SET state = %s, error = %s WHERE conversation_id = %s AND id = %s",
            ("unknown" if unknown else "failed", error, effect.conversation_id, effect.id),
        )


def _outgoing(
    conversation_id: str,
    message_id: str,
    arrived: list[str],
    notice: dict[str, Any] | None,
    text: str | None,
    thread_id: str | None,
    answered: str | None,
) -> Outgoing:
    if notice is None:
        return Outgoing(conversation_id, message_id, text or "", answered, thread_id, arrived_ids=arrived)
    buttons = [Button(**button) for button in notice.pop("buttons")]
    return Outgoing(conversation_id, message_id, **notice, buttons=buttons, arrived_ids=arrived)

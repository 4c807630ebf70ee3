"""Deliver due reminders: their messages, outbox rows and next due times in one transaction, in batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.follow_up import QuietHours
from rapport.domain.reminder import Reminder
from rapport.storage.database import Connection
from rapport.storage.reminders.reminders import COLUMNS, make_reminder

# statement_timestamp() is constant, so the scan of reminders_due ends at it. SKIP LOCKED: workers wait neither for each other,
# nor for a turn that is being stored, nor for a deletion.
_LOAD = f"""
SELECT {", ".join(f"r.{column.strip()}" for column in COLUMNS.split(","))}, clock_timestamp() AS now,
       c.unreachable_since IS NOT NULL OR coalesce(c.muted_until > clock_timestamp(), false) AS is_closed, c.kind,
       coalesce(p.time_zone, 'UTC') AS own_zone, p.quiet_from, p.quiet_to
FROM reminders r JOIN conversations c ON c.id = r.conversation_id LEFT JOIN preferences p ON p.owner_id = r.owner_id
WHERE r.state = 'waiting' AND r.due_at <= statement_timestamp()
ORDER BY r.due_at LIMIT %(limit)s
FOR UPDATE OF r SKIP LOCKED FOR NO KEY UPDATE OF c SKIP LOCKED
"""

# The messages of one conversation get times after each other, under its lock.
_DELIVER = """
WITH new AS (
    SELECT *, row_number() OVER (PARTITION BY conversation_id ORDER BY position) AS number
    FROM jsonb_to_recordset(%(rows)s) AS new (conversation_id text, id text, owner_id text, message_id text, content text,
        metadata jsonb, position bigint, state text, local_at timestamp, due_at timestamptz)
), line AS (
    UPDATE conversations c SET (last_at, replied_at) = (
        SELECT at, at FROM (SELECT greatest(clock_timestamp(), c.last_at) + count * interval '1 microsecond' AS at) AS spoken)
    FROM (SELECT conversation_id, count(*) AS count FROM new WHERE content IS NOT NULL GROUP BY conversation_id) AS said
    WHERE c.id = said.conversation_id
    RETURNING c.id, c.owner_id, c.agent_id, c.channel, c.last_at, said.count
), said AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, metadata, created_at, is_bot)
    SELECT line.id, new.message_id, line.owner_id, 'assistant', line.agent_id, coalesce((
               SELECT a.document ->> 'name' FROM agents a WHERE a.id = line.agent_id AND a.owner_id IN (line.owner_id, '*')
               ORDER BY a.owner_id = '*' LIMIT 1), line.agent_id),
           new.content, new.metadata, line.last_at - (line.count - new.number) * interval '1 microsecond', true
    FROM new JOIN line ON line.id = new.conversation_id
    WHERE new.content IS NOT NULL
), effect AS (
    INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id)
    SELECT line.id, new.message_id, line.owner_id, line.channel, new.message_id
    FROM new JOIN line ON line.id = new.conversation_id
    WHERE new.content IS NOT NULL AND line.channel = ANY(%(channels)s) ORDER BY new.position
)
UPDATE reminders r SET state = new.state, local_at = new.local_at, due_at = new.due_at,
    sent_at = CASE WHEN new.content IS NULL THEN r.sent_at ELSE clock_timestamp() END,
    message_id = coalesce(new.message_id, r.message_id)
FROM new WHERE r.conversation_id = new.conversation_id AND r.id = new.id
"""

_RELEASE = """
UPDATE reminders r SET state = 'waiting' FROM (
    SELECT h.conversation_id, h.id FROM reminders h JOIN conversations c ON c.id = h.conversation_id
    WHERE h.state = 'held' AND c.unreachable_since IS NULL AND coalesce(c.muted_until <= clock_timestamp(), true)
    LIMIT %s FOR UPDATE OF h SKIP LOCKED
) AS open WHERE r.conversation_id = open.conversation_id AND r.id = open.id
"""


@dataclass(frozen=True, slots=True)
class DueReminder:
    """A reminder that is due, locked with its conversation."""

    reminder: Reminder
    now: datetime
    is_closed: bool
    """True if its conversation is muted or can't be reached."""
    is_group: bool
    own_zone: str
    quiet: QuietHours | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome for a due reminder: a message or none, and its next state."""

    reminder: Reminder
    """As it will be stored."""
    message_id: str | None = None
    content: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DueReminders:
    connection: Connection

    async def load(self, *, limit: int) -> Sequence[DueReminder]:
        """Return due reminders, the earliest first, locked until the transaction ends."""
        cursor = await self.connection.execute(_LOAD.encode(), {"limit": limit})
        return [_to_due(row) for row in await cursor.fetchall()]

    async def deliver(self, deliveries: Sequence[Delivery], *, channels: Collection[str]) -> None:
        """Store the outcomes. Messages of conversations of `channels` are put into the outbox."""
        rows = [
            {
                "conversation_id": each.reminder.conversation_id,
                "id": each.reminder.id,
                "message_id": each.message_id,
                "content": each.content,
                "metadata": each.metadata,
                "position": position,
                "state": each.reminder.state,
                "local_at": each.reminder.schedule.local.isoformat(),
                "due_at": each.reminder.due_at.isoformat(),
            }
            for position, each in enumerate(deliveries)
        ]
        await self.connection.execute(_DELIVER.encode(), {"rows": Jsonb(rows), "channels": list(channels)})

    async def release(self, *, limit: int) -> int:
        """Let held reminders of conversations that are open again wait; return how many."""
        return (await self.connection.execute(_RELEASE.encode(), (limit,))).rowcount

    async def get_seconds_to_next(self) -> float | None:
        """Return the seconds until the next reminder is due, by the database's clock; None if none waits."""
        cursor = await self.connection.execute(
            "SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 AS seconds FROM reminders WHERE state = 'waiting'"
        )
        row = await cursor.fetchone()
        return row.seconds if row else None


def _to_due(row: Any) -> DueReminder:
    values = row._asdict()
    now, is_closed, kind = values.pop("now"), values.pop("is_closed"), values.pop("kind")
    own_zone, begin, end = values.pop("own_zone"), values.pop("quiet_from"), values.pop("quiet_to")
    quiet = None if begin is None else QuietHours(own_zone, begin, end)
    return DueReminder(make_reminder(values), now, is_closed, kind == "group", own_zone, quiet)

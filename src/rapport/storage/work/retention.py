"""Delete finished rows that are older than the retention time, in small batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ulid import ULID

from rapport.domain.follow_up import MAX_COMPARED_FOLLOW_UPS
from rapport.storage.database import Connection

CONVERSATIONS_PER_BATCH = 200
ROWS_PER_BATCH = 500
_CLOCK_MARGIN = timedelta(days=1)

# A scan of the primary key: no further index is needed, and each statement is short however many conversations there are.
_NEXT_CONVERSATIONS = "SELECT id FROM conversations WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"

# Ids of events and timers begin with their time, so a range of the primary key holds all old rows and nearly no others. The
# row's own time, by the database's clock, decides.
_BEFORE = "clock_timestamp() - %(age)s"

_DELETE: Mapping[str, str] = {
    "events": f"""
        DELETE FROM events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM events WHERE conversation_id = ANY(%(conversations)s) AND id < %(newest)s
              AND state = 'done' AND finished_at < {_BEFORE} LIMIT %(limit)s))
    """,
    # A reply that was sent in several parts is found by the number of any part (Messages.find_by_platform_id): its row stays.
    "outbox": f"""
        DELETE FROM outbox WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM outbox WHERE conversation_id = ANY(%(conversations)s)
              AND state IN ('sent', 'failed', 'unknown') AND coalesce(sent_at, created_at) < {_BEFORE}
              AND jsonb_array_length(platform_ids) <= 1
              AND (notice IS NULL OR EXISTS (
                  SELECT FROM messages m WHERE m.conversation_id = outbox.conversation_id AND m.platform_id IS NOT NULL
                    AND m.created_at > outbox.created_at))
            LIMIT %(limit)s))
    """,
    # A question that waits for a decision stays.
    "tool_calls": f"""
        DELETE FROM tool_calls WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM tool_calls WHERE conversation_id = ANY(%(conversations)s) AND message_id < %(newest)s
              AND created_at < {_BEFORE} AND (state <> 'asked' OR expires_at < clock_timestamp()) LIMIT %(limit)s))
    """,
    "reminders": f"""
        DELETE FROM reminders WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM reminders WHERE conversation_id = ANY(%(conversations)s) AND id < %(newest)s
              AND state IN ('done', 'cancelled') AND coalesce(sent_at, greatest(due_at, created_at)) < {_BEFORE} LIMIT %(limit)s))
    """,
    # The latest delivered follow-ups of a conversation stay: a topic is brought up once (ADR 35).
    "timers": f"""
        DELETE FROM timers WHERE ctid = ANY(ARRAY(
            SELECT t.ctid FROM timers t WHERE t.conversation_id = ANY(%(conversations)s) AND t.id < %(newest)s
              AND t.state NOT IN ('pending', 'fired') AND coalesce(t.ended_at, t.fired_at, t.created_at) < {_BEFORE}
              AND (t.state <> 'delivered' OR (
                  SELECT count(*) FROM timers n WHERE n.owner_id = t.owner_id AND n.conversation_id = t.conversation_id
                    AND n.state = 'delivered' AND n.fired_at > t.fired_at) >= {MAX_COMPARED_FOLLOW_UPS})
            LIMIT %(limit)s))
    """,
}

_DELETE_SESSIONS = """
DELETE FROM sessions WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM sessions WHERE expires_at <= clock_timestamp() LIMIT %(limit)s))
"""

TABLES = (*_DELETE, "sessions")


@dataclass(frozen=True, slots=True)
class Retention:
    """Statements that delete old rows. Each is its own transaction and deletes at most ROWS_PER_BATCH rows."""

    connection: Connection

    async def list_conversations(self, *, after: str) -> list[str]:
        """Return the ids of the next conversations after the given id; an empty list at the end."""
        cursor = await self.connection.execute(_NEXT_CONVERSATIONS, {"after": after, "limit": CONVERSATIONS_PER_BATCH})
        return [row.id for row in await cursor.fetchall()]

    async def delete_old(self, table: str, conversations: Sequence[str], *, age: timedelta) -> int:
        """Delete finished rows of these conversations that are older than `age`; return how many, ROWS_PER_BATCH at most."""
        newest = ULID.from_datetime(datetime.now(UTC) - age + _CLOCK_MARGIN)
        values: dict[str, Any] = {
            "conversations": list(conversations),
            "newest": str(newest),
            "age": age,
            "limit": ROWS_PER_BATCH,
        }
        return (await self.connection.execute(_DELETE[table].encode(), values)).rowcount

    async def delete_expired_sessions(self) -> int:
        """Delete browser sessions that have ended; return how many, ROWS_PER_BATCH at most."""
        return (await self.connection.execute(_DELETE_SESSIONS, {"limit": ROWS_PER_BATCH})).rowcount

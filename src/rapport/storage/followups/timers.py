"""Store timers. People and the planner set, move and cancel them; a due timer becomes an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import errors

from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.follow_up import EXPIRY_SECONDS, MIN_EXPIRY_SECONDS, Timer, TriggerType
from rapport.domain.follow_up_requests import MAX_PENDING_TIMERS
from rapport.domain.ids import is_id, new_id
from rapport.storage.conversations.conversations import Conversations, no_such_conversation
from rapport.storage.database import Connection

_COLUMNS = (
    "id, conversation_id, timer_id, owner_id, trigger_type, reason, topic, origin, state, gate, message_id, due_at,"
    " created_at, fired_at, ended_at"
)

# The conversation's count of messages is copied: if a person writes while this runs, the timer has an older count and
# never fires.
_SET = f"""
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, reason, topic, origin, user_message_count, due_at, sources)
SELECT c.id, %(id)s, %(timer)s, c.owner_id, %(type)s, %(reason)s, %(topic)s, %(origin)s, c.user_message_count,
       clock_timestamp() + %(delay)s * interval '1 second', %(sources)s::text[]
FROM conversations c WHERE c.id = %(conversation)s AND c.owner_id = %(owner)s
  AND (%(user_message_count)s::bigint IS NULL OR c.user_message_count = %(user_message_count)s)
  AND (EXISTS (SELECT FROM timers w WHERE w.conversation_id = c.id AND w.timer_id = %(timer)s AND w.state = 'pending')
       OR (SELECT count(*) FROM (SELECT FROM timers w WHERE w.conversation_id = c.id AND w.state = 'pending'
                                 LIMIT %(most)s) AS waiting) < %(most)s)
ON CONFLICT (conversation_id, timer_id) WHERE state = 'pending' DO UPDATE
SET trigger_type = excluded.trigger_type, reason = excluded.reason, topic = excluded.topic, origin = excluded.origin,
    user_message_count = excluded.user_message_count, due_at = excluded.due_at, sources = excluded.sources
WHERE excluded.origin = 'user' OR timers.origin = 'planner'  -- the planner never changes a person's timer
RETURNING {_COLUMNS}
"""

# statement_timestamp() is constant, so the scan of timers_due ends at it; with clock_timestamp() it would read all pending
# rows. SKIP LOCKED: workers wait neither for each other nor for a deletion. Superseded and expired timers fire no more.
# CASE stops at the first match: the agent's expiry is read only for timers that are overdue by more than any agent's least.
_FIRE = """
WITH due AS MATERIALIZED (
    SELECT t.conversation_id, t.id, c.user_message_count, CASE
        WHEN t.user_message_count <> c.user_message_count THEN 'superseded'
        WHEN t.due_at >= clock_timestamp() - %(least)s * interval '1 second' THEN 'fired'
        WHEN t.due_at < clock_timestamp() - interval '1 second' * coalesce((
            SELECT (a.document -> 'autonomy' ->> 'expiry_seconds')::float8 FROM agents a
            WHERE a.id = c.agent_id AND a.owner_id IN (c.owner_id, '*') ORDER BY a.owner_id = '*' LIMIT 1
        ), %(default)s) THEN 'expired'
        ELSE 'fired' END AS state
    FROM timers t JOIN conversations c ON c.id = t.conversation_id
    WHERE t.state = 'pending' AND t.due_at <= statement_timestamp()
    ORDER BY t.due_at LIMIT %(limit)s
    FOR UPDATE OF t SKIP LOCKED FOR KEY SHARE OF c SKIP LOCKED
), gone AS (
    UPDATE timers t SET state = due.state, fired_at = clock_timestamp(),
        ended_at = CASE WHEN due.state <> 'fired' THEN clock_timestamp() END
    FROM due WHERE t.conversation_id = due.conversation_id AND t.id = due.id
    RETURNING t.conversation_id, t.id, t.owner_id, t.trigger_type, t.reason, t.state, t.due_at, t.fired_at, due.user_message_count
), made AS (
    INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count, trigger_type, trigger_reason)
    SELECT conversation_id, id, owner_id, 'queued', '', user_message_count, trigger_type, reason FROM gone
    WHERE state = 'fired' ORDER BY due_at
)
SELECT conversation_id, id, trigger_type, state, extract(epoch FROM fired_at - due_at)::float8 AS lateness_seconds FROM gone
"""


EXPIRY = {"least": MIN_EXPIRY_SECONDS, "default": EXPIRY_SECONDS}


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """A timer that was due, and how late it was processed."""

    conversation_id: str
    id: str
    trigger_type: TriggerType
    state: Literal["fired", "expired", "superseded"]
    lateness_seconds: float


@dataclass(frozen=True, slots=True)
class Timers:
    connection: Connection

    async def set(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        timer_id: str,
        trigger_type: TriggerType,
        delay: float,
        reason: str | None = None,
        topic: str = "",
        origin: Literal["planner", "user"] = "user",
        sources: Sequence[str] = (),
        user_message_count: int | None = None,
        row_id: str | None = None,
    ) -> Timer | None:
        """Set the timer of that name, or move it. A new one gets the id `row_id` if given; a moved one keeps its own.

        Returns None if the planner would move a person's timer, or if a person has written since `user_message_count`.
        Raises NotFound without such a conversation, InvalidInput if too many timers are pending.
        """
        if not is_id(conversation_id):
            raise no_such_conversation(conversation_id)
        try:
            cursor = await self.connection.execute(
                _SET,
                {
                    "conversation": conversation_id,
                    "owner": owner_id,
                    "id": row_id or new_id(),
                    "timer": timer_id,
                    "type": trigger_type,
                    "reason": reason,
                    "topic": topic,
                    "origin": origin,
                    "sources": list(sources),
                    "delay": delay,
                    "user_message_count": user_message_count,
                    "most": MAX_PENDING_TIMERS,
                },
            )
        except errors.ForeignKeyViolation as error:  # the conversation was erased while the insert waited for its row
            raise no_such_conversation(conversation_id) from error
        row = await cursor.fetchone()
        if row is None and user_message_count is None:
            await Conversations(self.connection).get(owner_id, conversation_id)  # raises NotFound if it is missing
            raise InvalidInput(
                f"{MAX_PENDING_TIMERS:,} follow-ups wait in this conversation already: cancel some first."
            )
        return _to_timer(row) if row else None

    async def list_pending(self, owner_id: str, conversation_id: str | None = None) -> list[Timer]:
        """Return the pending timers of a conversation, or of all of the owner's, the next first."""
        return await self._list("state = 'pending'", owner_id, conversation_id, order="due_at, id", limit=1_000)

    async def list_past(self, owner_id: str, conversation_id: str | None = None, *, limit: int) -> list[Timer]:
        """Return the latest fired timers of a conversation, or of all of the owner's, the newest first."""
        return await self._list(
            "fired_at IS NOT NULL", owner_id, conversation_id, order="fired_at DESC, id DESC", limit=limit
        )

    async def _list(
        self, state: str, owner_id: str, conversation_id: str | None, *, order: str, limit: int
    ) -> list[Timer]:
        # Two statements, so that each has its own plan: the one for a conversation never reads others.
        where = "" if conversation_id is None else " AND conversation_id = %(conversation)s"
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM timers WHERE owner_id = %(owner)s AND {state}{where}"
            f" ORDER BY {order} LIMIT %(limit)s".encode(),
            {"owner": owner_id, "conversation": conversation_id, "limit": limit},
        )
        return [_to_timer(row) for row in await cursor.fetchall()]

    async def count_pending(self) -> int:
        """Return the number of pending timers of all owners."""
        cursor = await self.connection.execute("SELECT count(*) AS pending FROM timers WHERE state = 'pending'")
        row = await cursor.fetchone()
        assert row is not None
        return row.pending

    async def change(
        self,
        owner_id: str,
        conversation_id: str,
        timer_id: str,
        *,
        delay: float | None = None,
        trigger_type: TriggerType | None = None,
        reason: str | None = None,
    ) -> Timer | None:
        """Change the delay, type or reason of a pending timer; return None if none of that name is pending.

        An empty reason removes it.
        """
        cursor = await self.connection.execute(
            "UPDATE timers SET due_at = coalesce(clock_timestamp() + %(delay)s * interval '1 second', due_at),"
            " trigger_type = coalesce(%(type)s, trigger_type), reason = nullif(coalesce(%(reason)s, reason), '')"
            " WHERE conversation_id = %(conversation)s AND timer_id = %(timer)s AND owner_id = %(owner)s AND state = 'pending'"
            f" RETURNING {_COLUMNS}",
            {
                "delay": delay,
                "type": trigger_type,
                "reason": reason,
                "conversation": conversation_id,
                "timer": timer_id,
                "owner": owner_id,
            },
        )
        row = await cursor.fetchone()
        return _to_timer(row) if row else None

    async def cancel(
        self, owner_id: str, conversation_id: str, timer_id: str, *, origin: Literal["planner", "user"] | None = None
    ) -> bool:
        """Cancel a pending timer; return False if none of that name is pending. With `origin`, only if that one set it."""
        cursor = await self.connection.execute(
            "DELETE FROM timers WHERE conversation_id = %(conversation)s AND timer_id = %(timer)s AND owner_id = %(owner)s"
            " AND state = 'pending' AND (%(origin)s::text IS NULL OR origin = %(origin)s)",
            {"conversation": conversation_id, "timer": timer_id, "owner": owner_id, "origin": origin},
        )
        return cursor.rowcount > 0

    async def fire(self, *, limit: int) -> list[FiredTimer]:
        """Turn up to `limit` due timers into events; those overdue by more than their agent's expiry expire."""
        cursor = await self.connection.execute(_FIRE, {"limit": limit, **EXPIRY})
        return [FiredTimer(**row._asdict()) for row in await cursor.fetchall()]

    async def get_seconds_to_next(self) -> float | None:
        """Return the seconds until the next timer is due, by the database's clock; None if none is pending."""
        cursor = await self.connection.execute(
            "SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 AS seconds FROM timers WHERE state = 'pending'"
        )
        row = await cursor.fetchone()
        return row.seconds if row else None


def no_such_timer(timer_id: str) -> NotFound:
    """Return the error for a timer that never existed, was cancelled or has fired."""
    return NotFound(f"No follow-up {timer_id[:64]!r} waits in this conversation: it may have fired or been cancelled.")


def _to_timer(row: Any) -> Timer:
    return Timer(**row._asdict())

"""Store events: accepted with their message, claimed by one worker at a time, finished with their reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from rapport.domain.conversation import extract_text
from rapport.domain.errors import RapportError
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.domain.follow_up import PLANNED_TIMER_ID, Plan
from rapport.domain.ids import new_id
from rapport.domain.model_problems import BREAKER_FAILURES, BREAKER_WINDOW_SECONDS
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message
from rapport.storage.prepared_statement import PreparedStatement
from rapport.storage.usage import ADD_USAGE_WITH_REPLY, usage_parameters

NOW_IN_LINE = "SELECT greatest(clock_timestamp(), conversations.last_at + interval '1 microsecond') AS at"
"""The time of a message that the agent stores now: later than all earlier ones, even if the clock went back."""

NOTIFY_CHANNEL = "rapport"
"""The NOTIFY channel. A notification is only a hint: a process that misses it finds the change by polling."""

# End the event and store its reply in one statement, if the fence is still ours; otherwise change nothing.
_FINISH = f"""
WITH held AS (
    SELECT id FROM conversations WHERE id = %(conversation)s FOR NO KEY UPDATE  -- first, as deleting it does: no deadlock
), event AS (
    UPDATE events SET state = 'done', finished_at = clock_timestamp(), error = NULL
    FROM held
    WHERE conversation_id = held.id AND events.id = %(event)s AND state = 'running' AND fence = %(fence)s
    RETURNING events.id, events.user_message_count
), line AS (
    UPDATE conversations
    SET (last_at, replied_at) = (SELECT at, at FROM ({NOW_IN_LINE}) AS reply_time), open_event_count = open_event_count - 1,
        -- The breaker: a success closes it; a failure opens it if it is the trial after a pause or the last of too many.
        model_failed_at = CASE %(failed)s::boolean WHEN true THEN
            (model_failed_at || clock_timestamp())[greatest(1, cardinality(model_failed_at) + 2 - %(failures)s):]
            WHEN false THEN '{{}}' ELSE model_failed_at END,
        breaker_open_until = CASE %(failed)s::boolean WHEN true THEN CASE
                WHEN breaker_open_until IS NOT NULL OR model_failed_at[cardinality(model_failed_at) + 2 - %(failures)s]
                    >= clock_timestamp() - %(rest)s * interval '1 second'
                THEN clock_timestamp() + %(rest)s * interval '1 second' END
            WHEN false THEN NULL ELSE breaker_open_until END
    FROM event WHERE conversations.id = %(conversation)s
    RETURNING conversations.last_at, open_event_count, event.id AS event_id, conversations.user_message_count, event.user_message_count AS count_at_event
), reply AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, blocks, reply_to_id,
                          event_id, sources, metadata, created_at, is_bot, thread_id)
    SELECT %(conversation)s, %(id)s, %(owner)s, 'assistant', %(author_id)s, %(author_name)s, %(text)s, %(blocks)s,
           %(answered)s, line.event_id, %(sources)s, %(metadata)s, line.last_at, true,
           (SELECT thread_id FROM messages WHERE conversation_id = %(conversation)s AND id = %(answered)s)
    FROM line
    RETURNING {COLUMNS}
), effect AS (
    INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id)
    SELECT %(conversation)s, reply.id, %(owner)s, %(channel)s, reply.id FROM reply WHERE %(push)s
){ADD_USAGE_WITH_REPLY}{{planned}}
SELECT line.open_event_count > 0 AS has_more, reply.* FROM line, reply
"""

# Set the follow-up that was planned with the reply, unless a user has written since the event. The delay counts from the
# reply that this statement stores.
PLANNED_WITH_REPLY = f"""
, planned AS (
    INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, reason, topic, origin, user_message_count, due_at, sources)
    SELECT %(conversation)s, %(plan_id)s, '{PLANNED_TIMER_ID}', %(owner)s, %(plan_type)s, %(plan_reason)s, %(plan_topic)s, 'planner',
           line.user_message_count, clock_timestamp() + %(plan_delay)s * interval '1 second', %(plan_sources)s::text[]
    FROM line WHERE line.user_message_count = line.count_at_event
    ON CONFLICT (conversation_id, timer_id) WHERE state = 'pending' DO UPDATE
    SET trigger_type = excluded.trigger_type, reason = excluded.reason, topic = excluded.topic,
        origin = excluded.origin, user_message_count = excluded.user_message_count, due_at = excluded.due_at, sources = excluded.sources
    WHERE timers.origin = 'planner'  -- a timer set by a user is not replaced
)"""

_FINISH_ONLY = PreparedStatement(_FINISH.replace("{planned}", ""))
_FINISH_AND_PLAN = PreparedStatement(_FINISH.replace("{planned}", PLANNED_WITH_REPLY))

_CLAIMED = (
    "e.id, e.conversation_id, e.owner_id, e.fence, e.attempts, c.agent_id, c.kind, c.channel, e.accepted_by,"
    " e.user_message_count, e.trigger_type, e.trigger_reason, c.handle, e.cancel_requested AS is_cancelled, e.resumes"
)

_RUN = "state = 'running', worker_id = %(worker)s, fence = e.fence + 1, attempts = e.attempts + 1, error = NULL"

# The first queued event of each conversation without a running one. SKIP LOCKED: workers do not wait for each other.
_CLAIM = f"""
UPDATE events e SET {_RUN} FROM conversations c, (
    SELECT conversation_id, id FROM events q
    WHERE state = 'queued' AND {{mine}}
      -- Delays are a few seconds at most: an event due much later was delayed before the clock went back.
      AND due_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '10 seconds'
      AND (%(conversation)s::text IS NULL OR q.conversation_id = %(conversation)s)
      AND NOT EXISTS (SELECT FROM events o WHERE o.conversation_id = q.conversation_id AND o.state = 'running')
      AND NOT EXISTS (SELECT FROM events o WHERE o.conversation_id = q.conversation_id AND o.state = 'queued' AND {{before}})
    ORDER BY seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) head
WHERE e.conversation_id = head.conversation_id AND e.id = head.id AND c.id = e.conversation_id
RETURNING {_CLAIMED}
"""
_CLAIM_WAITING = _CLAIM.format(mine="trigger_type IS NULL", before="o.trigger_type IS NULL AND o.seq < q.seq")
_CLAIM_FOLLOWUPS = _CLAIM.format(
    mine="trigger_type IS NOT NULL",
    before="o.trigger_type IS NULL) AND NOT EXISTS (SELECT FROM events o WHERE o.conversation_id = q.conversation_id"
    " AND o.trigger_type IS NOT NULL AND o.state = 'queued' AND o.seq < q.seq",
)


class Superseded(RapportError):
    """Raised when another worker has this event or it is gone: its reply must not be shown."""


@dataclass(frozen=True, slots=True)
class Events:
    """Claim, finish, requeue and cancel events."""

    connection: Connection

    async def finish(
        self, event: ClaimedEvent, reply: Reply, *, agent_name: str, push: bool, plan: Plan | None = None
    ) -> Finished:
        """Store the reply with its usage and end the event atomically; raise Superseded if the event is not ours any more.

        The planned follow-up is stored too, if no user has written since the event.
        """
        rows = await (_FINISH_AND_PLAN if plan else _FINISH_ONLY).execute(
            self.connection,
            {
                **plan_parameters(plan),
                **usage_parameters(event, reply.usage),
                "conversation": event.conversation_id,
                "event": event.id,
                "answered": event.message_id,
                "fence": event.fence,
                "id": new_id(),
                "owner": event.owner_id,
                "author_id": event.agent_id,
                "author_name": agent_name,
                "text": extract_text(reply.content),
                "blocks": None if isinstance(reply.content, str) else Jsonb(list(reply.content)),
                "sources": Jsonb(list(reply.sources)),
                "metadata": Jsonb(dict(reply.metadata)),
                "failed": reply.model_failed,
                "failures": BREAKER_FAILURES,
                "rest": BREAKER_WINDOW_SECONDS,
                "channel": event.channel,
                "push": push,
            },
        )
        if not rows:
            raise Superseded("Another worker has taken over this event, or its conversation was deleted.")
        [row] = rows
        return Finished(to_message(row), has_more=row.has_more)

    async def claim_waiting(
        self, *, worker_id: str, limit: int = 1, conversation_id: str | None = None, followups: bool = False
    ) -> list[ClaimedEvent]:
        """Claim up to `limit` queued events of conversations without a running event, and return them.

        With `followups` claim events of timers instead: they wait until all messages of the conversation are answered.
        """
        try:
            cursor = await self.connection.execute(
                (_CLAIM_FOLLOWUPS if followups else _CLAIM_WAITING).encode(),
                {"worker": worker_id, "limit": limit, "conversation": conversation_id},
            )
        except UniqueViolation:
            return []  # another worker claimed one of these conversations concurrently; the next poll tries again
        return [ClaimedEvent(**row._asdict()) for row in await cursor.fetchall()]

    async def put_back(self, event: ClaimedEvent, *, error: str | None, delay: float) -> bool:
        """Requeue an event, due in `delay` seconds; return False if it was not ours any more."""
        cursor = await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, error = %s, due_at = clock_timestamp() + %s * interval '1 second'"
            " WHERE conversation_id = %s AND id = %s AND state = 'running' AND fence = %s",
            (error, delay, event.conversation_id, event.id, event.fence),
        )
        return cursor.rowcount == 1

    async def request_cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> str | None:
        """Request that the conversation's running turn stops; return its event's id, None if nothing runs.

        With a message's id request it only for the turn that answers it, also if it has not begun.
        """
        which = "state = 'running'" if message_id is None else "id = %(message)s AND state <> 'done'"
        cursor = await self.connection.execute(
            "UPDATE events SET cancel_requested = true"
            f" WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND {which} RETURNING id".encode(),
            {"conversation": conversation_id, "owner": owner_id, "message": message_id},
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        await self.hint(f"cancel {row.id}")
        return row.id

    async def list_cancelled(self, *, worker_id: str) -> list[str]:
        """Return ids of this worker's running events with a cancel request."""
        cursor = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running' AND cancel_requested",
            (worker_id,),
        )
        return [row.id for row in await cursor.fetchall()]

    async def list_running(self, worker_id: str) -> set[str]:
        """Return ids of the events that are stored as running on this worker."""
        cursor = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running'", (worker_id,)
        )
        return {row.id for row in await cursor.fetchall()}

    async def requeue_orphaned(self, worker_id: str, event_ids: set[str]) -> None:
        """Requeue events that are stored as running on this worker but are not."""
        await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp()"
            " WHERE worker_id = %s AND state = 'running' AND id = ANY(%s)",
            (worker_id, list(event_ids)),
        )

    async def hint(self, text: str) -> None:
        """Notify the other processes."""
        await self.connection.execute("SELECT pg_notify(%s, %s)", (NOTIFY_CHANNEL, text))


def plan_parameters(plan: Plan | None) -> dict[str, Any]:
    """Return the parameters of PLANNED_WITH_REPLY."""
    if plan is None:
        return {}
    return {
        "plan_id": new_id(),
        "plan_type": plan.trigger_type,
        "plan_reason": plan.reason,
        "plan_topic": plan.topic,
        "plan_delay": plan.delay,
        "plan_sources": list(plan.sources),
    }

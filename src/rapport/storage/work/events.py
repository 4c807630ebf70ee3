"""Events: accepted with their message, claimed by one worker at a time, finished with their reply."""

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

NOW_IN_LINE = "SELECT greatest(clock_timestamp(), conversations.last_at + interval '1 microsecond') AS at"
"""When what the agent says now is said: later than all that was said before, even if the clock went back."""

NOTIFY_CHANNEL = "rapport"
"""The NOTIFY channel. What is said on it is only a hint: whoever misses it finds out by polling."""

# Ends an event, if the fence says that it is still ours, and stores its reply: all or, if it isn't ours, nothing.
_FINISH = f"""
WITH held AS (
    SELECT id FROM conversations WHERE id = %(conversation)s FOR NO KEY UPDATE  -- first, as whoever erases it does
), event AS (
    UPDATE events SET state = 'done', finished_at = clock_timestamp(), error = NULL
    FROM held
    WHERE conversation_id = held.id AND events.id = %(event)s AND state = 'running' AND fence = %(fence)s
    RETURNING events.id, events.user_message_count
), line AS (
    UPDATE conversations
    SET (last_at, replied_at) = (SELECT at, at FROM ({NOW_IN_LINE}) AS spoken_at), open_event_count = open_event_count - 1,
        -- The breaker: an answer closes it; a failure opens it when it is the trial after a rest, or the last of too many.
        model_failed_at = CASE %(failed)s::boolean WHEN true THEN
            (model_failed_at || clock_timestamp())[greatest(1, cardinality(model_failed_at) + 2 - %(failures)s):]
            WHEN false THEN '{{}}' ELSE model_failed_at END,
        breaker_open_until = CASE %(failed)s::boolean WHEN true THEN CASE
                WHEN breaker_open_until IS NOT NULL OR model_failed_at[cardinality(model_failed_at) + 2 - %(failures)s]
                    >= clock_timestamp() - %(rest)s * interval '1 second'
                THEN clock_timestamp() + %(rest)s * interval '1 second' END
            WHEN false THEN NULL ELSE breaker_open_until END
    FROM event WHERE conversations.id = %(conversation)s
    RETURNING conversations.last_at, open_event_count, event.id AS event_id, conversations.user_message_count, event.user_message_count AS heard
), reply AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, blocks, reply_to_id,
                          event_id, sources, metadata, created_at, is_bot, thread_id)
    SELECT %(conversation)s, %(id)s, %(owner)s, 'assistant', %(author_id)s, %(author_name)s, %(text)s, %(blocks)s,
           line.event_id, line.event_id, %(sources)s, %(metadata)s, line.last_at, true,
           (SELECT thread_id FROM messages WHERE conversation_id = %(conversation)s AND id = %(event)s)
    FROM line
    RETURNING {COLUMNS}
), effect AS (
    INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id)
    SELECT %(conversation)s, reply.id, %(owner)s, %(channel)s, reply.id FROM reply WHERE %(push)s
){{planned}}
SELECT line.open_event_count > 0, reply.* FROM line, reply
"""

# Part of a commit: the follow-up that was planned with a reply, unless somebody has spoken since. The silence is dated from
# our own message, which is being stored.
PLANNED_WITH_REPLY = f"""
, planned AS (
    INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, reason, topic, origin, user_message_count, due_at, sources)
    SELECT %(conversation)s, %(plan_id)s, '{PLANNED_TIMER_ID}', %(owner)s, %(plan_type)s, %(plan_reason)s, %(plan_topic)s, 'planner',
           line.user_message_count, clock_timestamp() + %(plan_delay)s * interval '1 second', %(plan_sources)s::text[]
    FROM line WHERE line.user_message_count = line.heard
    ON CONFLICT (conversation_id, timer_id) WHERE state = 'pending' DO UPDATE
    SET trigger_type = excluded.trigger_type, reason = excluded.reason, topic = excluded.topic,
        origin = excluded.origin, user_message_count = excluded.user_message_count, due_at = excluded.due_at, sources = excluded.sources
    WHERE timers.origin = 'planner'  -- what somebody has set is theirs
)"""

_FINISH_ONLY = _FINISH.replace("{planned}", "").encode()
_FINISH_AND_PLAN = _FINISH.replace("{planned}", PLANNED_WITH_REPLY).encode()

_CLAIMED = (
    "e.id, e.conversation_id, e.owner_id, e.fence, e.attempts, c.agent_id, c.kind, c.channel, e.accepted_by,"
    " e.user_message_count, e.trigger_type, e.trigger_reason, c.handle, e.cancel_requested"
    # the order of ClaimedEvent's fields
)

_RUN = "state = 'running', worker_id = %(worker)s, fence = e.fence + 1, attempts = e.attempts + 1, error = NULL"

# The heads of all lines where nobody is being served. SKIP LOCKED: two workers never wait for each other here.
_CLAIM = f"""
UPDATE events e SET {_RUN} FROM conversations c, (
    SELECT conversation_id, id FROM events q
    WHERE state = 'queued' AND {{mine}}
      -- Nothing is put off by more than seconds: what seems due much later was put off before the clock went back.
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
    """Somebody else has this event now, or it is gone: what was made for it must not be shown."""


@dataclass(frozen=True, slots=True)
class Events:
    connection: Connection

    async def finish(
        self, event: ClaimedEvent, reply: Reply, *, agent_name: str, push: bool, plan: Plan | None = None
    ) -> Finished:
        """Store the reply and end the event, both or neither; raises Superseded if the event isn't ours any more.

        With the reply goes the follow-up that was planned, if nobody has spoken since the event.
        """
        found = await self.connection.execute(
            _FINISH_AND_PLAN if plan else _FINISH_ONLY,
            {
                **plan_parameters(plan),
                "conversation": event.conversation_id,
                "event": event.id,
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
        row = await found.fetchone()
        if row is None:
            raise Superseded("Another worker has taken over this event, or its conversation was deleted.")
        return Finished(to_message(row[1:]), has_more=row[0])

    async def claim_waiting(
        self, *, worker_id: str, limit: int = 1, conversation_id: str | None = None, followups: bool = False
    ) -> list[ClaimedEvent]:
        """Up to `limit` events that wait and whose conversations are not being served; they are this worker's now.

        What people said, or with `followups` what timers became: those wait while anybody waits for an answer there.
        """
        try:
            found = await self.connection.execute(
                (_CLAIM_FOLLOWUPS if followups else _CLAIM_WAITING).encode(),
                {"worker": worker_id, "limit": limit, "conversation": conversation_id},
            )
        except UniqueViolation:
            return []  # somebody else began to serve one of these conversations at the same moment; look again later
        return [ClaimedEvent(*row) for row in await found.fetchall()]

    async def put_back(self, event: ClaimedEvent, *, error: str | None, delay: float) -> bool:
        """Give an event back to the queue, due in `delay` seconds; False if it wasn't ours any more."""
        found = await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, error = %s, due_at = clock_timestamp() + %s * interval '1 second'"
            " WHERE conversation_id = %s AND id = %s AND state = 'running' AND fence = %s",
            (error, delay, event.conversation_id, event.id, event.fence),
        )
        return found.rowcount == 1

    async def request_cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> str | None:
        """Ask whoever runs the conversation's turn to stop it; returns that event's id, None if nothing runs.

        With a message's id only the turn that answers it, also if it has yet to begin.
        """
        which = "state = 'running'" if message_id is None else "id = %(message)s AND state <> 'done'"
        found = await self.connection.execute(
            "UPDATE events SET cancel_requested = true"
            f" WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND {which} RETURNING id".encode(),
            {"conversation": conversation_id, "owner": owner_id, "message": message_id},
        )
        row = await found.fetchone()
        if row is None:
            return None
        await self.hint(f"cancel {row[0]}")
        return row[0]

    async def list_cancelled(self, *, worker_id: str) -> list[str]:
        """Which of this worker's running events somebody asked to cancel."""
        found = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running' AND cancel_requested",
            (worker_id,),
        )
        return [row[0] for row in await found.fetchall()]

    async def list_running(self, worker_id: str) -> set[str]:
        """What the database believes this worker is running."""
        found = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running'", (worker_id,)
        )
        return {row[0] for row in await found.fetchall()}

    async def requeue_orphaned(self, worker_id: str, event_ids: set[str]) -> None:
        """Put back events that this worker holds without running them."""
        await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp()"
            " WHERE worker_id = %s AND state = 'running' AND id = ANY(%s)",
            (worker_id, list(event_ids)),
        )

    async def hint(self, text: str) -> None:
        await self.connection.execute("SELECT pg_notify(%s, %s)", (NOTIFY_CHANNEL, text))


def plan_parameters(plan: Plan | None) -> dict[str, Any]:
    """What PLANNED_WITH_REPLY wants to know."""
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

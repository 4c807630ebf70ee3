"""Events: accepted with their message, claimed by one worker at a time, finished with their reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncCursor
from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from rapport.domain.breaker import FAILURES, SECONDS
from rapport.domain.conversation import Incoming, Message, text_of
from rapport.domain.errors import RapportError
from rapport.domain.event import Accepted, ClaimedEvent, Finished, Reply
from rapport.domain.followups import PLANNED, Plan
from rapport.domain.ids import new_id
from rapport.storage.conversations import no_such_conversation
from rapport.storage.database import Connection
from rapport.storage.messages import COLUMNS, message_of

HINTS = "rapport"
"""The NOTIFY channel. What is said on it is only a hint: whoever misses it finds out by polling."""

# One statement, so one transaction. The conversation's row lock puts writers in a line; the time it returns is later
# than that of every message before, even if the clock went back. If nobody else is in the line and this process wants
# to, the event starts as running: no queue in between, and still a row that anyone can pick up if the process dies.
# Whoever speaks ends the silence that follow-ups wait for (AUTO-11): those that wait are cancelled, those under way are
# overtaken. A timer or an event that was made while this statement waited for the lock is not seen by it; but such a row
# holds an older `spoken` than the conversation, and is dropped for that when its time comes.
# Another bot is heard and never answered, or two of them would talk for ever; nor has anybody spoken when one has: a bot
# that posts the weather every hour must not cancel what waits for people, nor let unanswered follow-ups begin anew.
_FOR_AGENT = "(NOT %(is_bot)s AND (kind = 'direct' OR %(replies)s OR agent_id = ANY(%(addressed)s)))"
_STORE = f"""
WITH line AS (
    UPDATE conversations
    SET last_at = greatest(clock_timestamp(), last_at + interval '1 microsecond'),
        unanswered = unanswered + {_FOR_AGENT}::int, spoken = spoken + (NOT %(is_bot)s)::int,
        followups = CASE WHEN %(is_bot)s THEN followups ELSE 0 END
    WHERE id = %(conversation)s AND owner_id = %(owner)s
    RETURNING last_at, agent_id, kind, channel, spoken,
        {_FOR_AGENT} AS answered, {_FOR_AGENT} AND %(claim)s AND unanswered = 1 AS is_free
), message AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, blocks, reply_to_id,
                          client_message_id, created_at, mentions, thread_id, is_bot, platform_id, context_snapshot, payload)
    SELECT %(conversation)s, %(id)s, %(owner)s, 'user', %(author_id)s, %(author_name)s, %(text)s, %(blocks)s,
           %(reply_to)s, %(client_id)s, line.last_at, %(mentions)s, %(topic)s, %(is_bot)s, %(platform_id)s, %(snapshot)s,
           %(payload)s
    FROM line
), cancelled AS (
    DELETE FROM timers t USING line WHERE t.conversation_id = %(conversation)s AND t.state = 'pending'
      AND NOT %(is_bot)s
), overtaken AS (
    UPDATE events e SET state = 'done', finished_at = clock_timestamp(), error = 'superseded' FROM line
    WHERE e.conversation_id = %(conversation)s AND e.trigger_type IS NOT NULL AND e.state <> 'done'
      AND NOT %(is_bot)s
    RETURNING e.id, e.trigger_type, e.worker_id
), superseded AS (
    UPDATE timers t SET state = 'superseded', ended_at = clock_timestamp() FROM overtaken
    WHERE t.conversation_id = %(conversation)s AND t.id = overtaken.id
), event AS (
    INSERT INTO events (conversation_id, id, owner_id, state, worker_id, fence, attempts, accepted_by, spoken)
    SELECT %(conversation)s, %(id)s, %(owner)s,
           CASE WHEN is_free THEN 'running' ELSE 'queued' END, CASE WHEN is_free THEN %(worker)s END,
           is_free::int, is_free::int, %(worker)s, spoken
    -- After what was overtaken is done: only one may run.
    FROM line, (SELECT count(*) FROM overtaken) AS first WHERE answered
)
SELECT last_at, agent_id, kind, channel, spoken, answered, is_free, ARRAY(SELECT ARRAY[id, trigger_type] FROM overtaken),
       (SELECT id FROM overtaken WHERE worker_id IS NOT NULL LIMIT 1)
FROM line
"""

# Ends an event, if the fence says that it is still ours, and stores its reply: all or, if it isn't ours, nothing.
_FINISH = f"""
WITH held AS (
    SELECT id FROM conversations WHERE id = %(conversation)s FOR NO KEY UPDATE  -- first, as whoever erases it does
), event AS (
    UPDATE events SET state = 'done', finished_at = clock_timestamp(), error = NULL
    FROM held
    WHERE conversation_id = held.id AND events.id = %(event)s AND state = 'running' AND fence = %(fence)s
    RETURNING events.id, events.spoken
), line AS (
    UPDATE conversations
    SET last_at = greatest(clock_timestamp(), last_at + interval '1 microsecond'), unanswered = unanswered - 1,
        -- The breaker: an answer closes it; a failure opens it when it is the trial after a rest, or the last of too many.
        failed_at = CASE %(failed)s::boolean WHEN true THEN
            (failed_at || clock_timestamp())[greatest(1, cardinality(failed_at) + 2 - %(failures)s):]
            WHEN false THEN '{{}}' ELSE failed_at END,
        resting_until = CASE %(failed)s::boolean WHEN true THEN CASE
                WHEN resting_until IS NOT NULL OR failed_at[cardinality(failed_at) + 2 - %(failures)s]
                    >= clock_timestamp() - %(rest)s * interval '1 second'
                THEN clock_timestamp() + %(rest)s * interval '1 second' END
            WHEN false THEN NULL ELSE resting_until END
    FROM event WHERE conversations.id = %(conversation)s
    RETURNING conversations.last_at, unanswered, event.id AS event_id, conversations.spoken, event.spoken AS heard
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
SELECT line.unanswered > 0, reply.* FROM line, reply
"""

# Part of a commit: the follow-up that was planned with a reply, unless somebody has spoken since. The silence is dated from
# our own message, which is being stored.
PLANNED_WITH_REPLY = f"""
, planned AS (
    INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, reason, matter, origin, spoken, due_at)
    SELECT %(conversation)s, %(plan_id)s, '{PLANNED}', %(owner)s, %(plan_type)s, %(plan_reason)s, %(plan_matter)s, 'planner',
           line.spoken, clock_timestamp() + %(plan_delay)s * interval '1 second'
    FROM line WHERE line.spoken = line.heard
    ON CONFLICT (conversation_id, timer_id) WHERE state = 'pending' DO UPDATE
    SET trigger_type = excluded.trigger_type, reason = excluded.reason, matter = excluded.matter,
        origin = excluded.origin, spoken = excluded.spoken, due_at = excluded.due_at
    WHERE timers.origin = 'planner'  -- what somebody has set is theirs
)"""

_FINISH_ONLY = _FINISH.replace("{planned}", "").encode()
_FINISH_AND_PLAN = _FINISH.replace("{planned}", PLANNED_WITH_REPLY).encode()

_CLAIMED = (
    "e.id, e.conversation_id, e.owner_id, e.fence, e.attempts, c.agent_id, c.kind, c.channel, e.accepted_by, e.spoken,"
    " e.trigger_type, e.trigger_reason"
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


# By either unique index, one after the other: what the first finds is what counts.
_KNOWN = f"""
SELECT (SELECT agent_id FROM conversations c WHERE c.id = m.conversation_id),
       EXISTS (SELECT FROM events e WHERE e.conversation_id = m.conversation_id AND e.id = m.id), m.*
FROM (
    (SELECT {COLUMNS} FROM messages
     WHERE conversation_id = %(conversation)s AND client_message_id = %(client_id)s AND owner_id = %(owner)s)
    UNION ALL
    (SELECT {COLUMNS} FROM messages
     WHERE conversation_id = %(conversation)s AND platform_id = %(platform_id)s AND owner_id = %(owner)s)
    LIMIT 1
) AS m
"""


class Superseded(RapportError):
    """Somebody else has this event now, or it is gone: what was made for it must not be shown."""


@dataclass(frozen=True, slots=True)
class Events:
    connection: Connection

    async def store(
        self, incoming: Incoming, *, addressed: Sequence[str], replies_to_agent: bool, worker_id: str, claim: bool
    ) -> Accepted | None:
        """Store a message and, if it is for the agent, its event; None when its client's or its platform's id is known.

        It is for the agent in a direct conversation, when `addressed` (ids of agents) names it, or when it replies to it;
        what another bot says is for nobody.
        """
        message_id = new_id()
        parameters = {
            "conversation": incoming.conversation_id,
            "id": message_id,
            "owner": incoming.owner_id,
            "author_id": incoming.author and incoming.author.id,
            "author_name": incoming.author and incoming.author.name,
            "text": text_of(incoming.content),
            "blocks": None if isinstance(incoming.content, str) else Jsonb(list(incoming.content)),
            "reply_to": incoming.reply_to_id,
            "client_id": incoming.client_message_id,
            "worker": worker_id,
            "addressed": list(addressed),
            "replies": replies_to_agent,
            "mentions": list(incoming.mentions),
            "topic": incoming.thread_id,
            "is_bot": incoming.is_bot,
            "platform_id": incoming.platform_id,
            "snapshot": incoming.context_snapshot and Jsonb(dict(incoming.context_snapshot)),
            "payload": incoming.payload and Jsonb(dict(incoming.payload)),
        }
        try:
            found = await self._store({**parameters, "claim": claim})
        except UniqueViolation as violation:
            if violation.diag.constraint_name in ("messages_client_id", "messages_platform_id"):
                return None
            raise
        row = await found.fetchone()
        if row is None:
            raise no_such_conversation(incoming.conversation_id)
        last_at, agent_id, kind, channel, spoken, answered, is_free, overtaken, interrupted = row
        claimed = None
        if is_free:
            claimed = ClaimedEvent(
                id=message_id,
                conversation_id=incoming.conversation_id,
                owner_id=incoming.owner_id,
                fence=1,
                attempts=1,
                agent_id=agent_id,
                kind=kind,
                channel=channel,
                accepted_by=worker_id,
                spoken=spoken,
            )
        where = (message_id, incoming.conversation_id, incoming.owner_id, agent_id)
        ended = [(id_, type_) for id_, type_ in overtaken]
        return Accepted(*where, last_at, answered, claimed, overtaken=ended, interrupted=interrupted)

    async def _store(self, parameters: dict[str, Any]) -> AsyncCursor[tuple[Any, ...]]:
        """Store; once more if a follow-up began while this waited for the line: now it is seen, and overtaken."""
        try:
            return await self.connection.execute(_STORE, parameters)
        except UniqueViolation as violation:
            if violation.diag.constraint_name != "events_one_running":
                raise
            return await self.connection.execute(_STORE, parameters)

    async def known(self, incoming: Incoming) -> tuple[Message, Accepted] | None:
        """The message stored under the client's id, or else under the platform's, and what accepting it did."""
        found = await self.connection.execute(
            _KNOWN,
            {
                "conversation": incoming.conversation_id,
                "owner": incoming.owner_id,
                "client_id": incoming.client_message_id,
                "platform_id": incoming.platform_id,
            },
        )
        row = await found.fetchone()
        if row is None:
            return None
        message = message_of(row[2:])
        return message, Accepted(
            message.id,
            incoming.conversation_id,
            incoming.owner_id,
            row[0],
            message.created_at,
            row[1],
            repeated=True,
        )

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
                "text": text_of(reply.content),
                "blocks": None if isinstance(reply.content, str) else Jsonb(list(reply.content)),
                "sources": Jsonb(list(reply.sources)),
                "metadata": Jsonb(dict(reply.metadata)),
                "failed": reply.model_failed,
                "failures": FAILURES,
                "rest": SECONDS,
                "channel": event.channel,
                "push": push,
            },
        )
        row = await found.fetchone()
        if row is None:
            raise Superseded("Another worker has taken over this event, or its conversation was deleted.")
        return Finished(message_of(row[1:]), more=row[0])

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

    async def request_cancel(self, owner_id: str, conversation_id: str) -> str | None:
        """Ask whoever runs the conversation's turn to stop it; returns that event's id, None if nothing runs."""
        found = await self.connection.execute(
            "UPDATE events SET cancel_requested = true WHERE conversation_id = %s AND owner_id = %s AND state = 'running'"
            " RETURNING id",
            (conversation_id, owner_id),
        )
        row = await found.fetchone()
        if row is None:
            return None
        await self.hint(f"cancel {row[0]}")
        return row[0]

    async def cancelled(self, *, worker_id: str) -> list[str]:
        """Which of this worker's running events somebody asked to cancel."""
        found = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running' AND cancel_requested",
            (worker_id,),
        )
        return [row[0] for row in await found.fetchall()]

    async def running_of(self, worker_id: str) -> set[str]:
        """What the database believes this worker is running."""
        found = await self.connection.execute(
            "SELECT id FROM events WHERE worker_id = %s AND state = 'running'", (worker_id,)
        )
        return {row[0] for row in await found.fetchall()}

    async def return_strays(self, worker_id: str, event_ids: set[str]) -> None:
        """Put back events that this worker holds without running them."""
        await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp()"
            " WHERE worker_id = %s AND state = 'running' AND id = ANY(%s)",
            (worker_id, list(event_ids)),
        )

    async def hint(self, text: str) -> None:
        await self.connection.execute("SELECT pg_notify(%s, %s)", (HINTS, text))


def plan_parameters(plan: Plan | None) -> dict[str, Any]:
    """What PLANNED_WITH_REPLY wants to know."""
    if plan is None:
        return {}
    return {
        "plan_id": new_id(),
        "plan_type": plan.trigger_type,
        "plan_reason": plan.reason,
        "plan_matter": plan.matter,
        "plan_delay": plan.delay,
    }

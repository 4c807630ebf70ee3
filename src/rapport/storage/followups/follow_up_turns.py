"""Load the gates' input for a follow-up, and store its outcome, both under the conversation's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rapport.domain.conversation import Message, extract_text
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.domain.follow_up import Gate, GateInput, Plan, QuietHours, TimerState
from rapport.domain.follow_up_outcomes import OutcomeCount
from rapport.domain.ids import new_id
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message
from rapport.storage.usage import ADD_USAGE_WITH_REPLY, usage_parameters
from rapport.storage.work.events import NOW_IN_LINE, PLANNED_WITH_REPLY, Superseded, plan_parameters

# All that the gates check, in one statement and by one clock.
_GATE_INPUT = """
SELECT clock_timestamp() AS now, c.kind, c.autonomy_enabled, c.muted_until, coalesce(c.breaker_open_until > clock_timestamp(), false) AS is_breaker_open,
       c.consecutive_followups, c.last_followup_at, p.time_zone, p.quiet_from, p.quiet_to, c.user_message_count,
       coalesce(extract(epoch FROM clock_timestamp() - t.due_at)::float8, 0) AS lateness_seconds, c.unreachable_since IS NOT NULL AS is_unreachable,
       coalesce(t.origin = 'planner', false) AS is_inferred, coalesce(t.topic, '') AS topic, coalesce(t.sources, '{}') AS sources,
       -- A timer ends at most its agent's expiry after it fires, which is 7 days at most: so much of the index is enough.
       (SELECT count(*) FROM timers w WHERE w.owner_id = c.owner_id AND w.conversation_id = c.id
          AND w.fired_at > clock_timestamp() - interval '9 days' AND w.state = 'delivered' AND w.origin = 'planner'
          AND w.ended_at > clock_timestamp() - interval '24 hours') AS inferred_in_a_day
FROM conversations c LEFT JOIN preferences p ON p.owner_id = c.owner_id
LEFT JOIN timers t ON t.conversation_id = c.id AND t.id = %(event)s
WHERE c.id = %(conversation)s AND c.owner_id = %(owner)s
"""

# One statement: the hidden trigger message just before the reply, the reply as an ordinary message that answers none, the
# counters that the gates check, and the next follow-up if one is planned.
_DELIVER = f"""
WITH event AS (
    UPDATE events SET state = 'done', finished_at = clock_timestamp(), error = NULL
    WHERE conversation_id = %(conversation)s AND id = %(event)s AND state = 'running' AND fence = %(fence)s
    RETURNING id, user_message_count
), line AS (
    UPDATE conversations
    SET (last_at, replied_at) = (
            SELECT at + interval '1 microsecond', at + interval '1 microsecond' FROM ({NOW_IN_LINE}) AS spoken_at),
        consecutive_followups = consecutive_followups + 1, last_followup_at = clock_timestamp(), model_failed_at = '{{}}', breaker_open_until = NULL
    FROM event WHERE conversations.id = %(conversation)s
    RETURNING conversations.last_at, open_event_count, event.id AS event_id, conversations.user_message_count, event.user_message_count AS count_at_event
), trigger AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, content, metadata, created_at)
    SELECT %(conversation)s, line.event_id, %(owner)s, 'user', %(prompt)s, %(tags)s, line.last_at - interval '1 microsecond'
    FROM line
), reply AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, event_id, sources,
                          metadata, created_at, is_bot, thread_id)
    SELECT %(conversation)s, %(id)s, %(owner)s, 'assistant', %(author_id)s, %(author_name)s, %(text)s, line.event_id,
           %(sources)s, %(metadata)s, line.last_at, true,
           -- In a forum it goes to the topic of the last message.
           (SELECT thread_id FROM messages WHERE conversation_id = %(conversation)s AND role <> 'system-summary'
              AND NOT synthetic ORDER BY created_at DESC, id DESC LIMIT 1)
    FROM line
    RETURNING {COLUMNS}
), ended AS (
    UPDATE timers t SET state = 'delivered', message_id = reply.id, regenerated = %(regenerated)s, ended_at = clock_timestamp(),
        prompt_variant = %(variant)s, sources = %(sources_brought_up)s::text[]
    FROM reply WHERE t.conversation_id = %(conversation)s AND t.id = %(event)s
), effect AS (
    INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id, user_message_count)
    SELECT %(conversation)s, reply.id, %(owner)s, %(channel)s, reply.id, line.user_message_count FROM reply, line WHERE %(push)s
){ADD_USAGE_WITH_REPLY}{{planned}}
SELECT line.open_event_count > 0 AS has_more, reply.* FROM line, reply
"""
_DELIVER_ONLY = _DELIVER.replace("{planned}", "").encode()
_DELIVER_AND_PLAN = _DELIVER.replace("{planned}", PLANNED_WITH_REPLY).encode()

# A follow-up is answered if a person writes within an hour: a short scan of messages_order in its conversation. The agent is
# the author of its message, because the conversation's may have changed; without a message it is the conversation's.
_COUNT_OUTCOMES = """
SELECT coalesce(r.author_id, c.agent_id) AS agent_id, t.trigger_type, t.prompt_variant AS variant, t.state, t.gate, count(*) AS count, count(*) FILTER (WHERE t.regenerated) AS regenerated, count(*) FILTER (WHERE EXISTS (
    SELECT FROM messages m WHERE m.conversation_id = t.conversation_id AND m.role = 'user' AND NOT m.synthetic
      AND NOT m.is_bot AND m.created_at > t.ended_at AND m.created_at <= t.ended_at + interval '1 hour'
      AND t.state = 'delivered')) AS answered
FROM timers t JOIN conversations c ON c.id = t.conversation_id
LEFT JOIN messages r ON r.conversation_id = t.conversation_id AND r.id = t.message_id
WHERE t.owner_id = %(owner)s AND t.fired_at > clock_timestamp() - %(days)s * interval '1 day'
GROUP BY 1, 2, 3, 4, 5
"""


@dataclass(frozen=True, slots=True)
class FollowUpTurns:
    connection: Connection

    async def load_gate_input(self, event: ClaimedEvent, *, lock: bool = False) -> GateInput | None:
        """Return the gates' input; None if a person has written since the timer was set, or the conversation is gone.

        With `lock` nobody changes the conversation until the transaction ends.
        """
        cursor = await self.connection.execute(
            f"{_GATE_INPUT} FOR NO KEY UPDATE OF c".encode() if lock else _GATE_INPUT.encode(),
            {"conversation": event.conversation_id, "owner": event.owner_id, "event": event.id},
        )
        row = await cursor.fetchone()
        if row is None or row.user_message_count != event.user_message_count:
            return None
        quiet_hours = QuietHours(row.time_zone, row.quiet_from, row.quiet_to) if row.quiet_from is not None else None
        return GateInput(
            now=row.now,
            kind=row.kind,
            autonomy_enabled=row.autonomy_enabled,
            muted_until=row.muted_until,
            is_breaker_open=row.is_breaker_open,
            consecutive_followups=row.consecutive_followups,
            last_followup_at=row.last_followup_at,
            quiet_hours=quiet_hours,
            is_unreachable=row.is_unreachable,
            lateness_seconds=row.lateness_seconds,
            is_inferred=row.is_inferred,
            topic=row.topic,
            sources=tuple(row.sources),
            inferred_in_a_day=row.inferred_in_a_day,
        )

    async def end(
        self,
        event: ClaimedEvent,
        state: TimerState,
        *,
        variant: str,
        gate: Gate | None = None,
        regenerated: bool = False,
    ) -> bool:
        """End a follow-up without a message; return True if the conversation has another open event."""
        cursor = await self.connection.execute(
            "WITH event AS (UPDATE events SET state = 'done', finished_at = clock_timestamp(), error = %(error)s"
            " WHERE conversation_id = %(conversation)s AND id = %(event)s AND state = 'running' AND fence = %(fence)s"
            " RETURNING id), ended AS (UPDATE timers t SET state = %(state)s, gate = %(gate)s, regenerated = %(regenerated)s,"
            " prompt_variant = %(variant)s, ended_at = clock_timestamp() FROM event WHERE t.conversation_id = %(conversation)s AND t.id = event.id)"
            " SELECT open_event_count > 0 AS has_more FROM conversations, event WHERE conversations.id = %(conversation)s",
            {
                "conversation": event.conversation_id,
                "event": event.id,
                "fence": event.fence,
                "state": state,
                "gate": gate,
                "variant": variant,
                "regenerated": regenerated,
                "error": gate or state,
            },
        )
        row = await cursor.fetchone()
        if row is None:
            raise Superseded("Somebody has spoken, another worker has taken over, or the conversation was deleted.")
        return row.has_more

    async def deliver(
        self,
        event: ClaimedEvent,
        trigger: Message,
        reply: Reply,
        *,
        agent_name: str,
        push: bool,
        plan: Plan | None,
        variant: str,
        regenerated: bool,
        brought_up: Sequence[str] = (),
    ) -> Finished:
        """Store the follow-up's message, all or nothing. Raise Superseded if the event is not this worker's any more.

        `variant` is the name of its prompt's variant; `brought_up` are the ids of the messages that it is based on or mentions.
        """
        cursor = await self.connection.execute(
            _DELIVER_AND_PLAN if plan else _DELIVER_ONLY,
            {
                **plan_parameters(plan),
                **usage_parameters(event, reply.usage),
                "conversation": event.conversation_id,
                "event": event.id,
                "fence": event.fence,
                "id": new_id(),
                "owner": event.owner_id,
                "prompt": trigger.text,
                "tags": Jsonb(dict(trigger.metadata)),
                "author_id": event.agent_id,
                "author_name": agent_name,
                "text": extract_text(reply.content),
                "sources": Jsonb(list(reply.sources)),
                "metadata": Jsonb(dict(reply.metadata)),
                "regenerated": regenerated,
                "variant": variant,
                "sources_brought_up": list(brought_up),
                "channel": event.channel,
                "push": push,
            },
        )
        row = await cursor.fetchone()
        if row is None:
            raise Superseded("Somebody has spoken, another worker has taken over, or the conversation was deleted.")
        return Finished(to_message(row), has_more=row.has_more)

    async def count_outcomes(self, owner_id: str, *, days: float) -> list[OutcomeCount]:
        """Return the outcomes of the owner's follow-ups that fired in the last `days`."""
        cursor = await self.connection.execute(_COUNT_OUTCOMES, {"owner": owner_id, "days": days})
        return [OutcomeCount(**row._asdict()) for row in await cursor.fetchall()]

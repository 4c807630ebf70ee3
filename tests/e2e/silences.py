"""Insert quiet conversations and their timers directly into the tables, and check the tables afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from rapport.domain.conversation import LOCAL_USER
from rapport.domain.ids import new_id
from tests.support.waiting import LIMIT_SECONDS

from .audit import Rows, until_idle

UNASKED = "By the way, did the tomatoes keep?"
"""The text of a follow-up: the scripted model's usual answer repeats the prompt, which would be a leak."""

_TALK = """
WITH talk AS (
    INSERT INTO conversations (id, owner_id, agent_id, kind, channel, user_message_count, autonomy_enabled, last_at)
    SELECT id, %(owner)s, 'companion', 'direct', 'http', 1, %(autonomy)s, clock_timestamp() - interval '1 minute'
    FROM unnest(%(ids)s::text[]) AS id RETURNING id, last_at
), asked AS (
    INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)
    SELECT id, 'm' || id, %(owner)s, 'user', 'c' || id || ' my tomatoes are ripe', last_at - interval '1 second' FROM talk
), event AS (
    INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count, finished_at)
    SELECT id, 'm' || id, %(owner)s, 'done', '', 1, last_at FROM talk
)
INSERT INTO messages (conversation_id, id, owner_id, role, content, reply_to_id, event_id, created_at)
SELECT id, 'r' || id, %(owner)s, 'assistant', 'Lovely.', 'm' || id, 'm' || id, last_at FROM talk
"""

_TIMERS = """
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)
SELECT c.id, n.id, 'silence', c.owner_id, 'check_in', 'user', c.user_message_count, to_timestamp(%(now)s) + n.wait * interval '1 second'
FROM unnest(%(conversations)s::text[], %(ids)s::text[], %(waits)s::float8[]) AS n (conversation, id, wait)
JOIN conversations c ON c.id = n.conversation
"""

TROUBLES = {
    # A timer holds the user message count at which it was set: exactly that many messages precede its follow-up.
    "follow-ups after somebody spoke": """
        SELECT count(*) FROM messages r JOIN timers t ON t.conversation_id = r.conversation_id AND t.id = r.event_id
        WHERE r.role = 'assistant' AND t.user_message_count <> (
            SELECT count(*) FROM messages m WHERE m.conversation_id = r.conversation_id AND m.role = 'user'
              AND NOT m.synthetic AND m.created_at < r.created_at)""",
    "autonomous messages without a timer": """
        SELECT count(*) FROM messages r WHERE r.role = 'assistant' AND r.metadata @> '{"autonomous": true}'
          AND NOT EXISTS (SELECT FROM timers t WHERE t.conversation_id = r.conversation_id AND t.id = r.event_id
                            AND t.state = 'delivered' AND t.message_id = r.id)""",
    "delivered, and not one message": """
        SELECT count(*) FROM timers t WHERE t.state = 'delivered' AND 1 <> (SELECT count(*) FROM messages r
            WHERE r.conversation_id = t.conversation_id AND r.event_id = t.id AND r.role = 'assistant')""",
    "said, and not delivered": """
        SELECT count(*) FROM timers t WHERE t.state <> 'delivered' AND EXISTS (SELECT FROM messages r
            WHERE r.conversation_id = t.conversation_id AND r.event_id = t.id)""",
    "fired, and no event": """
        SELECT count(*) FROM timers t WHERE t.state NOT IN ('pending', 'expired', 'superseded') AND NOT EXISTS (
            SELECT FROM events e WHERE e.conversation_id = t.conversation_id AND e.id = t.id)""",
    "events without a timer that fired": """
        SELECT count(*) FROM events e WHERE e.trigger_type IS NOT NULL AND NOT EXISTS (
            SELECT FROM timers t WHERE t.conversation_id = e.conversation_id AND t.id = e.id AND t.fired_at IS NOT NULL)""",
    "fired, and nothing became of it": "SELECT count(*) FROM timers WHERE state = 'fired' OR (ended_at IS NULL AND state <> 'pending')",
    "due, and still waiting": "SELECT count(*) FROM timers WHERE state = 'pending' AND due_at < clock_timestamp() - interval '2 seconds'",
    "waiting for a silence that is over": """
        SELECT count(*) FROM timers t JOIN conversations c ON c.id = t.conversation_id
        WHERE t.state = 'pending' AND t.user_message_count <> c.user_message_count""",
    "events left behind": "SELECT count(*) FROM events WHERE state <> 'done'",
    "messages without an answer": """
        SELECT count(*) FROM messages m WHERE m.role = 'user' AND NOT m.synthetic AND NOT EXISTS (
            SELECT FROM messages r WHERE r.conversation_id = m.conversation_id AND r.event_id = m.id)""",
    "messages answered twice": """
        SELECT count(*) FROM (SELECT FROM messages WHERE event_id IS NOT NULL
                              GROUP BY conversation_id, event_id HAVING count(*) > 1) AS twice""",
    "answers before their message": """
        SELECT count(*) FROM messages r JOIN messages m ON m.conversation_id = r.conversation_id AND m.id = r.event_id
        WHERE r.created_at <= m.created_at""",
    "conversations that still count an unanswered message": "SELECT count(*) FROM conversations WHERE open_event_count <> 0",
    "conversations that count their messages wrongly": """
        SELECT count(*) FROM conversations c WHERE c.user_message_count <> (SELECT count(*) FROM messages m
            WHERE m.conversation_id = c.id AND m.role = 'user' AND NOT m.synthetic)""",
}
"""Each statement counts one kind of violation in the whole database."""


async def run(url: str, statement: str, parameters: Mapping[str, Any] | None = None) -> Rows:
    """Run a statement and return its rows, if it has any."""
    async with await psycopg.AsyncConnection[tuple[Any, ...]].connect(url, autocommit=True) as connection:
        done = await connection.execute(statement.encode(), parameters)
        return await done.fetchall() if done.description else []


async def fell_silent(url: str, count: int, *, autonomy: bool | None = None) -> list[str]:
    """Insert conversations whose one message was answered a minute ago; return their ids."""
    ids = [new_id() for _ in range(count)]
    await run(url, _TALK, {"ids": ids, "owner": LOCAL_USER, "autonomy": autonomy})
    return ids


async def set_timers(url: str, waits: Mapping[str, float]) -> float:
    """Set a timer in each of these conversations, with its delay in seconds; return the start of the delays (epoch)."""
    now = float((await run(url, "SELECT extract(epoch FROM clock_timestamp())::float8"))[0][0])
    ids = [new_id() for _ in waits]
    await run(url, _TIMERS, {"now": now, "conversations": list(waits), "ids": ids, "waits": list(waits.values())})
    return now


async def troubles(url: str) -> dict[str, int]:
    """Return the violations in this database with their counts; empty if there are none."""
    counted = {name: int((await run(url, statement))[0][0]) for name, statement in TROUBLES.items()}
    return {name: count for name, count in counted.items() if count}


async def became(url: str) -> dict[str, int]:
    """Return the number of timers by outcome; cancelled ones are deleted."""
    rows = await run(
        url, "SELECT state || coalesce(' (' || gate || ')', ''), count(*) FROM timers GROUP BY 1 ORDER BY 1"
    )
    return {str(state): int(count) for state, count in rows}


async def lateness(url: str, *, since: float = 0.0) -> list[float]:
    """Return the seconds from due to fired, of all timers due after `since` that fired and had not expired."""
    rows = await run(
        url,
        "SELECT extract(epoch FROM fired_at - due_at)::float8 FROM timers"
        " WHERE fired_at IS NOT NULL AND state <> 'expired' AND due_at > to_timestamp(%(since)s) ORDER BY 1",
        {"since": since},
    )
    return [float(row[0]) for row in rows]


async def until_nothing_is_due(url: str, *, seconds: float = LIMIT_SECONDS) -> None:
    """Wait until every timer that is due has fired or expired, and every event is done."""
    end = time.monotonic() + seconds
    left: Sequence[Any] = ()
    while time.monotonic() < end:
        left = await run(url, "SELECT id FROM timers WHERE state = 'pending' AND due_at <= clock_timestamp() LIMIT 5")
        if not left:
            await until_idle(url, seconds=max(1.0, end - time.monotonic()))
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"timers are due and have not fired within {seconds} s: {left}")


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share / 100))] if values else float("nan")

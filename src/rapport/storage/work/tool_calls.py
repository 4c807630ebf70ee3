"""Store the calls of tools with effects outside: what was asked, decided, sent and returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.errors import NotFound
from rapport.domain.event import ClaimedEvent
from rapport.domain.ids import new_id
from rapport.domain.tool_call import CallState, Decision, ToolCall
from rapport.storage.database import Connection

_COLUMNS = (
    "conversation_id, message_id, key, owner_id, tool, server, arguments, state, result, approval_id, asker_id, created_at,"
    " expires_at, decided_at, decided_by, (state = 'asked' AND expires_at <= clock_timestamp()) AS is_expired"
)

# The intent to send a call, stored before it is sent. Only the process that runs the event may begin one, and a row that exists
# is taken over only from `allowed`, with the same tool and arguments: so nothing is sent twice.
_BEGIN = """
INSERT INTO tool_calls (conversation_id, message_id, key, owner_id, tool, server, arguments, state)
SELECT conversation_id, %(message)s, %(key)s, owner_id, %(tool)s, %(server)s, %(arguments)s, 'running' FROM events
WHERE conversation_id = %(conversation)s AND id = %(event)s AND state = 'running' AND fence = %(fence)s
ON CONFLICT (conversation_id, message_id, key) DO UPDATE SET state = 'running'
WHERE tool_calls.state = 'allowed' AND tool_calls.tool = excluded.tool AND tool_calls.arguments = excluded.arguments
RETURNING key
"""

# A decision, unless one was made or the time is over. When the last question of a turn is decided, an event is queued that goes
# on with the turn. The conversation's row is locked first, as by every writer.
_DECIDE = """
WITH held AS (
    SELECT id, user_message_count FROM conversations WHERE id = %(conversation)s AND owner_id = %(owner)s FOR NO KEY UPDATE
), decided AS (
    UPDATE tool_calls SET state = %(state)s, decided_at = clock_timestamp(), decided_by = %(by)s
    FROM held WHERE conversation_id = held.id AND approval_id = %(approval)s AND state = 'asked'
      AND expires_at > clock_timestamp()
    RETURNING message_id, key
), last AS (
    SELECT message_id FROM decided WHERE NOT EXISTS (
        SELECT FROM tool_calls o WHERE o.conversation_id = %(conversation)s AND o.message_id = decided.message_id
          AND o.key <> decided.key AND o.state = 'asked' AND o.expires_at > clock_timestamp())
), counted AS (
    UPDATE conversations SET open_event_count = open_event_count + 1 FROM last WHERE id = %(conversation)s
    RETURNING last.message_id, user_message_count
), queued AS (
    INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count, resumes)
    SELECT %(conversation)s, %(event)s, %(owner)s, 'queued', '', user_message_count, message_id FROM counted
)
SELECT key FROM decided
"""

# A turn with a call that is allowed, and other questions that nobody has answered in time: no decision goes on with it any more.
# The index of allowed calls is nearly empty: such a call waits for a moment, or for other decisions.
_IS_STALLED = """
    a.state = 'allowed'
    AND EXISTS (SELECT FROM tool_calls o WHERE o.conversation_id = a.conversation_id AND o.message_id = a.message_id
                AND o.state = 'asked')
    AND NOT EXISTS (SELECT FROM tool_calls o WHERE o.conversation_id = a.conversation_id AND o.message_id = a.message_id
                    AND o.state = 'asked' AND o.expires_at > clock_timestamp())
    AND NOT EXISTS (SELECT FROM events e WHERE e.conversation_id = a.conversation_id AND e.resumes = a.message_id
                    AND e.state <> 'done')
"""
_LIST_STALLED = f"""
SELECT DISTINCT a.owner_id, a.conversation_id, a.message_id FROM tool_calls a WHERE {_IS_STALLED} LIMIT 100
"""
_RESUME_STALLED = f"""
WITH counted AS (
    UPDATE conversations SET open_event_count = open_event_count + 1
    WHERE id = %(conversation)s AND owner_id = %(owner)s AND EXISTS (
        SELECT FROM tool_calls a WHERE a.conversation_id = %(conversation)s AND a.message_id = %(message)s AND {_IS_STALLED})
    RETURNING user_message_count
)
INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count, resumes)
SELECT %(conversation)s, %(event)s, %(owner)s, 'queued', '', user_message_count, %(message)s FROM counted
"""

# The calls that the end of a turn leaves behind, if the event is still ours.
_ABANDON = """
UPDATE tool_calls SET state = CASE state WHEN 'running' THEN 'unknown' ELSE 'failed' END, ended_at = clock_timestamp()
WHERE conversation_id = %(conversation)s AND message_id = %(message)s AND state IN ('running', 'allowed') AND EXISTS (
    SELECT FROM events WHERE conversation_id = %(conversation)s AND id = %(event)s AND state = 'running' AND fence = %(fence)s)
"""


@dataclass(frozen=True, slots=True)
class StalledTurn:
    """A turn that must go on without the decisions that nobody has made in time."""

    owner_id: str
    conversation_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Every method names the owner or the claimed event: nobody reaches the calls of another."""

    connection: Connection

    async def list_of_turn(self, event: ClaimedEvent) -> list[ToolCall]:
        """Return the calls of an event's turn, in their order."""
        found = await self._select(
            "conversation_id = %(conversation)s AND owner_id = %(owner)s AND message_id = %(message)s",
            {"conversation": event.conversation_id, "owner": event.owner_id, "message": event.message_id},
        )
        return sorted(found, key=lambda call: call.place)

    async def begin(
        self, event: ClaimedEvent, key: str, *, tool: str, server: str, arguments: Mapping[str, Any]
    ) -> bool:
        """Store that a call is about to be sent; return False if it must not be: it was begun before, or is not allowed."""
        cursor = await self.connection.execute(
            _BEGIN,
            {
                "conversation": event.conversation_id,
                "event": event.id,
                "fence": event.fence,
                "message": event.message_id,
                "key": key,
                "tool": tool,
                "server": server,
                "arguments": Jsonb(dict(arguments)),
            },
        )
        return await cursor.fetchone() is not None

    async def end(self, event: ClaimedEvent, key: str, state: CallState, result: str | None = None) -> None:
        """Store the outcome of a call that was begun. Take back with `allowed` what was not sent."""
        await self.connection.execute(
            "UPDATE tool_calls SET state = %s, result = %s, ended_at = clock_timestamp()"
            " WHERE conversation_id = %s AND message_id = %s AND key = %s AND state = 'running'",
            (state, result, event.conversation_id, event.message_id, key),
        )

    async def abandon(self, event: ClaimedEvent) -> None:
        """Store that no call of the turn is made any more: one that was begun is `unknown`, one that was only allowed has failed."""
        await self.connection.execute(
            _ABANDON,
            {
                "conversation": event.conversation_id,
                "message": event.message_id,
                "event": event.id,
                "fence": event.fence,
            },
        )

    async def ask(self, event: ClaimedEvent, calls: Sequence[ToolCall], *, minutes: float) -> None:
        """Store questions to a person, with the reply that asks them."""
        for call in calls:
            await self.connection.execute(
                "INSERT INTO tool_calls (conversation_id, message_id, key, owner_id, tool, server, arguments, state,"
                " approval_id, asker_id, expires_at) VALUES (%s, %s, %s, %s, %s, %s, %s, 'asked', %s, %s,"
                " clock_timestamp() + %s * interval '1 minute')"
                " ON CONFLICT (conversation_id, message_id, key) DO NOTHING",
                (
                    event.conversation_id,
                    event.message_id,
                    call.key,
                    event.owner_id,
                    call.tool,
                    call.server,
                    Jsonb(dict(call.arguments)),
                    call.approval_id,
                    call.asker_id,
                    minutes,
                ),
            )

    async def list_asked(self, owner_id: str, conversation_id: str, *, limit: int = 100) -> list[ToolCall]:
        """Return the questions of a conversation, decided ones too, the newest first."""
        return await self._select(
            "conversation_id = %(conversation)s AND owner_id = %(owner)s AND approval_id IS NOT NULL"
            " ORDER BY created_at DESC, key LIMIT %(limit)s",
            {"conversation": conversation_id, "owner": owner_id, "limit": limit},
        )

    async def list_open(self, owner_id: str, conversation_id: str) -> list[ToolCall]:
        """Return the questions of a conversation that wait for a decision, the oldest first."""
        return await self._select(
            "conversation_id = %(conversation)s AND owner_id = %(owner)s AND state = 'asked'"
            " AND expires_at > clock_timestamp() ORDER BY created_at",
            {"conversation": conversation_id, "owner": owner_id},
        )

    async def get_asked(self, owner_id: str, conversation_id: str, approval_id: str) -> ToolCall:
        """Return one question; raise NotFound."""
        found = await self._select(
            "conversation_id = %(conversation)s AND owner_id = %(owner)s AND approval_id = %(approval)s",
            {"conversation": conversation_id, "owner": owner_id, "approval": approval_id},
        )
        if not found:
            raise NotFound("There is no such question in this conversation.")
        return found[0]

    async def list_together(self, owner_id: str, conversation_id: str, approval_id: str) -> list[ToolCall]:
        """Return the questions of the reply that asks this one, in its order; none if there is no such question.

        They are those about calls of one message of the model.
        """
        found = await self._select(
            "conversation_id = %(conversation)s AND owner_id = %(owner)s AND approval_id IS NOT NULL AND message_id ="
            " (SELECT message_id FROM tool_calls WHERE approval_id = %(approval)s)",
            {"conversation": conversation_id, "owner": owner_id, "approval": approval_id},
        )
        rounds = {call.place[0] for call in found if call.approval_id == approval_id}
        return sorted((call for call in found if call.place[0] in rounds), key=lambda call: call.place)

    async def decide(
        self, owner_id: str, conversation_id: str, approval_id: str, decision: Decision, *, by: str
    ) -> bool:
        """Store a decision, and queue the rest of the turn after its last one; return False if it was decided or is too late."""
        cursor = await self.connection.execute(
            _DECIDE,
            {
                "conversation": conversation_id,
                "owner": owner_id,
                "approval": approval_id,
                "state": "allowed" if decision == "allow" else "denied",
                "by": by,
                "event": new_id(),
            },
        )
        return await cursor.fetchone() is not None

    async def list_stalled(self) -> list[StalledTurn]:
        """Return turns with an allowed call that wait for nothing any more: their other questions have expired."""
        cursor = await self.connection.execute(_LIST_STALLED.encode())
        return [StalledTurn(**row._asdict()) for row in await cursor.fetchall()]

    async def resume_stalled(self, turn: StalledTurn) -> None:
        """Queue the rest of such a turn, once. Lock the conversation before, in the same transaction."""
        await self.connection.execute(
            _RESUME_STALLED.encode(),
            {
                "owner": turn.owner_id,
                "conversation": turn.conversation_id,
                "message": turn.message_id,
                "event": new_id(),
            },
        )

    async def _select(self, where: str, parameters: Mapping[str, Any]) -> list[ToolCall]:
        cursor = await self.connection.execute(f"SELECT {_COLUMNS} FROM tool_calls WHERE {where}".encode(), parameters)
        return [ToolCall(**row._asdict()) for row in await cursor.fetchall()]

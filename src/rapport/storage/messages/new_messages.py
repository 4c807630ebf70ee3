"""Find what is new in conversations since a position, and notify other processes of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapport.domain.conversation import Message
from rapport.domain.ids import is_id
from rapport.domain.live_updates import MemoryChangeKind
from rapport.storage.conversations.conversations import no_such_conversation
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COLUMNS, to_message
from rapport.storage.work.events import NOTIFY_CHANNEL

PAGE = 20
PAGE_BYTES = 64_000
"""Largest page: it ends before the message that would exceed it, unless that is its only message."""

# One step into messages_by_seq and short scans of timers, reminders and tool calls per conversation: the cost does not depend
# on its length.
_POSITIONS = """
SELECT c.id AS conversation_id,
    coalesce((SELECT m.seq FROM messages m WHERE m.conversation_id = c.id AND NOT m.synthetic ORDER BY m.seq DESC LIMIT 1), 0) AS newest,
    hashtextextended(concat(
        (SELECT string_agg(concat_ws(' ', w.id, w.due_at, w.trigger_type, w.reason), ',' ORDER BY w.id) FROM timers w
         WHERE w.conversation_id = c.id AND w.state = 'pending'), ';',
        (SELECT string_agg(concat_ws(' ', f.id, f.state), ',') FROM (
            SELECT p.id, p.state FROM timers p
            WHERE p.owner_id = c.owner_id AND p.conversation_id = c.id AND p.fired_at IS NOT NULL
            ORDER BY p.fired_at DESC LIMIT 3) AS f), ';',
        (SELECT string_agg(concat_ws(' ', s.id, s.state, s.due_at, s.local_at, s.rule, s.zone, hashtext(s.text)), ',') FROM (
            SELECT r.* FROM reminders r WHERE r.conversation_id = c.id ORDER BY r.id DESC LIMIT 50) AS s)), 0) AS timers,
    coalesce(hashtextextended((SELECT string_agg(concat_ws(' ', t.message_id, t.key, t.state), ',') FROM (
        SELECT q.message_id, q.key, q.state FROM tool_calls q WHERE q.conversation_id = c.id
        ORDER BY q.message_id DESC, q.key DESC LIMIT 20) AS t), 0), 0) AS tool_calls
FROM conversations c WHERE c.id = ANY(%(ids)s)
"""

# A forward scan of messages_by_seq, bounded by a page. `pg_column_size` gives sizes on disk, without reading large values.
_AFTER = f"""
SELECT seq, {COLUMNS} FROM (
    SELECT seq, {COLUMNS}, row_number() OVER page_order AS number,
        sum(pg_column_size(content) + coalesce(pg_column_size(blocks), 0) + pg_column_size(metadata)) OVER page_order AS bytes
    FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND NOT synthetic AND seq > %(seq)s
    WINDOW page_order AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
    ORDER BY seq LIMIT {PAGE}
) AS page
WHERE number = 1 OR bytes <= {PAGE_BYTES} ORDER BY seq
"""


def memory_hint(teller: str, kind: MemoryChangeKind, agent_id: str, memory_id: str, owner_id: str) -> str:
    """Return the notification of a changed memory; `teller` identifies the sending process."""
    return f"memory {teller} {kind} {agent_id} {memory_id} {owner_id}"


@dataclass(frozen=True, slots=True)
class ConversationPosition:
    """The state of a conversation: if one of the values differs from before, something has changed."""

    newest: int
    """The highest `seq` of its messages; 0 if there are none."""
    timers: int
    """A digest of its pending timers, of the states of the latest fired ones, and of its 50 newest reminders."""
    tool_calls: int
    """A digest of the states of its latest tool calls with effects outside; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class NewMessages:
    """Read positions and new messages of conversations."""

    connection: Connection

    async def get_position(self, owner_id: str, conversation_id: str) -> ConversationPosition:
        """Return the position of a conversation of this owner; raise NotFound if there is none."""
        if is_id(conversation_id):
            cursor = await self.connection.execute(
                f"{_POSITIONS} AND c.owner_id = %(owner)s".encode(), {"ids": [conversation_id], "owner": owner_id}
            )
            if row := await cursor.fetchone():
                return ConversationPosition(row.newest, row.timers, row.tool_calls)
        raise no_such_conversation(conversation_id)

    async def get_positions(self, conversation_ids: Sequence[str]) -> Mapping[str, ConversationPosition]:
        """Return the position of each conversation that exists."""
        cursor = await self.connection.execute(_POSITIONS, {"ids": list(conversation_ids)})
        return {
            row.conversation_id: ConversationPosition(row.newest, row.timers, row.tool_calls)
            for row in await cursor.fetchall()
        }

    async def list_after(self, owner_id: str, conversation_id: str, seq: int) -> list[tuple[int, Message]]:
        """Return a page of messages stored or changed after that `seq`, in order; empty only if there are none."""
        cursor = await self.connection.execute(
            _AFTER.encode(), {"conversation": conversation_id, "owner": owner_id, "seq": seq}
        )
        return [(row.seq, to_message(row)) for row in await cursor.fetchall()]

    async def send_hints(self, hints: Sequence[str]) -> None:
        """Notify the other processes."""
        await self.connection.execute(
            "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint", (NOTIFY_CHANNEL, list(hints))
        )

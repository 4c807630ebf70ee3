"""News: what has become new in conversations since somebody last looked, and a word to other processes that something has."""

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
"""A page ends before a message that would make it larger; so every page but one of a single message is small."""

# For each conversation one step into messages_by_seq and a short walk of its timers: those that wait, and the latest that
# fired. How much was ever said there, and how many others there are, plays no part.
_STANDING = """
SELECT c.id,
    coalesce((SELECT m.seq FROM messages m WHERE m.conversation_id = c.id AND NOT m.synthetic ORDER BY m.seq DESC LIMIT 1), 0),
    hashtextextended(concat(
        (SELECT string_agg(concat_ws(' ', w.id, w.due_at, w.trigger_type, w.reason), ',' ORDER BY w.id) FROM timers w
         WHERE w.conversation_id = c.id AND w.state = 'pending'), ';',
        (SELECT string_agg(concat_ws(' ', f.id, f.state), ',') FROM (
            SELECT p.id, p.state FROM timers p
            WHERE p.owner_id = c.owner_id AND p.conversation_id = c.id AND p.fired_at IS NOT NULL
            ORDER BY p.fired_at DESC LIMIT 3) AS f)), 0)
FROM conversations c WHERE c.id = ANY(%(ids)s)
"""

# A walk of messages_by_seq from the number on, no further than a page. The sizes are those on disk, which are known without
# reading what is large.
_AFTER = f"""
SELECT seq, {COLUMNS} FROM (
    SELECT seq, {COLUMNS}, row_number() OVER walk AS number,
        sum(pg_column_size(content) + coalesce(pg_column_size(blocks), 0) + pg_column_size(metadata)) OVER walk AS bytes
    FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND NOT synthetic AND seq > %(seq)s
    WINDOW walk AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
    ORDER BY seq LIMIT {PAGE}
) AS page
WHERE number = 1 OR bytes <= {PAGE_BYTES} ORDER BY seq
"""


def memory_hint(teller: str, kind: MemoryChangeKind, agent_id: str, memory_id: str, owner_id: str) -> str:
    """What other processes are told of a change; `teller` says which one it comes from."""
    return f"memory {teller} {kind} {agent_id} {memory_id} {owner_id}"


@dataclass(frozen=True, slots=True)
class ConversationPosition:
    """How a conversation stands: when one of the two is another than before, something has happened there."""

    newest: int
    """The highest number of its messages; 0 while there are none."""
    timers: int
    """A digest of its follow-ups: those that wait, and what has become of the latest others."""


@dataclass(frozen=True, slots=True)
class NewMessages:
    connection: Connection

    async def get_position(self, owner_id: str, conversation_id: str) -> ConversationPosition:
        """How a conversation of this owner stands now; raises NotFound if there is none."""
        if is_id(conversation_id):
            found = await self.connection.execute(
                f"{_STANDING} AND c.owner_id = %(owner)s".encode(), {"ids": [conversation_id], "owner": owner_id}
            )
            if row := await found.fetchone():
                return ConversationPosition(row[1], row[2])
        raise no_such_conversation(conversation_id)

    async def get_positions(self, conversation_ids: Sequence[str]) -> Mapping[str, ConversationPosition]:
        """How all of these stand; those that are gone are missing."""
        found = await self.connection.execute(_STANDING, {"ids": list(conversation_ids)})
        return {row[0]: ConversationPosition(row[1], row[2]) for row in await found.fetchall()}

    async def list_after(self, owner_id: str, conversation_id: str, seq: int) -> list[tuple[int, Message]]:
        """What was said or changed after that number, in order: a page of it, empty only if there is nothing."""
        found = await self.connection.execute(
            _AFTER.encode(), {"conversation": conversation_id, "owner": owner_id, "seq": seq}
        )
        return [(row[0], to_message(row[1:])) for row in await found.fetchall()]

    async def send_hints(self, hints: Sequence[str]) -> None:
        """Give the other processes these hints."""
        await self.connection.execute(
            "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint", (NOTIFY_CHANNEL, list(hints))
        )

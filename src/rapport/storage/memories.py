"""What agents remember about owners: every statement asks for both, and nobody else's is ever looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id, new_id
from rapport.domain.memory import Memory, MemoryCandidate
from rapport.domain.note import Vector
from rapport.storage.database import Connection
from rapport.storage.notes.notes import format_vector

_MEMORIES = 0x6D65_6D6F  # "memo": the class of the advisory locks under which memories are written
_CARD = "id, owner_id, agent_id, key, content, origin, conversation_id, message_id, created_at, updated_at"


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """How much an agent remembers about an owner."""

    count: int
    oldest: datetime | None
    newest: datetime | None
    by_origin: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OutdatedMemory:
    """A memory that another embedder has indexed."""

    owner_id: str
    agent_id: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Memories:
    connection: Connection

    async def lock(self, owner_id: str, agent_id: str) -> None:
        """From here to the end of the transaction nobody else writes what this agent remembers about this owner."""
        # What must hold is between rows (no two alike, not too many), which no constraint can see to.
        await self.connection.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s || '/' || %s))", (_MEMORIES, owner_id, agent_id)
        )

    async def add(
        self, owner_id: str, agent_id: str, candidate: MemoryCandidate, *, embedder: str, vector: Vector
    ) -> Memory:
        """A new memory."""
        made = await self.connection.execute(
            "INSERT INTO memories"
            " (owner_id, agent_id, id, key, content, origin, conversation_id, message_id, embedder, embedding)"
            f" VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::halfvec) RETURNING {_CARD}",
            (
                owner_id,
                agent_id,
                new_id(),
                candidate.key,
                candidate.content,
                candidate.origin,
                candidate.conversation_id,
                candidate.message_id,
                embedder,
                format_vector(vector),
            ),
        )
        row = await made.fetchone()
        assert row is not None
        return Memory(*row)

    async def get(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """The memory, if it is this agent's about this owner."""
        if is_id(memory_id) and (found := await self._find_first("id = %s", owner_id, agent_id, memory_id)):
            return found
        raise no_such_memory(memory_id)

    async def find_by_key(self, owner_id: str, agent_id: str, key: str) -> Memory | None:
        """What is remembered under a key."""
        return await self._find_first("key = %s", owner_id, agent_id, key)

    async def _find_first(self, condition: LiteralString, owner_id: str, agent_id: str, value: str) -> Memory | None:
        found = await self.connection.execute(
            f"SELECT {_CARD} FROM memories WHERE owner_id = %s AND agent_id = %s AND {condition}",
            (owner_id, agent_id, value),
        )
        row = await found.fetchone()
        return Memory(*row) if row else None

    async def list_page(
        self, owner_id: str, agent_id: str, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Memory]:
        """What is remembered, the newest first; `before` is the (created_at, id) of the last one seen."""
        # By when they were made, which never changes: one that is edited between two pages is not skipped.
        found = await self.connection.execute(
            f"SELECT {_CARD} FROM memories WHERE owner_id = %s AND agent_id = %s"
            " AND (%s::timestamptz IS NULL OR (created_at, id) < (%s, %s)) ORDER BY created_at DESC, id DESC LIMIT %s",
            (owner_id, agent_id, before and before[0], before and before[0], before and before[1], limit),
        )
        return [Memory(*row) for row in await found.fetchall()]

    async def find_nearest(
        self, owner_id: str, agent_id: str, *, embedder: str, vector: Vector, limit: int
    ) -> list[tuple[Memory, float]]:
        """The most similar ones of this embedder, best first, each with its similarity."""
        # All of them are compared: they are a thousand at most.
        found = await self.connection.execute(
            f"SELECT {_CARD}, 1 - (embedding <=> %(vector)s::halfvec) FROM memories"
            " WHERE owner_id = %(owner)s AND agent_id = %(agent)s AND embedder = %(embedder)s"
            " ORDER BY embedding <=> %(vector)s::halfvec, id LIMIT %(limit)s",
            {
                "owner": owner_id,
                "agent": agent_id,
                "embedder": embedder,
                "vector": format_vector(vector),
                "limit": limit,
            },
        )
        return [(Memory(*row[:-1]), float(row[-1])) for row in await found.fetchall()]

    async def find_similar(
        self, owner_id: str, agent_id: str, content: str, *, embedder: str, vector: Vector, floor: float, limit: int
    ) -> list[tuple[Memory, float]]:
        """Those at least as similar as `floor`, and one of the very same words whoever has indexed it; best first."""
        # CASE, because vectors of two embedders must not even be compared: they may differ in length.
        found = await self.connection.execute(
            f"SELECT * FROM (SELECT {_CARD}, CASE WHEN content = %(content)s THEN 1 WHEN embedder = %(embedder)s"
            " THEN 1 - (embedding <=> %(vector)s::halfvec) END AS similarity FROM memories"
            " WHERE owner_id = %(owner)s AND agent_id = %(agent)s) AS compared WHERE similarity >= %(floor)s"
            " ORDER BY content = %(content)s DESC, similarity DESC, id LIMIT %(limit)s",
            {
                "owner": owner_id,
                "agent": agent_id,
                "content": content,
                "embedder": embedder,
                "vector": format_vector(vector),
                "floor": floor,
                "limit": limit,
            },
        )
        return [(Memory(*row[:-1]), float(row[-1])) for row in await found.fetchall()]

    async def rewrite(self, memory: Memory, *, embedder: str, vector: Vector) -> Memory:
        """Other words under the same id, with their key and where they come from; raises NotFound if it is gone."""
        made = await self.connection.execute(
            "UPDATE memories SET key = %s, content = %s, origin = %s, conversation_id = %s, message_id = %s,"
            " embedder = %s, embedding = %s::halfvec, updated_at = clock_timestamp()"
            f" WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_CARD}",
            (
                memory.key,
                memory.content,
                memory.origin,
                memory.conversation_id,
                memory.message_id,
                embedder,
                format_vector(vector),
                memory.owner_id,
                memory.agent_id,
                memory.id,
            ),
        )
        return _require_memory(await made.fetchone(), memory.id)

    async def touch(self, memory: Memory, *, key: str | None) -> Memory:
        """The same words, said again or under another key; raises NotFound if it is gone."""
        made = await self.connection.execute(
            "UPDATE memories SET key = %s, updated_at = clock_timestamp()"
            f" WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_CARD}",
            (key, memory.owner_id, memory.agent_id, memory.id),
        )
        return _require_memory(await made.fetchone(), memory.id)

    async def delete(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """Forget one, and return what it was."""
        if not is_id(memory_id):
            raise no_such_memory(memory_id)
        gone = await self.connection.execute(
            f"DELETE FROM memories WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_CARD}",
            (owner_id, agent_id, memory_id),
        )
        return _require_memory(await gone.fetchone(), memory_id)

    async def delete_all(self, owner_id: str, agent_id: str) -> list[str]:
        """Forget everything of this agent's about this owner; returns the ids of what that was."""
        gone = await self.connection.execute(
            "DELETE FROM memories WHERE owner_id = %s AND agent_id = %s RETURNING id", (owner_id, agent_id)
        )
        return [row[0] for row in await gone.fetchall()]

    async def count(self, owner_id: str, agent_id: str) -> int:
        """How many there are, whoever has indexed them."""
        return (await self.get_statistics(owner_id, agent_id)).count

    async def has_some(self, owner_id: str, agent_id: str, *, embedder: str) -> bool:
        """Whether a search by this embedder could find anything: so a turn without memories embeds nothing."""
        found = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM memories WHERE owner_id = %s AND agent_id = %s AND embedder = %s)",
            (owner_id, agent_id, embedder),
        )
        row = await found.fetchone()
        return row is not None and bool(row[0])

    async def get_statistics(self, owner_id: str, agent_id: str) -> MemoryStatistics:
        """How many there are, since when, and who wrote them down."""
        found = await self.connection.execute(
            "SELECT origin, count(*), min(created_at), max(created_at) FROM memories"
            " WHERE owner_id = %s AND agent_id = %s GROUP BY origin",
            (owner_id, agent_id),
        )
        rows = await found.fetchall()
        return MemoryStatistics(
            count=sum(row[1] for row in rows),
            oldest=min((row[2] for row in rows), default=None),
            newest=max((row[3] for row in rows), default=None),
            by_origin={row[0]: row[1] for row in rows},
        )

    async def list_outdated(self, embedder: str, *, limit: int) -> list[OutdatedMemory]:
        """Memories of anybody that another embedder has indexed."""
        found = await self.connection.execute(
            "SELECT owner_id, agent_id, id, content FROM memories WHERE embedder <> %s"
            " ORDER BY owner_id, agent_id, id LIMIT %s",
            (embedder, limit),
        )
        return [OutdatedMemory(*row) for row in await found.fetchall()]

    async def replace_vector(self, memory: OutdatedMemory, *, embedder: str, vector: Vector) -> bool:
        """Give it a vector of another embedder, unless it says something else by now; it has not changed for readers."""
        moved = await self.connection.execute(
            "UPDATE memories SET embedder = %s, embedding = %s::halfvec"
            " WHERE owner_id = %s AND agent_id = %s AND id = %s AND content = %s",
            (embedder, format_vector(vector), memory.owner_id, memory.agent_id, memory.id, memory.content),
        )
        return moved.rowcount == 1

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """How many memories there are of everybody, and how many of them another embedder has indexed."""
        found = await self.connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE embedder <> %s) FROM memories", (embedder,)
        )
        row = await found.fetchone()
        assert row is not None
        return row[0], row[1]


def no_such_memory(memory_id: str) -> NotFound:
    """Missing, somebody else's, or another agent's: the same answer."""
    return NotFound(f"There is no memory {memory_id[:80]!r}.")


def _require_memory(row: tuple[Any, ...] | None, memory_id: str) -> Memory:
    if row is None:
        raise no_such_memory(memory_id)
    return Memory(*row)

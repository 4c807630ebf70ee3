"""Store memories of agents about owners. Every statement asks for both the agent and the owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from rapport.domain.agent_profile import EVERYONE
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id, new_id
from rapport.domain.memory import Memory, MemoryCandidate
from rapport.domain.note import Vector
from rapport.storage.database import Connection
from rapport.storage.notes.notes import format_vector
from rapport.storage.vector_index import count_indexed

_MEMORIES = 0x6D65_6D6F  # "memo": the class of the advisory locks for writing memories
_COLUMNS = "id, owner_id, agent_id, key, content, origin, conversation_id, message_id, created_at, updated_at"


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """Counts of an agent's memories about an owner."""

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
        """Lock this agent's memories about this owner for writing until the transaction ends."""
        # The rules concern several rows (no duplicates, a maximum), which no constraint can check.
        await self.connection.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s || '/' || %s))", (_MEMORIES, owner_id, agent_id)
        )

    async def add(
        self, owner_id: str, agent_id: str, candidate: MemoryCandidate, *, embedder: str, vector: Vector
    ) -> Memory:
        """Store a new memory."""
        cursor = await self.connection.execute(
            "INSERT INTO memories"
            " (owner_id, agent_id, id, key, content, origin, conversation_id, message_id, embedder, embedding)"
            f" VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::halfvec) RETURNING {_COLUMNS}",
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
        row = await cursor.fetchone()
        assert row is not None
        return _to_memory(row)

    async def get(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """Return the memory; raise NotFound if it is missing, another agent's or about somebody else."""
        if is_id(memory_id) and (memory := await self._find_first("id = %s", owner_id, agent_id, memory_id)):
            return memory
        raise no_such_memory(memory_id)

    async def find_by_key(self, owner_id: str, agent_id: str, key: str) -> Memory | None:
        """Return the memory with that key; None if there is none."""
        return await self._find_first("key = %s", owner_id, agent_id, key)

    async def _find_first(self, condition: LiteralString, owner_id: str, agent_id: str, value: str) -> Memory | None:
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM memories WHERE owner_id = %s AND agent_id = %s AND {condition}",
            (owner_id, agent_id, value),
        )
        row = await cursor.fetchone()
        return _to_memory(row) if row else None

    async def list_page(
        self, owner_id: str, agent_id: str, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Memory]:
        """Return the memories, the newest first; `before` is the (created_at, id) of the previous page's last."""
        # created_at never changes, so a memory that is edited between two pages is not skipped.
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM memories WHERE owner_id = %s AND agent_id = %s"
            " AND (%s::timestamptz IS NULL OR (created_at, id) < (%s, %s)) ORDER BY created_at DESC, id DESC LIMIT %s",
            (owner_id, agent_id, before and before[0], before and before[0], before and before[1], limit),
        )
        return [_to_memory(row) for row in await cursor.fetchall()]

    async def find_nearest(
        self, owner_id: str, agent_id: str, *, embedder: str, vector: Vector, limit: int
    ) -> list[tuple[Memory, float]]:
        """Return the most similar memories of this embedder with their similarity, best first."""
        # All of them are compared: there are a thousand at most.
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS}, 1 - (embedding <=> %(vector)s::halfvec) AS similarity FROM memories"
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
        return [(_to_memory(row), float(row.similarity)) for row in await cursor.fetchall()]

    async def find_similar(
        self, owner_id: str, agent_id: str, content: str, *, embedder: str, vector: Vector, floor: float, limit: int
    ) -> list[tuple[Memory, float]]:
        """Return memories at least as similar as `floor`, and one with the same text by any embedder; best first."""
        # CASE, because comparing vectors of two embedders fails if they differ in length.
        cursor = await self.connection.execute(
            f"SELECT * FROM (SELECT {_COLUMNS}, CASE WHEN content = %(content)s THEN 1 WHEN embedder = %(embedder)s"
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
        return [(_to_memory(row), float(row.similarity)) for row in await cursor.fetchall()]

    async def rewrite(self, memory: Memory, *, embedder: str, vector: Vector) -> Memory:
        """Replace the content, key and origin of a memory; raise NotFound if it is gone."""
        cursor = await self.connection.execute(
            "UPDATE memories SET key = %s, content = %s, origin = %s, conversation_id = %s, message_id = %s,"
            " embedder = %s, embedding = %s::halfvec, updated_at = clock_timestamp()"
            f" WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_COLUMNS}",
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
        return _require_memory(await cursor.fetchone(), memory.id)

    async def touch(self, memory: Memory, *, key: str | None) -> Memory:
        """Set the key and the time of a memory whose content was stated again; raise NotFound if it is gone."""
        cursor = await self.connection.execute(
            "UPDATE memories SET key = %s, updated_at = clock_timestamp()"
            f" WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_COLUMNS}",
            (key, memory.owner_id, memory.agent_id, memory.id),
        )
        return _require_memory(await cursor.fetchone(), memory.id)

    async def delete(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """Delete a memory and return it; raise NotFound if it is gone."""
        if not is_id(memory_id):
            raise no_such_memory(memory_id)
        cursor = await self.connection.execute(
            f"DELETE FROM memories WHERE owner_id = %s AND agent_id = %s AND id = %s RETURNING {_COLUMNS}",
            (owner_id, agent_id, memory_id),
        )
        return _require_memory(await cursor.fetchone(), memory_id)

    async def delete_of_agent(self, agent_owner_id: str, agent_id: str) -> None:
        """Delete what a deleted agent remembered: for its owner or, of an agent for everyone, for all without one of that id."""
        await self.connection.execute(
            "DELETE FROM memories m WHERE agent_id = %(agent)s AND CASE WHEN %(owner)s = %(everyone)s"
            " THEN NOT EXISTS (SELECT FROM agents a WHERE a.owner_id = m.owner_id AND a.id = m.agent_id)"
            " ELSE m.owner_id = %(owner)s END",
            {"agent": agent_id, "owner": agent_owner_id, "everyone": EVERYONE},
        )

    async def delete_all(self, owner_id: str, agent_id: str) -> list[str]:
        """Delete all memories of this agent about this owner; return their ids."""
        cursor = await self.connection.execute(
            "DELETE FROM memories WHERE owner_id = %s AND agent_id = %s RETURNING id", (owner_id, agent_id)
        )
        return [row.id for row in await cursor.fetchall()]

    async def count(self, owner_id: str, agent_id: str) -> int:
        """Return the number of memories, by any embedder."""
        return (await self.get_statistics(owner_id, agent_id)).count

    async def has_some(self, owner_id: str, agent_id: str, *, embedder: str) -> bool:
        """Return True if this embedder has indexed any memory. If not, a turn need not embed the question."""
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM memories WHERE owner_id = %s AND agent_id = %s AND embedder = %s) AS has_some",
            (owner_id, agent_id, embedder),
        )
        row = await cursor.fetchone()
        return row is not None and bool(row.has_some)

    async def get_statistics(self, owner_id: str, agent_id: str) -> MemoryStatistics:
        """Return the number of memories by origin, and the times of the oldest and the newest."""
        cursor = await self.connection.execute(
            "SELECT origin, count(*) AS count, min(created_at) AS oldest, max(created_at) AS newest FROM memories"
            " WHERE owner_id = %s AND agent_id = %s GROUP BY origin",
            (owner_id, agent_id),
        )
        rows = await cursor.fetchall()
        return MemoryStatistics(
            count=sum(row.count for row in rows),
            oldest=min((row.oldest for row in rows), default=None),
            newest=max((row.newest for row in rows), default=None),
            by_origin={row.origin: row.count for row in rows},
        )

    async def list_outdated(self, embedder: str, *, limit: int) -> list[OutdatedMemory]:
        """Return memories about any owner that another embedder has indexed."""
        cursor = await self.connection.execute(
            "SELECT owner_id, agent_id, id, content FROM memories WHERE embedder <> %s"
            " ORDER BY owner_id, agent_id, id LIMIT %s",
            (embedder, limit),
        )
        return [OutdatedMemory(row.owner_id, row.agent_id, row.id, row.content) for row in await cursor.fetchall()]

    async def replace_vector(self, memory: OutdatedMemory, *, embedder: str, vector: Vector) -> bool:
        """Store a vector of another embedder, unless the content has changed; return True if stored. updated_at stays."""
        cursor = await self.connection.execute(
            "UPDATE memories SET embedder = %s, embedding = %s::halfvec"
            " WHERE owner_id = %s AND agent_id = %s AND id = %s AND content = %s",
            (embedder, format_vector(vector), memory.owner_id, memory.agent_id, memory.id, memory.content),
        )
        return cursor.rowcount == 1

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """Return the number of all memories, and of those that another embedder has indexed."""
        return await count_indexed(self.connection, "memories", embedder)


def no_such_memory(memory_id: str) -> NotFound:
    """Return the error for a missing memory, somebody else's and another agent's: they must look the same."""
    return NotFound(f"There is no memory {memory_id[:80]!r}.")


def _require_memory(row: Any, memory_id: str) -> Memory:
    if row is None:
        raise no_such_memory(memory_id)
    return _to_memory(row)


def _to_memory(row: Any) -> Memory:
    return Memory(
        id=row.id,
        owner_id=row.owner_id,
        agent_id=row.agent_id,
        key=row.key,
        content=row.content,
        origin=row.origin,
        conversation_id=row.conversation_id,
        message_id=row.message_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

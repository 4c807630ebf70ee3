"""Store memories of an agent about an owner: each fact once, within the capacity (MEM-1, MEM-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TypeAlias, get_args

import structlog

from rapport.domain.embedder import Embedder
from rapport.domain.errors import Conflict, InvalidInput
from rapport.domain.live_updates import MemoryChangeKind
from rapport.domain.memory import (
    CAPACITY,
    MAX_CHARACTERS,
    SAME_SIMILARITY,
    WARN_AT_SHARE,
    Memory,
    MemoryCandidate,
    Origin,
)
from rapport.domain.note import Vector
from rapport.domain.text_checks import check_text, has_visible_text
from rapport.memory.same_fact import adds_nothing, average_vectors, can_be_same, split_for_embedding
from rapport.storage.database import Connection, Database
from rapport.storage.memories import Memories

log = structlog.get_logger()

MAX_KEY_CHARACTERS = 200
MAX_QUERY_CHARACTERS = 4_000
_PRECISION = 0.0005
"""Vectors are stored at half precision, so a similarity is exact to three decimals."""
_WARN_EVERY = CAPACITY // 20
"""Number of new memories between two warnings about the capacity."""
_MOST_TWINS = 50
"""Number of similar memories that are compared exactly."""
_FULL = (
    f"All {CAPACITY:,} places for memories are taken: nothing was stored. Forget some that matter no longer, or edit one"
    " that is there."
)


class Duplicate(Conflict):
    """The memory with the id `memory_id` states the same fact, or has the same key."""

    def __init__(self, message: str, *, memory_id: str) -> None:
        super().__init__(message)
        self.memory_id = memory_id


class CapacityReached(Conflict):
    """The capacity is used up: a memory must be deleted first."""


@dataclass(frozen=True, slots=True)
class PreparedMemory:
    """A memory candidate with its vector, ready to be stored."""

    candidate: MemoryCandidate
    embedder: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome for one memory."""

    kind: MemoryChangeKind
    memory: Memory
    """The memory after the change; a deleted one as it was."""


ChangeListener: TypeAlias = Callable[[str, MemoryChangeKind, Memory], None]
"""A function that is called with the owner and the change."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of storing memory candidates."""

    changes: Sequence[Change] = ()
    refused: Sequence[MemoryCandidate] = ()
    """Candidates that were not stored because the store is full."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The number of memories, by origin."""

    count: int
    capacity: int
    share: float
    warning: str | None
    """A warning when the store is nearly full."""
    oldest: datetime | None
    newest: datetime | None
    by_origin: Mapping[Origin, int]


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Stores each agent's memories about each owner.

    No two memories of one agent about one owner state the same fact, and there are never more than CAPACITY, also with
    concurrent writers: they take a lock and check again under it.
    """

    database: Database
    embedder: Embedder
    listeners: list[ChangeListener] = field(default_factory=list[ChangeListener])

    def announce(self, owner_id: str, changes: Sequence[Change]) -> None:
        """Call the listeners with the changes. The caller of `apply` calls this after its commit."""
        for change in changes:
            for hear in self.listeners:
                hear(owner_id, change.kind, change.memory)

    async def create(self, owner_id: str, agent_id: str, candidate: MemoryCandidate) -> Memory:
        """Store a new memory. Raise Duplicate if one states the same fact or has its key, Full at the capacity."""
        [prepared] = await self._embed([check_content(candidate)])
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            if prepared.candidate.key is not None and (
                memory_with_key := await memories.find_by_key(owner_id, agent_id, prepared.candidate.key)
            ):
                raise _key_taken(memory_with_key)
            if duplicates := await _twins(memories, owner_id, agent_id, prepared):
                raise _says_the_same(duplicates[0])
            if (memory := await _add(memories, owner_id, agent_id, prepared)) is None:
                raise CapacityReached(_FULL)
        self.announce(owner_id, [Change("created", memory)])
        return memory

    async def upsert(self, owner_id: str, agent_id: str, candidate: MemoryCandidate) -> Memory:
        """Store a fact: under its key, merged with memories of the same fact, or as a new one. Raise Full at the capacity."""
        prepared = await self._embed([check_content(candidate)])
        async with self.database.transaction() as connection:
            applied = await self.apply(connection, owner_id, agent_id, prepared)
        self.announce(owner_id, applied.changes)
        if applied.refused:
            raise CapacityReached(_FULL)
        return applied.changes[0].memory

    async def prepare(self, candidates: Sequence[MemoryCandidate]) -> list[PreparedMemory]:
        """Embed candidates for `apply`; those that can't be stored are logged and left out. Raise Transient."""
        valid: list[MemoryCandidate] = []
        for candidate in candidates:
            try:
                valid.append(check_content(candidate))
            except InvalidInput as error:
                log.warning("memory.invalid", origin=candidate.origin, reason=str(error))
        return await self._embed(valid)

    async def apply(
        self, connection: Connection, owner_id: str, agent_id: str, writes: Sequence[PreparedMemory]
    ) -> ApplyResult:
        """Store candidates inside the caller's transaction, each as `upsert` does; those above the capacity are only counted.

        Take other locks before this call: from here to the end of the transaction other writers wait.
        """
        if not writes:
            return ApplyResult()
        memories = Memories(connection)
        await memories.lock(owner_id, agent_id)
        changes: list[Change] = []
        refused: list[MemoryCandidate] = []
        for write in writes:
            upserted = await _upsert(memories, owner_id, agent_id, write)
            changes += upserted
            if not upserted:
                refused.append(write.candidate)
        if refused:
            log.warning("memory.full", agent=agent_id, owner=owner_id, refused=len(refused), capacity=CAPACITY)
        return ApplyResult(changes, refused)

    async def edit(
        self, owner_id: str, agent_id: str, memory_id: str, *, content: str | None = None, key: str | None = None
    ) -> Memory:
        """Change the content or the key of a memory for its owner; an empty key removes the key, None keeps it.

        Raise NotFound, and Duplicate if another memory states the same fact or has the key.
        """
        if content is None and key is None:
            raise InvalidInput("There is nothing to change: send `content`, `key` or both.")
        new_key = None if key is None else check_key(key)
        async with self.database.statement() as connection:
            await Memories(connection).get(owner_id, agent_id, memory_id)
        # Text that the owner edits has no source message.
        words = None if content is None else check_content(MemoryCandidate(content, origin="user"))
        embedded = None if words is None else (await self._embed([words]))[0]
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            before = await memories.get(owner_id, agent_id, memory_id)
            kept_key = before.key if key is None else new_key
            memory_with_key = None if kept_key is None else await memories.find_by_key(owner_id, agent_id, kept_key)
            if memory_with_key is not None and memory_with_key.id != memory_id:
                raise _key_taken(memory_with_key)
            if embedded is None or embedded.candidate.content == before.content:
                edited = await memories.touch(before, key=kept_key)
            elif duplicates := await _twins(memories, owner_id, agent_id, embedded, except_id=memory_id):
                raise _says_the_same(duplicates[0])
            else:
                edited = await _rewritten(memories, before, embedded, key=kept_key)
        self.announce(owner_id, [Change("updated", edited)])
        return edited

    async def delete(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """Delete a memory and return it; raise NotFound."""
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            memory = await memories.delete(owner_id, agent_id, memory_id)
        self.announce(owner_id, [Change("deleted", memory)])
        return memory

    async def delete_all(self, owner_id: str, agent_id: str) -> int:
        """Delete all memories; return how many. Idempotent."""
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            deleted = await memories.list_page(owner_id, agent_id, limit=CAPACITY)
            await memories.delete_all(owner_id, agent_id)
        self.announce(owner_id, [Change("deleted", memory) for memory in deleted])
        return len(deleted)

    async def page(
        self, owner_id: str, agent_id: str, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Memory]:
        """Return memories, the newest first; `before` is the (created_at, id) of the previous page's last."""
        async with self.database.statement() as connection:
            return await Memories(connection).list_page(owner_id, agent_id, limit=limit, before=before)

    async def search(self, owner_id: str, agent_id: str, query: str, limit: int) -> list[tuple[Memory, float]]:
        """Return the memories most similar to a query, best first, with similarities. Raise Transient."""
        check_text(query, what="q", limit=MAX_QUERY_CHARACTERS)
        if not has_visible_text(query):
            return []
        async with self.database.statement() as connection:
            if not await Memories(connection).has_some(owner_id, agent_id, embedder=self.embedder.name):
                return []
        return await self.find_nearest(owner_id, agent_id, await self.embedder.embed_question(query), limit)

    async def find_nearest(
        self, owner_id: str, agent_id: str, vector: Vector, limit: int
    ) -> list[tuple[Memory, float]]:
        """Return the memories most similar to a vector."""
        async with self.database.statement() as connection:
            return await Memories(connection).find_nearest(
                owner_id, agent_id, embedder=self.embedder.name, vector=vector, limit=limit
            )

    async def stats(self, owner_id: str, agent_id: str) -> MemoryStats:
        """Return the number of memories and the capacity."""
        async with self.database.statement() as connection:
            statistics = await Memories(connection).get_statistics(owner_id, agent_id)
        share = statistics.count / CAPACITY
        return MemoryStats(
            count=statistics.count,
            capacity=CAPACITY,
            share=share,
            warning=_warning(statistics.count) if share >= WARN_AT_SHARE else None,
            oldest=statistics.oldest,
            newest=statistics.newest,
            by_origin={origin: statistics.by_origin.get(origin, 0) for origin in get_args(Origin)},
        )

    async def reindex_batch(self, *, limit: int = 50) -> int:
        """Embed a batch of memories of all owners that another embedder has indexed; return how many, 0 when done."""
        async with self.database.statement() as connection:
            outdated = await Memories(connection).list_outdated(self.embedder.name, limit=limit)
        vectors = await self._vectors([memory.content for memory in outdated])
        for memory, vector in zip(outdated, vectors, strict=True):
            async with self.database.statement() as connection:
                await Memories(connection).replace_vector(memory, embedder=self.embedder.name, vector=vector)
        return len(outdated)

    async def _embed(self, candidates: Sequence[MemoryCandidate]) -> list[PreparedMemory]:
        vectors = await self._vectors([candidate.content for candidate in candidates])
        return [
            PreparedMemory(candidate, self.embedder.name, vector)
            for candidate, vector in zip(candidates, vectors, strict=True)
        ]

    async def _vectors(self, contents: Sequence[str]) -> list[Vector]:
        """Return a vector for each whole text: a long one is embedded in pieces."""
        cut = [split_for_embedding(content) for content in contents]
        texts = [piece for pieces in cut for piece in pieces]
        vectors = iter(await self.embedder.embed(texts) if texts else [])
        return [average_vectors(list(islice(vectors, len(pieces)))) for pieces in cut]


def check_content(candidate: MemoryCandidate) -> MemoryCandidate:
    """Return the candidate as it is stored; raise InvalidInput or TooLarge with a sentence for its author."""
    content = check_text(candidate.content, what="content", limit=MAX_CHARACTERS).strip()
    if not has_visible_text(content):
        raise InvalidInput("The memory is empty: `content` needs at least one visible character.")
    return replace(candidate, content=content, key=None if candidate.key is None else check_key(candidate.key))


def check_key(key: str) -> str | None:
    """Return the key as it is stored; None for an empty one."""
    stripped = check_text(key, what="key", limit=MAX_KEY_CHARACTERS).strip()
    return stripped if has_visible_text(stripped) else None


async def _upsert(memories: Memories, owner_id: str, agent_id: str, write: PreparedMemory) -> Sequence[Change]:
    """Store one candidate and return the changes, that of the stored memory first; empty at the capacity."""
    key = write.candidate.key
    memory_with_key = None if key is None else await memories.find_by_key(owner_id, agent_id, key)
    duplicates = await _twins(memories, owner_id, agent_id, write, except_id=memory_with_key and memory_with_key.id)
    if memory_with_key is not None:
        if memory_with_key.content == write.candidate.content:
            return [Change("updated", await memories.touch(memory_with_key, key=key))]
        target = memory_with_key
    elif duplicates:
        target, *duplicates = duplicates
        if adds_nothing(write.candidate.content, target.content):
            return [Change("updated", await memories.touch(target, key=target.key or key))]
    else:
        added = await _add(memories, owner_id, agent_id, write)
        return [] if added is None else [Change("created", added)]
    # Delete the duplicates first, so that their key is free.
    merged = [Change("deleted", await memories.delete(owner_id, agent_id, duplicate.id)) for duplicate in duplicates]
    keys = [
        candidate_key
        for candidate_key in (target.key, key, *(duplicate.key for duplicate in duplicates))
        if candidate_key is not None
    ]
    rewritten = await _rewritten(memories, target, write, key=keys[0] if keys else None)
    return [Change("updated", rewritten), *merged]


async def _twins(
    memories: Memories, owner_id: str, agent_id: str, prepared: PreparedMemory, *, except_id: str | None = None
) -> list[Memory]:
    """Return the memories that state the same fact, except the one with `except_id`, the most similar first."""
    similar = await memories.find_similar(
        owner_id,
        agent_id,
        prepared.candidate.content,
        embedder=prepared.embedder,
        vector=prepared.vector,
        floor=SAME_SIMILARITY - _PRECISION,
        limit=_MOST_TWINS,
    )
    return [
        memory
        for memory, _ in similar
        if memory.id != except_id and can_be_same(memory.content, prepared.candidate.content)
    ]


async def _add(memories: Memories, owner_id: str, agent_id: str, prepared: PreparedMemory) -> Memory | None:
    """Store and return a new memory; None at the capacity."""
    count = await memories.count(owner_id, agent_id)
    if count >= CAPACITY:
        return None
    memory = await memories.add(
        owner_id, agent_id, prepared.candidate, embedder=prepared.embedder, vector=prepared.vector
    )
    if count + 1 >= CAPACITY * WARN_AT_SHARE and (count + 1) % _WARN_EVERY == 0:
        log.warning("memory.nearly_full", agent=agent_id, owner=owner_id, count=count + 1, capacity=CAPACITY)
    return memory


async def _rewritten(memories: Memories, before: Memory, prepared: PreparedMemory, *, key: str | None) -> Memory:
    """Store and return the memory with the newer text and its source."""
    now = replace(
        before,
        key=key,
        content=prepared.candidate.content,
        origin=prepared.candidate.origin,
        conversation_id=prepared.candidate.conversation_id,
        message_id=prepared.candidate.message_id,
    )
    return await memories.rewrite(now, embedder=prepared.embedder, vector=prepared.vector)


def _says_the_same(memory: Memory) -> Duplicate:
    return Duplicate(f"The memory {memory.id} says the same already: edit that one.", memory_id=memory.id)


def _key_taken(memory: Memory) -> Duplicate:
    return Duplicate(f"The memory {memory.id} has this key already: edit that one.", memory_id=memory.id)


def _warning(count: int) -> str:
    return f"{count:,} of {CAPACITY:,} places are taken: forget what matters no longer, or soon nothing new is kept."

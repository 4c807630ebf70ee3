"""The book of memories: what an agent keeps about an owner, each fact once, and never more than fits (MEM-1, MEM-3)."""

from __future__ import annotations

import math
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
from rapport.memory.same_fact import adds_nothing, can_be_same, pieces_of
from rapport.storage.database import Connection, Database
from rapport.storage.memories import Memories

log = structlog.get_logger()

MAX_KEY = 200
MAX_QUERY = 4_000
_PRECISION = 0.0005
"""Vectors are stored at half precision, so a similarity is known to three decimals."""
_WARN_EVERY = CAPACITY // 20
"""Places between two warnings: one for every memory would drown the log."""
_MOST_TWINS = 50
"""Number of similar memories that are compared exactly."""
_FULL = (
    f"All {CAPACITY:,} places for memories are taken: nothing was stored. Forget some that matter no longer, or edit one"
    " that is there."
)


class Duplicate(Conflict):
    """Something that says the same is remembered already, under `memory_id`."""

    def __init__(self, message: str, *, memory_id: str) -> None:
        super().__init__(message)
        self.memory_id = memory_id


class Full(Conflict):
    """There is no place for another memory: one has to go first."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A remark with its vector, ready to be stored."""

    remark: MemoryCandidate
    embedder: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome for one memory."""

    kind: MemoryChangeKind
    memory: Memory
    """As it is now; of one that is deleted, as it was."""


Hearer: TypeAlias = Callable[[str, MemoryChangeKind, Memory], None]
"""A function that is told whose memory has changed, and how."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of storing memory candidates."""

    changes: Sequence[Change] = ()
    refused: Sequence[MemoryCandidate] = ()
    """Candidates that were not stored because the store is full."""


@dataclass(frozen=True, slots=True)
class Stats:
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
    """Remembers for each agent what it knows about each owner.

    No two memories of one agent about one owner say the same, and there are never more than CAPACITY, whoever writes at
    the same moment: writers take turns, and look again when it is theirs.
    """

    database: Database
    embedder: Embedder
    listeners: list[Hearer] = field(default_factory=list[Hearer])

    def announce(self, owner_id: str, changes: Sequence[Change]) -> None:
        """Tell whoever wants to hear it what has changed. Whoever calls `apply` calls this when it has committed."""
        for change in changes:
            for hear in self.listeners:
                hear(owner_id, change.kind, change.memory)

    async def create(self, owner_id: str, agent_id: str, remark: MemoryCandidate) -> Memory:
        """Return a new memory. Raises Duplicate if one says the same or has its key, Full if there is no place."""
        [new] = await self._embed([check_content(remark)])
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            if new.remark.key is not None and (taken := await memories.find_by_key(owner_id, agent_id, new.remark.key)):
                raise _key_taken(taken)
            if twins := await _twins(memories, owner_id, agent_id, new):
                raise _says_the_same(twins[0])
            if (made := await _add(memories, owner_id, agent_id, new)) is None:
                raise Full(_FULL)
        self.announce(owner_id, [Change("created", made)])
        return made

    async def upsert(self, owner_id: str, agent_id: str, remark: MemoryCandidate) -> Memory:
        """Remember it: under its key, merged with what says the same, or anew. Raises Full if there is no place."""
        prepared = await self._embed([check_content(remark)])
        async with self.database.transaction() as connection:
            applied = await self.apply(connection, owner_id, agent_id, prepared)
        self.announce(owner_id, applied.changes)
        if applied.refused:
            raise Full(_FULL)
        return applied.changes[0].memory

    async def prepare(self, remarks: Sequence[MemoryCandidate]) -> list[Prepared]:
        """Embed remarks for `apply`; those that can't be stored are left out with a log. Raises Transient."""
        fit: list[MemoryCandidate] = []
        for remark in remarks:
            try:
                fit.append(check_content(remark))
            except InvalidInput as error:
                log.warning("memory.unfit", origin=remark.origin, reason=str(error))
        return await self._embed(fit)

    async def apply(self, connection: Connection, owner_id: str, agent_id: str, writes: Sequence[Prepared]) -> Applied:
        """Store remarks inside the caller's transaction, each as `upsert` does; what finds no place is only reported.

        Whoever holds other locks takes them before: from here to the end of the transaction other writers wait.
        """
        if not writes:
            return Applied()
        memories = Memories(connection)
        await memories.lock(owner_id, agent_id)
        changes: list[Change] = []
        refused: list[MemoryCandidate] = []
        for write in writes:
            made = await _upsert(memories, owner_id, agent_id, write)
            changes += made
            if not made:
                refused.append(write.remark)
        if refused:
            log.warning("memory.full", agent=agent_id, owner=owner_id, refused=len(refused), capacity=CAPACITY)
        return Applied(changes, refused)

    async def edit(
        self, owner_id: str, agent_id: str, memory_id: str, *, content: str | None = None, key: str | None = None
    ) -> Memory:
        """Other words or another key, by the owner's hand; an empty key takes the key away, None leaves it.

        Raises NotFound, and Duplicate if another memory says the same or has the key.
        """
        if content is None and key is None:
            raise InvalidInput("There is nothing to change: send `content`, `key` or both.")
        new_key = None if key is None else check_key(key)
        async with self.database.statement() as connection:
            await Memories(connection).get(owner_id, agent_id, memory_id)
        # The owner's own words do not come from any message.
        words = None if content is None else check_content(MemoryCandidate(content, origin="user"))
        embedded = None if words is None else (await self._embed([words]))[0]
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            before = await memories.get(owner_id, agent_id, memory_id)
            kept_key = before.key if key is None else new_key
            taken = None if kept_key is None else await memories.find_by_key(owner_id, agent_id, kept_key)
            if taken is not None and taken.id != memory_id:
                raise _key_taken(taken)
            if embedded is None or embedded.remark.content == before.content:
                edited = await memories.touch(before, key=kept_key)
            elif twins := await _twins(memories, owner_id, agent_id, embedded, but=memory_id):
                raise _says_the_same(twins[0])
            else:
                edited = await _rewritten(memories, before, embedded, key=kept_key)
        self.announce(owner_id, [Change("updated", edited)])
        return edited

    async def delete(self, owner_id: str, agent_id: str, memory_id: str) -> Memory:
        """Forget one, and return what it was; raises NotFound."""
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            gone = await memories.delete(owner_id, agent_id, memory_id)
        self.announce(owner_id, [Change("deleted", gone)])
        return gone

    async def delete_all(self, owner_id: str, agent_id: str) -> int:
        """Forget everything; returns how much that was. Again, it is nothing."""
        async with self.database.transaction() as connection:
            memories = Memories(connection)
            await memories.lock(owner_id, agent_id)
            gone = await memories.list_page(owner_id, agent_id, limit=CAPACITY)
            await memories.delete_all(owner_id, agent_id)
        self.announce(owner_id, [Change("deleted", one) for one in gone])
        return len(gone)

    async def page(
        self, owner_id: str, agent_id: str, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Memory]:
        """Return what is remembered, the newest first; `before` is the (created_at, id) of the last one seen."""
        async with self.database.statement() as connection:
            return await Memories(connection).list_page(owner_id, agent_id, limit=limit, before=before)

    async def search(self, owner_id: str, agent_id: str, query: str, limit: int) -> list[tuple[Memory, float]]:
        """Return what is remembered about something, best first, with similarities. Raises Transient."""
        check_text(query, what="q", limit=MAX_QUERY)
        if not has_visible_text(query):
            return []
        async with self.database.statement() as connection:
            if not await Memories(connection).has_some(owner_id, agent_id, embedder=self.embedder.name):
                return []
        return await self.near(owner_id, agent_id, await self.embedder.embed_question(query), limit)

    async def near(self, owner_id: str, agent_id: str, vector: Vector, limit: int) -> list[tuple[Memory, float]]:
        """Return what is remembered about something whose vector is known already."""
        async with self.database.statement() as connection:
            return await Memories(connection).find_nearest(
                owner_id, agent_id, embedder=self.embedder.name, vector=vector, limit=limit
            )

    async def stats(self, owner_id: str, agent_id: str) -> Stats:
        """Return how full the book is."""
        async with self.database.statement() as connection:
            held = await Memories(connection).get_statistics(owner_id, agent_id)
        share = held.count / CAPACITY
        return Stats(
            count=held.count,
            capacity=CAPACITY,
            share=share,
            warning=_warning(held.count) if share >= WARN_AT_SHARE else None,
            oldest=held.oldest,
            newest=held.newest,
            by_origin={origin: held.by_origin.get(origin, 0) for origin in get_args(Origin)},
        )

    async def reindex_some(self, *, limit: int = 50) -> int:
        """Embed again what another embedder has indexed, of anybody; returns how many were looked at, 0 when done."""
        async with self.database.statement() as connection:
            some = await Memories(connection).list_outdated(self.embedder.name, limit=limit)
        vectors = await self._vectors([one.content for one in some])
        for one, vector in zip(some, vectors, strict=True):
            async with self.database.statement() as connection:
                await Memories(connection).replace_vector(one, embedder=self.embedder.name, vector=vector)
        return len(some)

    async def _embed(self, remarks: Sequence[MemoryCandidate]) -> list[Prepared]:
        vectors = await self._vectors([remark.content for remark in remarks])
        return [Prepared(one, self.embedder.name, vector) for one, vector in zip(remarks, vectors, strict=True)]

    async def _vectors(self, contents: Sequence[str]) -> list[Vector]:
        """Return a vector for each text, the whole of it."""
        cut = [pieces_of(content) for content in contents]
        texts = [piece for pieces in cut for piece in pieces]
        vectors = iter(await self.embedder.embed(texts) if texts else [])
        return [_mean(list(islice(vectors, len(pieces)))) for pieces in cut]


def check_content(remark: MemoryCandidate) -> MemoryCandidate:
    """Return the remark as it is stored; raises InvalidInput or TooLarge with a sentence for whoever wrote it."""
    content = check_text(remark.content, what="content", limit=MAX_CHARACTERS).strip()
    if not has_visible_text(content):
        raise InvalidInput("The memory is empty: `content` needs at least one visible character.")
    return replace(remark, content=content, key=None if remark.key is None else check_key(remark.key))


def check_key(key: str) -> str | None:
    """Return the key as it is stored; None for one with nothing in it."""
    stripped = check_text(key, what="key", limit=MAX_KEY).strip()
    return stripped if has_visible_text(stripped) else None


async def _upsert(memories: Memories, owner_id: str, agent_id: str, write: Prepared) -> Sequence[Change]:
    """Store one remark: what is remembered now comes first. Empty if there was no place."""
    key = write.remark.key
    own = None if key is None else await memories.find_by_key(owner_id, agent_id, key)
    twins = await _twins(memories, owner_id, agent_id, write, but=own and own.id)
    if own is not None:
        if own.content == write.remark.content:
            return [Change("updated", await memories.touch(own, key=key))]
        target = own
    elif twins:
        target, *twins = twins
        if adds_nothing(write.remark.content, target.content):
            return [Change("updated", await memories.touch(target, key=target.key or key))]
    else:
        made = await _add(memories, owner_id, agent_id, write)
        return [] if made is None else [Change("created", made)]
    # What else says the same is gone before its key may be given on.
    absorbed = [Change("deleted", await memories.delete(owner_id, agent_id, twin.id)) for twin in twins]
    keys = [one for one in (target.key, key, *(twin.key for twin in twins)) if one is not None]
    kept = await _rewritten(memories, target, write, key=keys[0] if keys else None)
    return [Change("updated", kept), *absorbed]


async def _twins(
    memories: Memories, owner_id: str, agent_id: str, new: Prepared, *, but: str | None = None
) -> list[Memory]:
    """Return the memories that say the same, but for one, the most similar first."""
    found = await memories.find_similar(
        owner_id,
        agent_id,
        new.remark.content,
        embedder=new.embedder,
        vector=new.vector,
        floor=SAME_SIMILARITY - _PRECISION,
        limit=_MOST_TWINS,
    )
    return [one for one, _ in found if one.id != but and can_be_same(one.content, new.remark.content)]


async def _add(memories: Memories, owner_id: str, agent_id: str, new: Prepared) -> Memory | None:
    """Return a new memory, if there is a place for it."""
    count = await memories.count(owner_id, agent_id)
    if count >= CAPACITY:
        return None
    made = await memories.add(owner_id, agent_id, new.remark, embedder=new.embedder, vector=new.vector)
    if count + 1 >= CAPACITY * WARN_AT_SHARE and (count + 1) % _WARN_EVERY == 0:
        log.warning("memory.nearly_full", agent=agent_id, owner=owner_id, count=count + 1, capacity=CAPACITY)
    return made


async def _rewritten(memories: Memories, before: Memory, new: Prepared, *, key: str | None) -> Memory:
    """Return the memory with the newer words, and where these come from."""
    now = replace(
        before,
        key=key,
        content=new.remark.content,
        origin=new.remark.origin,
        conversation_id=new.remark.conversation_id,
        message_id=new.remark.message_id,
    )
    return await memories.rewrite(now, embedder=new.embedder, vector=new.vector)


def _mean(vectors: Sequence[Vector]) -> Vector:
    """Return the direction of them all together, at length 1."""
    if len(vectors) == 1:
        return vectors[0]
    summed = [math.fsum(numbers) for numbers in zip(*vectors, strict=True)]
    length = math.hypot(*summed)
    return [number / length for number in summed] if length else vectors[0]


def _says_the_same(memory: Memory) -> Duplicate:
    return Duplicate(f"The memory {memory.id} says the same already: edit that one.", memory_id=memory.id)


def _key_taken(memory: Memory) -> Duplicate:
    return Duplicate(f"The memory {memory.id} has this key already: edit that one.", memory_id=memory.id)


def _warning(count: int) -> str:
    return f"{count:,} of {CAPACITY:,} places are taken: forget what matters no longer, or soon nothing new is kept."

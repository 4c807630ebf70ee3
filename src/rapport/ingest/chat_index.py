"""Giving messages of groups their vectors: stretch by stretch, so that it can be given up and gone on with at any time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rapport.domain.agents import AGENTS
from rapport.domain.notes import Vector
from rapport.domain.text import visible
from rapport.storage.database import Database
from rapport.storage.message_vectors import MessageVectors, ensure_index, has_index
from rapport.storage.migrate import schema_lock

STRETCH = 64
"""Messages looked at in one go: embedded in some tenths of a second, and stored in one short transaction."""
MAX_CHARACTERS = 2_000
"""Of a message that are embedded: no embedder reads much more."""

_HANDLES = "|".join(re.escape(handle) for handle in sorted({one for agent in AGENTS.values() for one in agent.handles}))
_CALLS = re.compile(rf"(?<![\w@.])(?:/\w{{1,64}})?@(?:{_HANDLES})(?![\w-]|\.\w)", re.IGNORECASE)


class Embedder(Protocol):
    """Texts as vectors."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]: ...


class Went(NamedTuple):
    """How far a step went."""

    made: int
    """So many messages have got a vector."""
    more: bool
    """There is more to do in this group."""


def embedded_words(text: str) -> str:
    """What of a message is embedded: not that it calls the agent, which says nothing about what it means."""
    return " ".join(_CALLS.sub(" ", text[:MAX_CHARACTERS]).split())


@dataclass(slots=True)
class ChatIndex:
    """Makes the vectors of one embedder. Any number of processes may do the same work."""

    database: Database
    embedder: Embedder
    _ready: set[int] = field(default_factory=set[int])
    """The lengths of vectors whose index is known to be there."""

    async def behind(self, *, limit: int = 1_000, after: str = "") -> list[str]:
        """Groups in which something may be without a vector, in the order of their ids."""
        async with self.database.statement() as connection:
            return await MessageVectors(connection).behind(self.embedder.name, limit=limit, after=after)

    async def go_on(self, conversation_id: str) -> Went:
        """Embed the next messages of a group, if any are left."""
        name = self.embedder.name
        async with self.database.statement() as connection:
            stretch = await MessageVectors(connection).following(
                conversation_id, name, limit=STRETCH, characters=MAX_CHARACTERS
            )
        if stretch is None:
            return Went(0, more=False)
        words = [(message_id, embedded_words(text)) for message_id, text in stretch.words]
        words = [(message_id, text) for message_id, text in words if visible(text)]
        vectors = await self.embedder.embed([text for _, text in words]) if words else []
        if vectors:
            await self._be_ready_for(len(vectors[0]))
        made = [(message_id, vector) for (message_id, _), vector in zip(words, vectors, strict=True)]
        async with self.database.transaction() as connection:
            await MessageVectors(connection).store(conversation_id, name, stretch, made)
        return Went(len(made), more=not stretch.is_last)

    async def _be_ready_for(self, dimensions: int) -> None:
        if dimensions in self._ready:
            return
        async with self.database.statement() as connection:
            is_there = await has_index(connection, dimensions)
        if not is_there:
            async with schema_lock(self.database), self.database.statement() as connection:
                await ensure_index(connection, dimensions)
        self._ready.add(dimensions)

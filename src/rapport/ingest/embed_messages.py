"""Embed the messages of groups in small batches, so that it can stop and resume at any time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from rapport.agents.profiles import SHIPPED_HANDLES
from rapport.domain.errors import RapportError
from rapport.domain.note import Vector
from rapport.domain.text_checks import has_visible_text
from rapport.storage.database import Database
from rapport.storage.messages.message_vectors import MessageVectors
from rapport.storage.migrate import schema_lock
from rapport.storage.vector_index import ensure_vector_index, has_vector_index

BATCH_MESSAGES = 64
"""Messages per batch: embedded within some tenths of a second, and stored in one short transaction."""
MAX_CHARACTERS = 2_000
"""The number of characters of a message that are embedded: no embedder reads much more."""
MAX_REFUSALS = 3
"""A text that the embedder refuses this often, while it accepts others, stays without a vector."""
_PLAIN = "hello"
"""A text that every available embedder accepts."""

log = structlog.get_logger()

_HANDLES = "|".join(re.escape(handle) for handle in sorted(SHIPPED_HANDLES))
# On Telegram every bot's name ends with it.
_CALLS = re.compile(rf"(?<![\w@.])(?:/\w{{1,64}})?@(?:{_HANDLES}|\w{{2,29}}bot)(?![\w-]|\.\w)", re.IGNORECASE)


class Embedder(Protocol):
    """Turn texts into vectors."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]: ...


class EmbeddingStep(NamedTuple):
    """The result of one batch."""

    embedded_count: int
    """Messages that got a vector."""
    has_more: bool
    """True if the group has more messages to embed."""


def prepare_text(text: str) -> str:
    """Return the text of a message to embed: without mentions of the agent, which have no meaning for the search."""
    return " ".join(_CALLS.sub(" ", text[:MAX_CHARACTERS]).split())


@dataclass(slots=True)
class MessageEmbedding:
    """Make the vectors of one embedder. Any number of processes may do the same work."""

    database: Database
    embedder: Embedder
    _ready: set[int] = field(default_factory=set[int])
    """The vector lengths whose index exists."""
    _refused: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Refusals by conversation and message. After a restart they are counted again."""

    async def list_pending_groups(self, *, limit: int = 1_000, after: str = "") -> list[str]:
        """Return groups in which messages may lack a vector, in the order of their ids."""
        async with self.database.statement() as connection:
            return await MessageVectors(connection).list_behind(self.embedder.name, limit=limit, after=after)

    async def embed_next(self, conversation_id: str) -> EmbeddingStep:
        """Embed the next messages of a group, if there are any. A text that the embedder refuses does not block the others."""
        name = self.embedder.name
        async with self.database.statement() as connection:
            stretch = await MessageVectors(connection).load_following(
                conversation_id, name, limit=BATCH_MESSAGES, characters=MAX_CHARACTERS
            )
        if stretch is None:
            return EmbeddingStep(0, has_more=False)
        words = [(message_id, prepare_text(text)) for message_id, text in stretch.words]
        words = [(message_id, text) for message_id, text in words if has_visible_text(text)]
        vectors = await self._embed(words) if words else []
        if vectors:
            await self._ensure_index(len(vectors[0][1]))
        embedded_ids = {message_id for message_id, _ in vectors}
        is_whole = self._count_refusals(conversation_id, [one for one, _ in words if one not in embedded_ids])
        async with self.database.transaction() as connection:
            has_advanced = await MessageVectors(connection).store(
                conversation_id, name, stretch, vectors, is_whole=is_whole
            )
        return EmbeddingStep(len(vectors), has_more=not (has_advanced and stretch.is_last))

    async def _embed(self, words: Sequence[tuple[str, str]]) -> list[tuple[str, Vector]]:
        """Return the vectors of the texts that the embedder accepts; raise its error when it is unavailable."""
        ids, texts = [message_id for message_id, _ in words], [text for _, text in words]
        try:
            return list(zip(ids, await self.embedder.embed(texts), strict=True))
        except RapportError as error:
            # Either it is unavailable, or it refuses all because of one text. A text that it always accepts shows which.
            await self.embedder.embed([_PLAIN])
            reason = str(error)
        vectors: list[tuple[str, Vector]] = []
        for message_id, text in words:
            try:
                vectors += [(message_id, vector) for vector in await self.embedder.embed([text])]
            except RapportError as error:
                reason = str(error)
        log.warning("messages.embedding_refused", messages=len(words) - len(vectors), reason=reason)
        return vectors

    def _count_refusals(self, conversation_id: str, refused: Sequence[str]) -> bool:
        """Count refusals; return True if all of these texts were refused often enough to give up on them."""
        keys = [(conversation_id, message_id) for message_id in refused]
        for key in keys:
            self._refused[key] = self._refused.get(key, 0) + 1
        if any(self._refused[key] < MAX_REFUSALS for key in keys):
            return False
        for key in keys:
            del self._refused[key]
        return True

    async def _ensure_index(self, dimensions: int) -> None:
        if dimensions in self._ready:
            return
        async with self.database.statement() as connection:
            has_index = await has_vector_index(connection, "message_vectors", dimensions)
        if not has_index:
            async with schema_lock(self.database), self.database.statement() as connection:
                await ensure_vector_index(connection, "message_vectors", dimensions)
        self._ready.add(dimensions)

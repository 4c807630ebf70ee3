"""What the notes say to a question: looked up anew in every turn (RAG-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rapport.domain.notes import Found, Passage, Shelf, Vector
from rapport.knowledge.ports import Embedder
from rapport.knowledge.questions import standalone

TOP = 3
TOP_WHEN_CLOSE = 5
CLOSE = 0.05
"""When the best few differ by less than this, more of them are given: none stands out."""


class PassageSearch(Protocol):
    """The search of the storage room."""

    async def passages(
        self, owner_id: str, *, embedder: str, question: str, vector: Vector, chunks: int, limit: int
    ) -> Found: ...


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What was found for one question."""

    passages: Sequence[Passage]
    best: float
    min_similarity: float

    @property
    def is_relevant(self) -> bool:
        """Whether anything found is about what was asked: the vector's similarity decides, whatever words match."""
        return bool(self.passages) and self.best >= self.min_similarity

    @property
    def audit(self) -> list[dict[str, Any]]:
        """What is kept beside what was cited of it."""
        return [
            {"id": one.note_id, "position": one.position, "score": round(one.similarity, 4)} for one in self.passages
        ]


@dataclass(frozen=True, slots=True)
class Retriever:
    """Finds passages for questions."""

    embedder: Embedder
    search: PassageSearch

    async def retrieve(self, owner_id: str, question: str, *, earlier: Sequence[str], shelf: Shelf) -> Retrieval:
        """The passages for a question that follows these earlier ones. Raises Transient when it can't be done now."""
        found = await self.find(owner_id, standalone(question, earlier), shelf=shelf, limit=TOP_WHEN_CLOSE)
        return Retrieval(_as_many_as_needed(found.passages), found.best, self.threshold(shelf))

    async def find(self, owner_id: str, question: str, *, shelf: Shelf, limit: int) -> Found:
        """The best `limit` passages for a question that stands alone."""
        if not shelf.chunks or not question:
            return Found(0.0)
        return await self.search.passages(
            owner_id,
            embedder=self.embedder.name,
            question=question,
            vector=await self.embedder.embed_question(question),
            chunks=shelf.chunks,
            limit=limit,
        )

    def threshold(self, shelf: Shelf) -> float:
        """The similarity that a passage must have to be about what was asked."""
        return self.embedder.min_similarity if shelf.min_similarity is None else shelf.min_similarity


def _as_many_as_needed(passages: Sequence[Passage]) -> Sequence[Passage]:
    top = [passage.similarity for passage in passages[:TOP]]
    is_close = len(top) == TOP and max(top) - min(top) < CLOSE
    return passages[: TOP_WHEN_CLOSE if is_close else TOP]

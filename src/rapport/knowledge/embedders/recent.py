"""Questions embedded once: a turn asks the notes and the memory with the same words."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from rapport.domain.notes import Vector
from rapport.knowledge.ports import Embedder

KEPT = 64


class RecentQuestions:
    """An embedder that remembers the vectors of its latest questions."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._recent: OrderedDict[str, Vector] = OrderedDict()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def min_similarity(self) -> float:
        return self._embedder.min_similarity

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def embed_question(self, question: str) -> Vector:
        if (known := self._recent.get(question)) is not None:
            self._recent.move_to_end(question)
            return known
        vector = self._recent[question] = await self._embedder.embed_question(question)
        if len(self._recent) > KEPT:
            self._recent.popitem(last=False)
        return vector

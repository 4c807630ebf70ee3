"""Cache the vectors of questions: a turn searches notes and memories with the same question."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from rapport.domain.embedder import Embedder
from rapport.domain.note import Vector

MAX_CACHED_QUESTIONS = 256
"""The number of questions that are kept: one turn often searches notes, memories and the chat with the same question."""
MAX_CACHED_CHARACTERS = 1_000
"""Longer questions are not kept, so that the cache stays below 2 MB."""


class QuestionCache:
    """An embedder that caches the vectors of its latest questions."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._remembered: OrderedDict[str, array[float]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def min_similarity(self) -> float:
        return self._embedder.min_similarity

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def embed_question(self, question: str) -> Vector:
        """Return the vector of a question, from the cache if it is there."""
        if (cached := self._remembered.get(question)) is not None:
            self._remembered.move_to_end(question)
            return cached.tolist()
        vector = await self._embedder.embed_question(question)
        if len(question) <= MAX_CACHED_CHARACTERS:
            self._remembered[question] = array("f", vector)
            if len(self._remembered) > MAX_CACHED_QUESTIONS:
                self._remembered.popitem(last=False)
        return vector

"""Define the embedder: the model that turns texts into vectors for notes, memories and chat search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rapport.domain.note import Vector


class Embedder(Protocol):
    """Turns texts into vectors of length 1. Both methods raise Transient if it fails now."""

    @property
    def name(self) -> str:
        """Identify the vectors: the index stores this name, and vectors of different names are never compared."""
        ...

    @property
    def min_similarity(self) -> float:
        """Return the similarity below which a passage is about something else, as measured for this embedder (RAG-3)."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each passage. It may take long, without blocking other tasks and questions."""
        ...

    async def embed_question(self, question: str) -> Vector:
        """Return the vector to search with. Never waits behind a long `embed`."""
        ...

"""The embedder as the memory package uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rapport.domain.note import Vector


class Embedder(Protocol):
    """Texts as vectors of length 1. Both methods raise Transient when it can't be done now."""

    @property
    def name(self) -> str:
        """Return which vectors these are: vectors of another name are never compared with them."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text."""
        ...

    async def embed_question(self, question: str) -> Vector:
        """Return the vector to look for."""
        ...

"""Notes: list, read and search an owner's notes; `library` adds, replaces and deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.note import Note, Passage
from rapport.retrieval.library import Library
from rapport.retrieval.retriever import TOP, Retriever
from rapport.storage.database import Database
from rapport.storage.notes.notes import Notes


@dataclass(frozen=True, slots=True)
class NoteSearch:
    """Passages that match a question, the best first, and how sure the match is."""

    passages: Sequence[Passage]
    best_similarity: float | None
    relevance: float
    min_similarity: float
    """Below this similarity a passage does not count as an answer."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """Reads notes, each only for its owner; raises NotFound for a note that is not theirs."""

    database: Database
    library: Library
    retriever: Retriever

    async def list_recent(self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None) -> list[Note]:
        """Return notes, the one changed last first; `before` is the (updated_at, id) of the last one seen."""
        async with self.database.statement() as connection:
            return await Notes(connection).list_page(owner_id, limit=limit, before=before)

    async def read(self, owner_id: str, note_id: str) -> tuple[Note, str]:
        """Return a note and its text."""
        async with self.database.statement() as connection:
            return await Notes(connection).read(owner_id, note_id)

    async def search(self, owner_id: str, question: str, *, limit: int) -> NoteSearch:
        """Return the passages that a question is about, whether or not they are close enough to answer it."""
        async with self.database.statement() as connection:
            counts = await Notes(connection).get_counts(owner_id, self.retriever.embedder.name)
        retrieval = await self.retriever.find(owner_id, question, note_counts=counts, limit=max(limit, TOP))
        return NoteSearch(
            retrieval.passages[:limit],
            retrieval.best,
            self.retriever.compute_relevance(retrieval),
            self.retriever.threshold(counts),
        )

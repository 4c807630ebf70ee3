"""Notes: list, read and search the notes that a person may see; `library` adds, replaces and deletes the person's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.note import NOTE_ID, Note, Passage
from rapport.domain.note_scope import NoteScope
from rapport.retrieval.library import Library
from rapport.retrieval.retriever import TOP, Retriever
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.notes.visible_notes import CollectionCount, VisibleNotes


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
    """Reads notes for those who may see them; raises NotFound for all others, as for a missing note."""

    database: Database
    library: Library
    retriever: Retriever

    async def list_recent(
        self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None, collection: str | None = None
    ) -> list[Note]:
        """Return notes, the one changed last first; `before` is the (updated_at, id) of the last one seen."""
        scope = NoteScope(owner_id, collections=() if collection is None else (collection,))
        async with self.database.statement() as connection:
            return await VisibleNotes(connection).list_page(scope, limit=limit, before=before)

    async def list_collections(self, owner_id: str) -> list[CollectionCount]:
        """Return the collections that have notes, with the number of notes."""
        async with self.database.statement() as connection:
            return await VisibleNotes(connection).count_collections(NoteScope(owner_id))

    async def read(self, owner_id: str, note_id: str, *, conversation_id: str | None = None) -> tuple[Note, str]:
        """Return a note and its text.

        With a conversation, the id stands for the note that a turn of this conversation would cite by it.
        """
        async with self.database.statement() as connection:
            if conversation_id is not None:
                await Conversations(connection).get(owner_id, conversation_id)
            return await VisibleNotes(connection).read(NoteScope(owner_id, conversation_id), note_id)

    async def find_sharer(self, owner_id: str, note_id: str) -> str | None:
        """Return the owner of a note that somebody else shares with this person; None if it is the person's own, or missing."""
        if NOTE_ID.fullmatch(note_id) is None:
            return None
        async with self.database.statement() as connection:
            found = (await VisibleNotes(connection).find_titles(NoteScope(owner_id), [note_id])).get(note_id)
        return None if found is None or found.owner_id == owner_id else found.owner_id

    async def search(self, owner_id: str, question: str, *, limit: int) -> NoteSearch:
        """Return the passages that a question is about, whether or not they are close enough to answer it."""
        async with self.database.statement() as connection:
            counts = await VisibleNotes(connection).get_counts(owner_id, self.retriever.embedder.name)
        retrieval = await self.retriever.find(NoteScope(owner_id), question, note_counts=counts, limit=max(limit, TOP))
        return NoteSearch(
            retrieval.passages[:limit],
            retrieval.best,
            self.retriever.compute_relevance(retrieval),
            self.retriever.threshold(counts),
        )

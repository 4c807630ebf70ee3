"""The library: notes are taken in, cut, embedded and stored; the same again changes nothing (RAG-1)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rapport.domain.errors import Conflict, InvalidInput, NotFound, TooLarge, Transient
from rapport.domain.notes import NOTE_ID, Chunk, Note, Vector
from rapport.knowledge.chunking import chunks_of, embedded_text
from rapport.knowledge.names import readable_id
from rapport.knowledge.ports import Embedder
from rapport.storage.database import Database
from rapport.storage.migrate import schema_lock
from rapport.storage.notes import NewNote, Notes, ensure_vector_index

MAX_NOTE_CHARACTERS = 500_000
BATCH = 32
"""Passages embedded between two signs of progress."""
MOST_OF_ONE_NAME = 1_000
RESERVED = frozenset({"search"})
"""Ids that are addresses beside the notes."""

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with how many passages are embedded, and of how many."""


@dataclass(frozen=True, slots=True)
class Added:
    """What adding a note did."""

    note: Note
    unchanged: bool = False
    """It was there already, word for word: nothing was done."""
    is_new: bool = False
    """There was nothing under its id before."""


@dataclass(slots=True)
class Library:
    """Takes notes in for their owners."""

    database: Database
    embedder: Embedder

    async def add(
        self,
        owner_id: str,
        text: str,
        *,
        title: str = "",
        note_id: str | None = None,
        file_name: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Added:
        """A new note. Its id is the given one, or a readable one made from its file's name, its title or its words.

        The same text again is a no-op. A file that is added again with other content replaces its note; an id
        given by hand that has other content already is refused.
        """
        content = _checked(text, title, file_name)
        if note_id is not None:
            _check_id(note_id)
            if (there := await self._unchanged(owner_id, note_id, content, titled=bool(title.strip()))) is not None:
                return there
            return await self._put(owner_id, note_id, content, replace=False, on_progress=on_progress)
        async with self.database.statement() as connection:
            same = await Notes(connection).same(owner_id, content.hash, embedder=self.embedder.name)
        if same is not None:
            return Added(same, unchanged=True)
        return await self._put_under_a_free_id(owner_id, content, on_progress)

    async def replace(
        self, owner_id: str, note_id: str, text: str, *, title: str = "", on_progress: OnProgress | None = None
    ) -> Added:
        """Other content for a note that is there; raises NotFound if it isn't."""
        async with self.database.statement() as connection:
            before = await Notes(connection).get(owner_id, note_id)
        content = _checked(text, title or before.title, before.file_name)
        if (there := await self._unchanged(owner_id, note_id, content, titled=True)) is not None:
            return there
        return await self._put(owner_id, note_id, content, replace=True, on_progress=on_progress)

    async def reindex(self, owner_id: str, note_id: str) -> Added:
        """The same note, embedded by this library's embedder."""
        async with self.database.statement() as connection:
            note, text = await Notes(connection).read(owner_id, note_id)
        return await self._put(owner_id, note_id, _Content(note.title, text, note.file_name), replace=True)

    async def delete(self, owner_id: str, note_id: str) -> None:
        """Remove a note; raises NotFound if it isn't there."""
        async with self.database.transaction() as connection:
            await Notes(connection).delete(owner_id, note_id)

    async def _unchanged(self, owner_id: str, note_id: str, content: _Content, *, titled: bool) -> Added | None:
        """The note as it is, if it has this very content already; a title counts only where one was given."""
        async with self.database.statement() as connection:
            notes = Notes(connection)
            if await notes.hash_of(owner_id, note_id) != (content.hash, self.embedder.name):
                return None
            there = await notes.get(owner_id, note_id)
        return None if titled and there.title != content.title else Added(there, unchanged=True)

    async def _put_under_a_free_id(self, owner_id: str, content: _Content, on_progress: OnProgress | None) -> Added:
        """Stored under the content's own name; under one with a number when something else has that name."""
        wanted = readable_id(content.file_name or content.title)
        for number in range(1, MOST_OF_ONE_NAME + 1):
            note_id = wanted if number == 1 else f"{wanted}-{number}"
            if note_id in RESERVED:
                continue
            try:
                async with self.database.statement() as connection:
                    there = await Notes(connection).get(owner_id, note_id)
            except NotFound:
                there = None
            is_same_file = there is not None and there.file_name is not None and there.file_name == content.file_name
            if there is None or is_same_file:
                with contextlib.suppress(Conflict):  # somebody took this id meanwhile
                    return await self._put(owner_id, note_id, content, replace=is_same_file, on_progress=on_progress)
        raise Conflict(f"There are {MOST_OF_ONE_NAME} notes called {wanted!r} already; give this one an id.")

    async def _put(
        self,
        owner_id: str,
        note_id: str,
        content: _Content,
        *,
        replace: bool,
        on_progress: OnProgress | None = None,
    ) -> Added:
        # Cutting a long text takes a while too: not on the loop.
        chunks = await asyncio.to_thread(chunks_of, content.text, title=content.title)
        vectors = await self._embedded(content.title, chunks, on_progress)
        await self._ready_for(len(vectors[0]))
        new = NewNote(
            owner_id=owner_id,
            id=note_id,
            title=content.title,
            text=content.text,
            hash=content.hash,
            file_name=content.file_name,
            embedder=self.embedder.name,
            chunks=list(zip(chunks, vectors, strict=True)),
        )
        async with self.database.transaction() as connection:
            note, is_new = await Notes(connection).put(new, replace=replace)
        return Added(note, is_new=is_new)

    async def _embedded(self, title: str, chunks: list[Chunk], on_progress: OnProgress | None) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(chunks), BATCH):
            batch = chunks[start : start + BATCH]
            vectors += await self.embedder.embed([embedded_text(title, chunk) for chunk in batch])
            if on_progress is not None:
                on_progress(len(vectors), len(chunks))
        if len({len(vector) for vector in vectors}) != 1:
            raise Transient("The embedder gave vectors of different lengths; try again.")
        return vectors

    async def _ready_for(self, dimensions: int) -> None:
        """The vector index for this embedder is there."""
        if dimensions != 384:  # that one comes with the schema
            async with schema_lock(self.database), self.database.statement() as connection:
                await ensure_vector_index(connection, dimensions)


@dataclass(frozen=True, slots=True)
class _Content:
    """What a note says, as it is stored."""

    title: str
    text: str
    file_name: str | None

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()


def _checked(text: str, title: str, file_name: str | None) -> _Content:
    if "\x00" in text or "\x00" in title:
        raise InvalidInput("The note has a NUL character in it, which no text has.")
    if len(text) > MAX_NOTE_CHARACTERS:
        raise TooLarge(
            f"The note has {len(text):,} characters; at most {MAX_NOTE_CHARACTERS:,} fit into one. Split it into several."
        )
    if not text.strip():
        raise InvalidInput("The note has no text.")
    if not title.strip():
        title = file_name or next(line for line in text.splitlines() if line.strip()).strip("#*>- \t")
    return _Content(" ".join(title.split())[:200] or "Note", text, file_name)


def _check_id(note_id: str) -> None:
    if note_id in RESERVED:
        raise InvalidInput(f"A note can't be called {note_id!r}: that address means something else.")
    if not NOTE_ID.fullmatch(note_id):
        raise InvalidInput("A note's id has 1 to 80 of the characters A-Z, a-z, 0-9, _ and -.")

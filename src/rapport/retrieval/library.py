"""The library: check, cut, embed and store notes; adding the same text again changes nothing (RAG-1)."""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rapport.domain.embedder import Embedder
from rapport.domain.errors import Busy, Conflict, InvalidInput, NotFound, TooLarge, Transient
from rapport.domain.note import NOTE_ID, Chunk, Note, Vector
from rapport.domain.note_scope import NO_SETTINGS, NoteSettings
from rapport.domain.text_checks import has_visible_text
from rapport.retrieval.chunking import make_embedding_text, split_chunks, split_sentences
from rapport.retrieval.files.document import fit_on_one_line
from rapport.retrieval.note_ids import make_note_id
from rapport.storage.database import Database
from rapport.storage.migrate import schema_lock
from rapport.storage.notes.notes import NewNote, Notes
from rapport.storage.vector_index import ensure_vector_index, has_vector_index

MAX_NOTE_CHARACTERS = 500_000
MAX_SENTENCES = 40_000
"""Limit of embedded sentences per note. Prose of the maximal length has about 6,000; only very short lines exceed this."""
MAX_UNDER_WAY = 4_000_000
"""The number of characters of notes that are embedded at a time: each note is held in memory with its vectors until it is stored.

One owner may use half of it. An owner without a running note may exceed it, up to OVERCOMMIT_FACTOR times as much in total.
"""
OVERCOMMIT_FACTOR = 4
BATCH = 16
"""The number of passages that are embedded between two progress reports."""
MAX_NOTES_OF_ONE_NAME = 1_000
RESERVED = frozenset({"search"})
"""Ids that are reserved for other routes."""

NO_TEXT = "The note has no text."

_Cut: TypeAlias = tuple[Chunk, Sequence[str]]
"""A passage, and the texts that are embedded for it."""
_Embedded: TypeAlias = Sequence[tuple[Chunk, Sequence[Vector]]]

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of embedded passages and the total number."""


@dataclass(frozen=True, slots=True)
class AddedNote:
    """The result of adding a note."""

    note: Note
    unchanged: bool = False
    """True if the same text was stored already: only settings were changed, if any were given."""
    is_new: bool = False
    """True if there was no note with its id before."""


@dataclass(slots=True)
class Library:
    """Adds, replaces and deletes notes of owners."""

    database: Database
    embedder: Embedder
    max_under_way: int = MAX_UNDER_WAY
    _indexing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _under_way: Counter[str] = field(default_factory=Counter[str])
    """Characters of notes that are being embedded, by owner."""
    _stopping: bool = False
    _embedding: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])
    """The tasks that are embedding a note."""

    async def add(
        self,
        owner_id: str,
        text: str,
        *,
        title: str = "",
        note_id: str | None = None,
        file_name: str | None = None,
        file_title: str = "",
        settings: NoteSettings = NO_SETTINGS,
        on_progress: OnProgress | None = None,
    ) -> AddedNote:
        """Add a note. Its id is the given one, or a readable one made from its file's name, its title or its words.

        `title` is the sender's title; `file_title` is the title inside the file, which is used without one.
        The same text again is a no-op, except for the settings. A file that is added again with other content replaces its note. A given id of a
        note with other content is refused.
        """
        content = _check_content(text, title if title.strip() else file_title, file_name)
        if note_id is not None:
            _check_id(note_id)
        await self._check_settings(owner_id, settings)
        embedded: _Embedded | None = None
        for _ in range(MAX_NOTES_OF_ONE_NAME):
            target = await self._place(owner_id, content, note_id, titled=bool(title.strip()))
            try:
                if isinstance(target, Note):
                    return await self._keep_unchanged(target, settings)
                if embedded is None:
                    embedded = await self._embed(owner_id, content, on_progress)
                return await self._store(
                    owner_id,
                    target.id,
                    content,
                    embedded,
                    replace=target.replaces is not None,
                    only_if=target.replaces,
                    settings=settings,
                )
            except (Conflict, NotFound):  # the id was taken, or the note changed or deleted concurrently: try again
                continue
        raise Transient("Others are adding notes of this name all the time; try again.")

    async def replace(
        self,
        owner_id: str,
        note_id: str,
        text: str,
        *,
        title: str = "",
        settings: NoteSettings = NO_SETTINGS,
        on_progress: OnProgress | None = None,
    ) -> AddedNote:
        """Replace the content of a note; raise NotFound if it is missing."""
        await self._check_settings(owner_id, settings)
        async with self.database.statement() as connection:
            before, text_before = await Notes(connection).read(owner_id, note_id)
        default_title = _check_content(
            text_before, "", before.file_name
        ).title  # a title that was made from the text changes with it
        previous_title = "" if before.title == default_title else before.title
        content = _check_content(text, title if title.strip() else previous_title, before.file_name)
        if text == text_before and before.title == content.title:
            return await self._keep_unchanged(before, settings)
        embedded = await self._embed(owner_id, content, on_progress)
        return await self._store(owner_id, note_id, content, embedded, replace=True, settings=settings)

    async def change_settings(self, owner_id: str, note_id: str, settings: NoteSettings) -> Note:
        """Change collections and sharing of a note without embedding it again; raise NotFound if it is missing."""
        async with self.database.transaction() as connection:
            return await Notes(connection).change_settings(owner_id, note_id, settings)

    async def reindex(self, owner_id: str, note_id: str) -> AddedNote:
        """Embed the same note again with this library's embedder; raise Conflict if its text changes meanwhile."""
        async with self.database.statement() as connection:
            note, text = await Notes(connection).read(owner_id, note_id)
        content = _Content(note.title, text, note.file_name)
        embedded = await self._embed(owner_id, content, None)
        return await self._store(owner_id, note_id, content, embedded, replace=True, only_if=content.hash)

    async def delete(self, owner_id: str, note_id: str) -> None:
        """Delete a note; raise NotFound if it is missing."""
        async with self.database.transaction() as connection:
            await Notes(connection).delete(owner_id, note_id)

    async def _place(self, owner_id: str, content: _Content, note_id: str | None, *, titled: bool) -> Note | _Place:
        """Return the note with exactly this content, or else the id to store it under."""
        async with self.database.statement() as connection:
            notes = Notes(connection)
            if note_id is not None:
                return _check_given_id(note_id, content, await notes.find(owner_id, note_id), titled=titled)
            if content.file_name is not None and (existing := await notes.find_by_file(owner_id, content.file_name)):
                note, hash_ = existing
                return note if hash_ == content.hash else _Place(note.id, replaces=hash_)
            if (same := await notes.find_by_hash(owner_id, content.hash)) is not None:
                return same
            return _Place(await _free_id(notes, owner_id, make_note_id(content.file_name or content.title)))

    async def _check_settings(self, owner_id: str, settings: NoteSettings) -> None:
        """Raise InvalidInput before anything is embedded; the transaction that stores the note checks again."""
        if settings.group is not None:
            async with self.database.statement() as connection:
                await Notes(connection).check_group(owner_id, settings)

    async def _keep_unchanged(self, note: Note, settings: NoteSettings) -> AddedNote:
        """Return the note with its text unchanged; index it again if another embedder has indexed it."""
        if not settings.is_empty:
            note = await self.change_settings(note.owner_id, note.id, settings)
        if note.embedder != self.embedder.name:
            return await self.reindex(note.owner_id, note.id)
        return AddedNote(note, unchanged=True)

    async def _store(
        self,
        owner_id: str,
        note_id: str,
        content: _Content,
        embedded: _Embedded,
        *,
        replace: bool,
        only_if: bytes | None = None,
        settings: NoteSettings = NO_SETTINGS,
    ) -> AddedNote:
        new_note = NewNote(
            owner_id=owner_id,
            id=note_id,
            title=content.title,
            text=content.text,
            hash=content.hash,
            file_name=content.file_name,
            embedder=self.embedder.name,
            chunks=embedded,
            settings=settings,
        )
        async with self.database.transaction() as connection:
            note = await Notes(connection).put(new_note, replace=replace, only_if=only_if)
        return AddedNote(note, is_new=not replace)

    async def _embed(self, owner_id: str, content: _Content, on_progress: OnProgress | None) -> _Embedded:
        """Return the passages with their vectors, and make sure that the vector index exists."""
        with self._reserve_capacity(owner_id, len(content.text)), self._until_stopped():
            # Cutting a long text takes time: a thread keeps the event loop free.
            passages = await asyncio.to_thread(_cut, content)
            embedded: list[tuple[Chunk, Sequence[Vector]]] = []
            for start in range(0, len(passages), BATCH):
                embedded += await self._batch(passages[start : start + BATCH])
                if on_progress is not None:
                    on_progress(len(embedded), len(passages))
        sizes = {len(vector) for _, vectors in embedded for vector in vectors}
        if len(sizes) != 1:
            raise Transient("The embedder gave vectors of different lengths; try again.")
        await self._ensure_index(sizes.pop())
        return embedded

    def stop(self) -> None:
        """Accept no more notes: notes that are being embedded are refused, and nothing of them is stored."""
        self._stopping = True
        for task in self._embedding:
            task.cancel()

    @contextmanager
    def _until_stopped(self) -> Generator[None]:
        """Run the embedding of a note; raise Busy when the library is stopped."""
        task = asyncio.current_task()
        assert task is not None
        if self._stopping:
            raise _stopping()
        self._embedding.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self._stopping and task.uncancel() == 0:  # only `stop` has cancelled it
                raise _stopping() from None
            raise
        finally:
            self._embedding.discard(task)

    @contextmanager
    def _reserve_capacity(self, owner_id: str, characters: int) -> Generator[None]:
        """Count a note while it is embedded; raise Busy at the limit of its owner or of all owners."""
        own_characters, total_characters = self._under_way[owner_id], self._under_way.total()
        is_too_much = (
            own_characters + characters > self.max_under_way / 2 or total_characters + characters > self.max_under_way
        )
        if (own_characters and is_too_much) or total_characters > OVERCOMMIT_FACTOR * self.max_under_way:
            raise Busy("The server is adding as many notes as it can; send this one again later.", retry_after=30)
        self._under_way[owner_id] += characters
        try:
            yield
        finally:
            self._under_way[owner_id] -= characters
            if not self._under_way[owner_id]:
                del self._under_way[owner_id]

    async def _batch(self, passages: Sequence[_Cut]) -> list[tuple[Chunk, Sequence[Vector]]]:
        """Return the passages with the vectors of their sentences, embedded together."""
        vectors = iter(await self.embedder.embed([text for _, texts in passages for text in texts]))
        # Arrays, because lists of floats take eight times the memory, and a long note has thousands of vectors.
        return [(chunk, [array("f", next(vectors)) for _ in texts]) for chunk, texts in passages]

    async def _ensure_index(self, dimensions: int) -> None:
        """Create the vector index for this embedder if it is missing."""
        # One at a time: creating the index takes two connections, and many waiting tasks would use up the pool.
        async with self._indexing:
            async with self.database.statement() as connection:
                if await has_vector_index(connection, "sentence_vectors", dimensions):
                    return
            async with schema_lock(self.database), self.database.statement() as connection:
                await ensure_vector_index(connection, "sentence_vectors", dimensions)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a note, as it is stored."""

    title: str
    text: str
    file_name: str | None

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()


@dataclass(frozen=True, slots=True)
class _Place:
    """An id to store a note under."""

    id: str
    replaces: bytes | None = None
    """The hash of the stored version that it replaces."""


def _check_given_id(
    note_id: str, content: _Content, existing: tuple[Note, bytes] | None, *, titled: bool
) -> Note | _Place:
    """Return the unchanged note or the place for a given id; the title is compared only if one was given."""
    if existing is None:
        return _Place(note_id)
    note, hash_ = existing
    if hash_ == content.hash and not (titled and note.title != content.title):
        return note
    raise Conflict(f"There is a note {note_id!r} with other content already; PUT replaces it.")


async def _free_id(notes: Notes, owner_id: str, base_id: str) -> str:
    """Return the id itself, or the first free one with a number appended."""
    for number in range(1, MAX_NOTES_OF_ONE_NAME + 1):
        note_id = base_id if number == 1 else f"{base_id}-{number}"
        if note_id not in RESERVED and await notes.find(owner_id, note_id) is None:
            return note_id
    raise Conflict(f"There are {MAX_NOTES_OF_ONE_NAME} notes called {base_id!r} already; give this one an id.")


def _check_content(text: str, title: str, file_name: str | None) -> _Content:
    if "\x00" in text or "\x00" in title:
        raise InvalidInput("The note has a NUL character, which can't be stored. Remove it and send the note again.")
    if len(text) > MAX_NOTE_CHARACTERS:
        raise TooLarge(
            f"The note has {len(text):,} characters; at most {MAX_NOTE_CHARACTERS:,} fit into one. Split it into several."
        )
    if not has_visible_text(text):
        raise InvalidInput(NO_TEXT)
    if not title.strip():
        title = file_name or next(line for line in text.splitlines() if line.strip()).strip("#*>- \t")
    return _Content(fit_on_one_line(title) or "Note", text, file_name)


def _cut(content: _Content) -> Sequence[_Cut]:
    """Return the passages of a note; raise InvalidInput if there are none, TooLarge if they have too many sentences."""
    passages = [
        (chunk, [make_embedding_text(content.title, chunk, point) for point in split_sentences(chunk)])
        for chunk in split_chunks(content.text, title=content.title)
    ]
    if not passages:
        raise InvalidInput(NO_TEXT)
    if (point_count := sum(len(texts) for _, texts in passages)) > MAX_SENTENCES:
        raise TooLarge(
            f"The note has {point_count:,} headings and short lines; at most {MAX_SENTENCES:,} fit into one."
            " Split it into several."
        )
    return passages


def _stopping() -> Busy:
    return Busy("The server is stopping; send the note again in a moment.", retry_after=5)


def _check_id(note_id: str) -> None:
    if note_id in RESERVED:
        raise InvalidInput(f"A note can't be called {note_id!r}: that address means something else.")
    if not NOTE_ID.fullmatch(note_id):
        raise InvalidInput("A note's id has 1 to 80 of the characters A-Z, a-z, 0-9, _ and -.")

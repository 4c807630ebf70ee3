"""Store notes with their passages and vectors, all or nothing. Only their owner changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.domain.note import NOTE_ID, Chunk, Note, Vector
from rapport.domain.note_scope import NO_SETTINGS, NoteSettings
from rapport.storage.database import Connection
from rapport.storage.vector_index import count_indexed

NOTE_COLUMNS = (
    "owner_id, id, title, file_name, char_length(text) AS characters, chunks, embedder, created_at, updated_at, collections,"
    " coalesce(shared_with, 'owner') AS shared_with"
)
_BATCH = 50
"""Chunks per INSERT: each has several vectors that go into the index, and no statement may run for long."""


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note that has been read, cut and embedded, ready to be stored."""

    owner_id: str
    id: str
    title: str
    text: str
    hash: bytes
    file_name: str | None
    embedder: str
    chunks: Sequence[tuple[Chunk, Sequence[Vector]]]
    """Each passage with one vector for each of its sentences."""
    settings: NoteSettings = NO_SETTINGS


@dataclass(frozen=True, slots=True)
class Notes:
    connection: Connection

    async def put(self, note: NewNote, *, replace: bool, only_if: bytes | None = None) -> Note:
        """Store a note with its chunks: a new one, or with `replace` in place of the one with its id.

        Raises Conflict if a new note's id is taken, or if the note to replace has another hash than `only_if`; NotFound
        if there is nothing to replace. Call it in a transaction: the note, its chunks and the owner's counts change together.
        """
        await self.check_group(note.owner_id, note.settings)
        # The note's row is written first and stays locked, so that concurrent writers of the same note take turns.
        if replace:
            before = await self._lock(note.owner_id, note.id, only_if)
        else:
            before = (note.embedder, 0)
            await self._insert(note)
        await self.connection.execute(
            "DELETE FROM chunks WHERE owner_id = %s AND note_id = %s", (note.owner_id, note.id)
        )
        for start in range(0, len(note.chunks), _BATCH):
            await self._insert_chunks(note, start, note.chunks[start : start + _BATCH])
        # A note that is only reindexed keeps its updated_at.
        cursor = await self.connection.execute(
            "UPDATE notes SET title = %(title)s, text = %(text)s, hash = %(hash)s, file_name = %(file)s,"
            f" embedder = %(embedder)s, chunks = %(chunks)s, {_SETTINGS}, updated_at ="
            " CASE WHEN hash = %(hash)s AND title = %(title)s THEN updated_at ELSE clock_timestamp() END"
            f" WHERE owner_id = %(owner)s AND id = %(id)s RETURNING {NOTE_COLUMNS}",
            {
                "title": note.title,
                "text": note.text,
                "hash": note.hash,
                "file": note.file_name,
                "embedder": note.embedder,
                "chunks": len(note.chunks),
                **_settings_parameters(note.settings),
                "owner": note.owner_id,
                "id": note.id,
            },
        )
        # The counts come last: all writers of an owner share these rows, and they stay locked until the commit.
        # A change of embedder changes two counts, in sorted order, so that writers can't deadlock.
        changes = {before[0]: -before[1]}
        changes[note.embedder] = changes.get(note.embedder, 0) + len(note.chunks)
        for embedder, change in sorted(changes.items()):
            await self._count(note.owner_id, embedder, change)
        row = await cursor.fetchone()
        assert row is not None
        return to_note(row)

    async def change_settings(self, owner_id: str, note_id: str, settings: NoteSettings) -> Note:
        """Change collections and sharing of a note, and nothing else; raise NotFound if it is missing or somebody else's.

        Call it in a transaction.
        """
        if not NOTE_ID.fullmatch(note_id):
            raise no_such_note(note_id)
        await self.check_group(owner_id, settings)
        cursor = await self.connection.execute(
            f"UPDATE notes SET {_SETTINGS} WHERE owner_id = %(owner)s AND id = %(id)s RETURNING {NOTE_COLUMNS}",
            {**_settings_parameters(settings), "owner": owner_id, "id": note_id},
        )
        row = await cursor.fetchone()
        if row is None:
            raise no_such_note(note_id)
        return to_note(row)

    async def check_group(self, owner_id: str, settings: NoteSettings) -> None:
        """Raise InvalidInput if the settings name a group conversation that the owner may not share with.

        In a transaction the conversation can't be deleted until the note is stored.
        """
        if settings.group is None:
            return
        cursor = await self.connection.execute(
            "SELECT FROM conversations WHERE id = %s AND kind = 'group' AND (owner_id = %s OR %s) FOR KEY SHARE",
            (settings.group, owner_id, settings.by_operator),
        )
        if await cursor.fetchone() is None:
            raise InvalidInput(f"`shared_with` names {settings.group!r}, which is no group conversation of yours.")

    async def _insert(self, note: NewNote) -> None:
        inserted = await self.connection.execute(
            "INSERT INTO notes (owner_id, id, title, text, hash, file_name, embedder, chunks)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, 0) ON CONFLICT DO NOTHING",
            (note.owner_id, note.id, note.title, note.text, note.hash, note.file_name, note.embedder),
        )
        if inserted.rowcount == 0:
            raise Conflict(f"There is a note {note.id!r} already.")

    async def _lock(self, owner_id: str, note_id: str, only_if: bytes | None) -> tuple[str, int]:
        """Lock the note's row and return its embedder and its number of chunks."""
        cursor = await self.connection.execute(
            "SELECT embedder, chunks, hash FROM notes WHERE owner_id = %s AND id = %s FOR UPDATE", (owner_id, note_id)
        )
        row = await cursor.fetchone()
        if row is None:
            raise no_such_note(note_id)
        if only_if is not None and bytes(row.hash) != only_if:
            raise Conflict(f"The note {note_id!r} was changed meanwhile.")
        return row.embedder, row.chunks

    async def _insert_chunks(self, note: NewNote, start: int, batch: Sequence[tuple[Chunk, Sequence[Vector]]]) -> None:
        await self.connection.execute(
            "INSERT INTO chunks (owner_id, note_id, position, embedder, heading, text, words)"
            " SELECT %(owner)s, %(note)s, c.position, %(embedder)s, c.heading, c.text,"
            " to_tsvector('english', concat_ws(' ', %(title)s::text, c.heading, c.text))"
            " FROM unnest(%(positions)s::integer[], %(headings)s::text[], %(texts)s::text[]) AS c (position, heading, text)",
            {
                "owner": note.owner_id,
                "note": note.id,
                "embedder": note.embedder,
                "title": note.title,
                "positions": [start + number for number in range(len(batch))],
                "headings": [chunk.heading for chunk, _ in batch],
                "texts": [chunk.text for chunk, _ in batch],
            },
        )
        sentences = [
            (start + position, number, vector)
            for position, (_, vectors) in enumerate(batch)
            for number, vector in enumerate(vectors)
        ]
        await self.connection.execute(
            "INSERT INTO sentence_vectors (owner_id, note_id, position, number, embedder, embedding)"
            " SELECT %s, %s, p.position, p.number, %s, p.embedding::halfvec"
            " FROM unnest(%s::integer[], %s::integer[], %s::text[]) AS p (position, number, embedding)",
            (
                note.owner_id,
                note.id,
                note.embedder,
                [position for position, _, _ in sentences],
                [number for _, number, _ in sentences],
                [format_vector(vector) for _, _, vector in sentences],
            ),
        )

    async def _count(self, owner_id: str, embedder: str, change: int) -> None:
        if change:
            await self.connection.execute(
                "INSERT INTO note_counts (owner_id, embedder, chunks) VALUES (%(owner)s, %(embedder)s, greatest(0, %(change)s))"
                " ON CONFLICT (owner_id, embedder) DO UPDATE SET chunks = greatest(0, note_counts.chunks + %(change)s)",
                {"owner": owner_id, "embedder": embedder, "change": change},
            )

    async def read(self, owner_id: str, note_id: str) -> tuple[Note, str]:
        """Return the note and its text; raise NotFound if it is missing or somebody else's."""
        if NOTE_ID.fullmatch(note_id):
            cursor = await self.connection.execute(
                f"SELECT {NOTE_COLUMNS}, text FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
            )
            if row := await cursor.fetchone():
                return to_note(row), row.text
        raise no_such_note(note_id)

    async def find(self, owner_id: str, note_id: str) -> tuple[Note, bytes] | None:
        """Return the note and the hash of its text; None if there is no such note."""
        return await self._find_first("id = %s", owner_id, note_id)

    async def find_by_hash(self, owner_id: str, hash_: bytes) -> Note | None:
        """Return the oldest note with exactly this text; None if there is none."""
        first = await self._find_first("hash = %s", owner_id, hash_)
        return first and first[0]

    async def find_by_file(self, owner_id: str, file_name: str) -> tuple[Note, bytes] | None:
        """Return the note imported from a file of this name, and the hash of its text; None if there is none."""
        return await self._find_first("md5(file_name) = md5(%s)", owner_id, file_name)

    async def _find_first(self, condition: LiteralString, owner_id: str, value: object) -> tuple[Note, bytes] | None:
        cursor = await self.connection.execute(
            f"SELECT {NOTE_COLUMNS}, hash FROM notes WHERE owner_id = %s AND {condition} ORDER BY created_at, id LIMIT 1",
            (owner_id, value),
        )
        row = await cursor.fetchone()
        return (to_note(row), bytes(row.hash)) if row else None

    async def delete(self, owner_id: str, note_id: str) -> None:
        """Delete a note and its chunks; messages that cite it stay. Call it in a transaction."""
        if not NOTE_ID.fullmatch(note_id):
            raise no_such_note(note_id)
        cursor = await self.connection.execute(
            "DELETE FROM notes WHERE owner_id = %s AND id = %s RETURNING embedder, chunks", (owner_id, note_id)
        )
        row = await cursor.fetchone()
        if row is None:
            raise no_such_note(note_id)
        await self._count(owner_id, row.embedder, -row.chunks)

    async def set_min_similarity(self, owner_id: str, embedder: str, min_similarity: float | None) -> None:
        """Store the owner's threshold for this embedder; None restores the embedder's own."""
        await self.connection.execute(
            "INSERT INTO note_counts (owner_id, embedder, chunks, min_similarity) VALUES (%s, %s, 0, %s)"
            " ON CONFLICT (owner_id, embedder) DO UPDATE SET min_similarity = excluded.min_similarity",
            (owner_id, embedder, min_similarity),
        )

    async def list_outdated(self, embedder: str, *, limit: int) -> list[tuple[str, str]]:
        """Return (owner, id) of notes of all owners that another embedder has indexed."""
        cursor = await self.connection.execute(
            "SELECT owner_id, id FROM notes WHERE embedder <> %s ORDER BY owner_id, id LIMIT %s", (embedder, limit)
        )
        return [(row.owner_id, row.id) for row in await cursor.fetchall()]

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """Return the number of all notes, and of those that another embedder has indexed."""
        return await count_indexed(self.connection, "notes", embedder)


_SETTINGS = (
    "collections = coalesce(%(collections)s::text[], collections),"
    " shared_with = CASE WHEN %(shared_with)s::text IS NULL THEN shared_with ELSE nullif(%(shared_with)s, 'owner') END"
)


def _settings_parameters(settings: NoteSettings) -> dict[str, Any]:
    collections = settings.collections
    return {
        "collections": None if collections is None else list(collections),
        "shared_with": settings.shared_with,
    }


def format_vector(vector: Vector) -> str:
    """Return a vector in pgvector's input format."""
    return f"[{','.join(format(value, '.6g') for value in vector)}]"


def to_note(row: Any) -> Note:
    """Return the note of a row that has NOTE_COLUMNS."""
    return Note(
        owner_id=row.owner_id,
        id=row.id,
        title=row.title,
        file_name=row.file_name,
        characters=row.characters,
        chunks=row.chunks,
        embedder=row.embedder,
        created_at=row.created_at,
        updated_at=row.updated_at,
        collections=tuple(row.collections),
        shared_with=row.shared_with,
    )


def no_such_note(note_id: str) -> NotFound:
    """Return the error for a missing note and for one that the caller may not see: they must look the same."""
    return NotFound(f"There is no note {note_id[:80]!r}.")

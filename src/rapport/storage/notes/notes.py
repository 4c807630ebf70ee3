"""Store notes with their passages and vectors, all or nothing. Only their owner can read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from rapport.domain.errors import Conflict, NotFound
from rapport.domain.note import NOTE_ID, Chunk, Note, NoteCounts, Vector
from rapport.storage.database import Connection

_COLUMNS = "owner_id, id, title, file_name, char_length(text) AS characters, chunks, embedder, created_at, updated_at"
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


@dataclass(frozen=True, slots=True)
class Notes:
    connection: Connection

    async def put(self, note: NewNote, *, replace: bool, only_if: bytes | None = None) -> Note:
        """Store a note with its chunks: a new one, or with `replace` in place of the one with its id.

        Raises Conflict if a new note's id is taken, or if the note to replace has another hash than `only_if`; NotFound
        if there is nothing to replace. Call it in a transaction: the note, its chunks and the owner's counts change together.
        """
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
            " embedder = %(embedder)s, chunks = %(chunks)s, updated_at ="
            " CASE WHEN hash = %(hash)s AND title = %(title)s THEN updated_at ELSE clock_timestamp() END"
            f" WHERE owner_id = %(owner)s AND id = %(id)s RETURNING {_COLUMNS}",
            {
                "title": note.title,
                "text": note.text,
                "hash": note.hash,
                "file": note.file_name,
                "embedder": note.embedder,
                "chunks": len(note.chunks),
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
        return _to_note(row)

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
            raise _no_such_note(note_id)
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

    async def get(self, owner_id: str, note_id: str) -> Note:
        """Return the note; raise NotFound if it is missing or somebody else's."""
        if NOTE_ID.fullmatch(note_id):
            cursor = await self.connection.execute(
                f"SELECT {_COLUMNS} FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
            )
            if row := await cursor.fetchone():
                return _to_note(row)
        raise _no_such_note(note_id)

    async def read(self, owner_id: str, note_id: str) -> tuple[Note, str]:
        """Return the note and its text; raise NotFound if it is missing or somebody else's."""
        if NOTE_ID.fullmatch(note_id):
            cursor = await self.connection.execute(
                f"SELECT {_COLUMNS}, text FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
            )
            if row := await cursor.fetchone():
                return _to_note(row), row.text
        raise _no_such_note(note_id)

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
            f"SELECT {_COLUMNS}, hash FROM notes WHERE owner_id = %s AND {condition} ORDER BY created_at, id LIMIT 1",
            (owner_id, value),
        )
        row = await cursor.fetchone()
        return (_to_note(row), bytes(row.hash)) if row else None

    async def list_page(self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None) -> list[Note]:
        """Return the owner's notes, the last changed first; `before` is the (updated_at, id) of the previous page's last."""
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM notes WHERE owner_id = %s AND (%s::timestamptz IS NULL OR (updated_at, id) < (%s, %s))"
            " ORDER BY updated_at DESC, id DESC LIMIT %s",
            (owner_id, before and before[0], before and before[0], before and before[1], limit),
        )
        return [_to_note(row) for row in await cursor.fetchall()]

    async def delete(self, owner_id: str, note_id: str) -> None:
        """Delete a note and its chunks; messages that cite it stay. Call it in a transaction."""
        if not NOTE_ID.fullmatch(note_id):
            raise _no_such_note(note_id)
        cursor = await self.connection.execute(
            "DELETE FROM notes WHERE owner_id = %s AND id = %s RETURNING embedder, chunks", (owner_id, note_id)
        )
        row = await cursor.fetchone()
        if row is None:
            raise _no_such_note(note_id)
        await self._count(owner_id, row.embedder, -row.chunks)

    async def get_counts(self, owner_id: str, embedder: str) -> NoteCounts:
        """Return the size of the owner's index by this embedder, and its threshold."""
        cursor = await self.connection.execute(
            "SELECT chunks, min_similarity FROM note_counts WHERE owner_id = %s AND embedder = %s", (owner_id, embedder)
        )
        row = await cursor.fetchone()
        return NoteCounts(row.chunks, row.min_similarity) if row else NoteCounts(0, None)

    async def set_min_similarity(self, owner_id: str, embedder: str, min_similarity: float | None) -> None:
        """Store the owner's threshold for this embedder; None restores the embedder's own."""
        await self.connection.execute(
            "INSERT INTO note_counts (owner_id, embedder, chunks, min_similarity) VALUES (%s, %s, 0, %s)"
            " ON CONFLICT (owner_id, embedder) DO UPDATE SET min_similarity = excluded.min_similarity",
            (owner_id, embedder, min_similarity),
        )

    async def sample_vectors(self, owner_id: str, embedder: str, *, limit: int) -> list[tuple[str, str, Chunk, Vector]]:
        """Return a repeatable random sample of sentence vectors: (note id, title, chunk, vector)."""
        # The order by a hash is random but repeatable.
        cursor = await self.connection.execute(
            "SELECT p.note_id, n.title, c.heading, c.text, p.embedding::real[] AS embedding FROM sentence_vectors p"
            " JOIN chunks c USING (owner_id, note_id, position) JOIN notes n ON n.owner_id = p.owner_id AND n.id = p.note_id"
            " WHERE p.owner_id = %s AND p.embedder = %s"
            " ORDER BY md5(p.note_id || '/' || p.position || '/' || p.number) LIMIT %s",
            (owner_id, embedder, limit),
        )
        rows = await cursor.fetchall()
        return [(row.note_id, row.title, Chunk(row.heading, row.text), row.embedding) for row in rows]

    async def list_outdated(self, embedder: str, *, limit: int) -> list[tuple[str, str]]:
        """Return (owner, id) of notes of all owners that another embedder has indexed."""
        cursor = await self.connection.execute(
            "SELECT owner_id, id FROM notes WHERE embedder <> %s ORDER BY owner_id, id LIMIT %s", (embedder, limit)
        )
        return [(row.owner_id, row.id) for row in await cursor.fetchall()]

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """Return the number of all notes, and of those that another embedder has indexed."""
        cursor = await self.connection.execute(
            "SELECT count(*) AS total, count(*) FILTER (WHERE embedder <> %s) AS outdated FROM notes", (embedder,)
        )
        row = await cursor.fetchone()
        assert row is not None
        return row.total, row.outdated


def format_vector(vector: Vector) -> str:
    """Return a vector in pgvector's input format."""
    return f"[{','.join(format(value, '.6g') for value in vector)}]"


def _to_note(row: Any) -> Note:
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
    )


def _no_such_note(note_id: str) -> NotFound:
    return NotFound(f"There is no note {note_id[:80]!r}.")

"""Notes and their passages: stored whole or not at all, and only for their owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.errors import Conflict, InvalidInput, NotFound, Transient
from rapport.domain.notes import NOTE_ID, Chunk, Note, Shelf, Vector
from rapport.storage.database import Connection

_CARD = "owner_id, id, title, file_name, char_length(text), chunks, embedder, created_at, updated_at"
_BATCH = 100
"""Chunks per INSERT: each goes into the vector index too, and no statement may run for long."""


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
    chunks: Sequence[tuple[Chunk, Vector]]


@dataclass(frozen=True, slots=True)
class Notes:
    connection: Connection

    async def put(self, note: NewNote, *, replace: bool) -> tuple[Note, bool]:
        """Store a note with its chunks, instead of what was there under its id if `replace` says so;
        and whether it is new.

        Call it in a transaction: the note, its chunks and the owner's counts change together.
        """
        # The note's row comes first and is locked from here on, so that two who write the same note take turns.
        made = await self.connection.execute(
            "INSERT INTO notes (owner_id, id, title, text, hash, file_name, embedder, chunks)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, 0) ON CONFLICT DO NOTHING",
            (note.owner_id, note.id, note.title, note.text, note.hash, note.file_name, note.embedder),
        )
        found = await self.connection.execute(
            "SELECT chunks, embedder FROM notes WHERE owner_id = %s AND id = %s FOR UPDATE", (note.owner_id, note.id)
        )
        before = await found.fetchone()
        if before is None:  # deleted between the two statements
            raise Transient("The note was being deleted; try again.")
        if made.rowcount == 0 and not replace:
            raise Conflict(f"There is a note {note.id!r} with another text already; PUT replaces it.")
        await self.connection.execute(
            "DELETE FROM chunks WHERE owner_id = %s AND note_id = %s", (note.owner_id, note.id)
        )
        for start in range(0, len(note.chunks), _BATCH):
            await self._insert_chunks(note, start, note.chunks[start : start + _BATCH])
        stored = await self.connection.execute(
            "UPDATE notes SET title = %s, text = %s, hash = %s, file_name = %s, embedder = %s, chunks = %s,"
            f" updated_at = clock_timestamp() WHERE owner_id = %s AND id = %s RETURNING {_CARD}",
            (note.title, note.text, note.hash, note.file_name, note.embedder, len(note.chunks), note.owner_id, note.id),
        )
        # The shelf comes last: all of an owner's writers meet there, and hold it only until they commit.
        await self._count(note.owner_id, before[1], -before[0])
        await self._count(note.owner_id, note.embedder, len(note.chunks))
        row = await stored.fetchone()
        assert row is not None
        return Note(*row), made.rowcount == 1

    async def _insert_chunks(self, note: NewNote, start: int, batch: Sequence[tuple[Chunk, Vector]]) -> None:
        await self.connection.execute(
            "INSERT INTO chunks (owner_id, note_id, position, embedder, heading, text, embedding)"
            " SELECT %s, %s, c.position, %s, c.heading, c.text, c.embedding::halfvec"
            " FROM unnest(%s::integer[], %s::text[], %s::text[], %s::text[]) AS c (position, heading, text, embedding)",
            (
                note.owner_id,
                note.id,
                note.embedder,
                [start + number for number in range(len(batch))],
                [chunk.heading for chunk, _ in batch],
                [chunk.text for chunk, _ in batch],
                [vector_literal(vector) for _, vector in batch],
            ),
        )

    async def _count(self, owner_id: str, embedder: str, change: int) -> None:
        if change:
            await self.connection.execute(
                "INSERT INTO shelves (owner_id, embedder, chunks) VALUES (%(owner)s, %(embedder)s, greatest(0, %(change)s))"
                " ON CONFLICT (owner_id, embedder) DO UPDATE SET chunks = greatest(0, shelves.chunks + %(change)s)",
                {"owner": owner_id, "embedder": embedder, "change": change},
            )

    async def get(self, owner_id: str, note_id: str) -> Note:
        """The note, if it is this owner's."""
        if NOTE_ID.fullmatch(note_id):
            found = await self.connection.execute(
                f"SELECT {_CARD} FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
            )
            if row := await found.fetchone():
                return Note(*row)
        raise _no_such_note(note_id)

    async def read(self, owner_id: str, note_id: str) -> tuple[Note, str]:
        """The note and its text."""
        note = await self.get(owner_id, note_id)
        found = await self.connection.execute(
            "SELECT text FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
        )
        row = await found.fetchone()
        if row is None:
            raise _no_such_note(note_id)
        return note, row[0]

    async def same(self, owner_id: str, hash_: bytes, *, embedder: str) -> Note | None:
        """A note with this very text that is indexed by this embedder; the oldest if there are several."""
        found = await self.connection.execute(
            f"SELECT {_CARD} FROM notes WHERE owner_id = %s AND hash = %s AND embedder = %s ORDER BY created_at LIMIT 1",
            (owner_id, hash_, embedder),
        )
        row = await found.fetchone()
        return Note(*row) if row else None

    async def hash_of(self, owner_id: str, note_id: str) -> tuple[bytes, str] | None:
        """The hash and the embedder of a note; None if there is no such note."""
        found = await self.connection.execute(
            "SELECT hash, embedder FROM notes WHERE owner_id = %s AND id = %s", (owner_id, note_id)
        )
        row = await found.fetchone()
        return (bytes(row[0]), row[1]) if row else None

    async def page(self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None) -> list[Note]:
        """The owner's notes, the one changed last first; `before` is the (updated_at, id) of the last one seen."""
        found = await self.connection.execute(
            f"SELECT {_CARD} FROM notes WHERE owner_id = %s AND (%s::timestamptz IS NULL OR (updated_at, id) < (%s, %s))"
            " ORDER BY updated_at DESC, id DESC LIMIT %s",
            (owner_id, before and before[0], before and before[0], before and before[1], limit),
        )
        return [Note(*row) for row in await found.fetchall()]

    async def delete(self, owner_id: str, note_id: str) -> None:
        """Remove a note and its chunks; what was said with it stays said. Call it in a transaction."""
        if not NOTE_ID.fullmatch(note_id):
            raise _no_such_note(note_id)
        found = await self.connection.execute(
            "DELETE FROM notes WHERE owner_id = %s AND id = %s RETURNING embedder, chunks", (owner_id, note_id)
        )
        row = await found.fetchone()
        if row is None:
            raise _no_such_note(note_id)
        await self._count(owner_id, row[0], -row[1])

    async def shelf(self, owner_id: str, embedder: str) -> Shelf:
        """What the owner has in this embedder's index."""
        found = await self.connection.execute(
            "SELECT chunks, min_similarity FROM shelves WHERE owner_id = %s AND embedder = %s", (owner_id, embedder)
        )
        row = await found.fetchone()
        return Shelf(*row) if row else Shelf(0, None)

    async def calibrated(self, owner_id: str, embedder: str, min_similarity: float | None) -> None:
        """Keep the owner's threshold for this embedder; None goes back to the embedder's own."""
        await self.connection.execute(
            "INSERT INTO shelves (owner_id, embedder, chunks, min_similarity) VALUES (%s, %s, 0, %s)"
            " ON CONFLICT (owner_id, embedder) DO UPDATE SET min_similarity = excluded.min_similarity",
            (owner_id, embedder, min_similarity),
        )

    async def sample(self, owner_id: str, embedder: str, *, limit: int) -> list[tuple[str, str, Chunk, Vector]]:
        """Up to `limit` chunks spread over the owner's notes: (note id, title, chunk, vector). The same ones every time."""
        # Ordered by a hash: as good as chance, but repeatable.
        found = await self.connection.execute(
            "SELECT c.note_id, n.title, c.heading, c.text, c.embedding::real[] FROM chunks c"
            " JOIN notes n ON n.owner_id = c.owner_id AND n.id = c.note_id"
            " WHERE c.owner_id = %s AND c.embedder = %s ORDER BY md5(c.note_id || '/' || c.position) LIMIT %s",
            (owner_id, embedder, limit),
        )
        rows = await found.fetchall()
        return [(note_id, title, Chunk(heading, text), vector) for note_id, title, heading, text, vector in rows]

    async def outdated(self, embedder: str, *, limit: int) -> list[tuple[str, str]]:
        """(owner, id) of notes that another embedder has indexed."""
        found = await self.connection.execute(
            "SELECT owner_id, id FROM notes WHERE embedder <> %s ORDER BY owner_id, id LIMIT %s", (embedder, limit)
        )
        return [(row[0], row[1]) for row in await found.fetchall()]

    async def totals(self, embedder: str) -> tuple[int, int]:
        """How many notes there are, and how many of them another embedder has indexed."""
        found = await self.connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE embedder <> %s) FROM notes", (embedder,)
        )
        row = await found.fetchone()
        assert row is not None
        return row[0], row[1]


async def ensure_vector_index(connection: Connection, dimensions: int) -> None:
    """Make the index for vectors of this length, if it isn't there; call it before the first of them is stored."""
    if not 1 <= dimensions <= 4000:  # what pgvector can index at half precision
        raise InvalidInput(f"Vectors of {dimensions} dimensions can't be indexed; at most 4,000 can.")
    size = int(dimensions)
    await connection.execute(
        f"CREATE INDEX IF NOT EXISTS chunks_near_{size} ON chunks USING hnsw ((embedding::halfvec({size}))"
        f" halfvec_cosine_ops) WHERE vector_dims(embedding) = {size}".encode()
    )


def vector_literal(vector: Vector) -> str:
    """A vector as pgvector reads it."""
    return f"[{','.join(format(value, '.6g') for value in vector)}]"


def _no_such_note(note_id: str) -> NotFound:
    return NotFound(f"There is no note {note_id[:80]!r}.")

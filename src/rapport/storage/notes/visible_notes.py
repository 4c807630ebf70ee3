"""Read the notes of a scope: list, count and open them. A note outside of it looks like a missing one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rapport.domain.note import NOTE_ID, Chunk, Note, NoteCounts, Vector
from rapport.domain.note_scope import NoteScope
from rapport.storage.database import Connection
from rapport.storage.notes.notes import NOTE_COLUMNS, no_such_note, to_note
from rapport.storage.notes.visibility import COUNT_SHARED_FOR_PERSON, make_parameters, select_visible


class CollectionCount(NamedTuple):
    """The number of notes of a scope in one collection."""

    name: str
    notes: int
    own: int
    """Of the notes: the owner's own."""


class TitledNote(NamedTuple):
    owner_id: str
    title: str


@dataclass(frozen=True, slots=True)
class VisibleNotes:
    connection: Connection

    async def list_page(
        self, scope: NoteScope, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Note]:
        """Return notes, the last changed first; `before` is the (updated_at, id) of the previous page's last."""
        condition = "true" if before is None else "(updated_at, id) < (%(at)s::timestamptz, %(before)s)"
        visible = select_visible(NOTE_COLUMNS, scope, condition=condition)
        cursor = await self.connection.execute(
            f"{visible} ORDER BY updated_at DESC, id DESC LIMIT %(limit)s".encode(),
            {
                **make_parameters(scope),
                "at": before and before[0],
                "before": before and before[1],
                "limit": limit,
            },
        )
        return [to_note(row) for row in await cursor.fetchall()]

    async def read(self, scope: NoteScope, note_id: str) -> tuple[Note, str]:
        """Return the note that the id stands for, and its text; raise NotFound if it is not in the scope."""
        if NOTE_ID.fullmatch(note_id):
            cursor = await self.connection.execute(
                select_visible(f"{NOTE_COLUMNS}, text", scope, only="AND id = %(id)s").encode(),
                {**make_parameters(scope), "id": note_id},
            )
            if row := await cursor.fetchone():
                return to_note(row), row.text
        raise no_such_note(note_id)

    async def find_titles(self, scope: NoteScope, note_ids: Collection[str]) -> Mapping[str, TitledNote]:
        """Return owner and title of the notes with these ids, as far as they are in the scope."""
        cursor = await self.connection.execute(
            select_visible("id, owner_id, title", scope, only="AND id = ANY(%(ids)s)").encode(),
            {**make_parameters(scope), "ids": list(note_ids)},
        )
        return {row.id: TitledNote(row.owner_id, row.title) for row in await cursor.fetchall()}

    async def count_collections(self, scope: NoteScope) -> list[CollectionCount]:
        """Return every collection with a note of the scope, by name."""
        cursor = await self.connection.execute(
            "SELECT name, count(*) AS notes, count(*) FILTER (WHERE owner_id = %(owner)s) AS own"
            f" FROM ({select_visible('owner_id, collections', scope)}) AS visible, unnest(collections) AS name"
            " GROUP BY name ORDER BY name".encode(),
            make_parameters(scope),
        )
        return [CollectionCount(row.name, row.notes, row.own) for row in await cursor.fetchall()]

    async def get_counts(self, owner_id: str, embedder: str) -> NoteCounts:
        """Return the size of the index that a person may search, and the person's threshold."""
        cursor = await self.connection.execute(
            "SELECT coalesce(chunks, 0) AS chunks, min_similarity,"
            f" ({COUNT_SHARED_FOR_PERSON}) AS shared FROM (SELECT) AS one"
            " LEFT JOIN note_counts ON owner_id = %(owner)s AND embedder = %(embedder)s".encode(),
            {"owner": owner_id, "embedder": embedder},
        )
        row = await cursor.fetchone()
        assert row is not None
        return NoteCounts(row.chunks, row.min_similarity, int(row.shared))

    async def sample_vectors(
        self, scope: NoteScope, embedder: str, *, limit: int
    ) -> list[tuple[str, str, Chunk, Vector]]:
        """Return a repeatable random sample of sentence vectors: (note id, title, chunk, vector)."""
        # The order by a hash is random but repeatable.
        cursor = await self.connection.execute(
            f"WITH visible AS MATERIALIZED ({select_visible('owner_id, id, title', scope)})"
            " SELECT p.note_id, n.title, c.heading, c.text, p.embedding::real[] AS embedding FROM visible n"
            " JOIN sentence_vectors p ON p.owner_id = n.owner_id AND p.note_id = n.id"
            " JOIN chunks c ON c.owner_id = p.owner_id AND c.note_id = p.note_id AND c.position = p.position"
            " WHERE p.embedder = %(embedder)s"
            " ORDER BY md5(p.note_id || '/' || p.position || '/' || p.number) LIMIT %(limit)s".encode(),
            {**make_parameters(scope), "embedder": embedder, "limit": limit},
        )
        rows = await cursor.fetchall()
        return [(row.note_id, row.title, Chunk(row.heading, row.text), row.embedding) for row in rows]

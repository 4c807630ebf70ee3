"""List an owner's notes, and find notes by their name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.note import Passage
from rapport.storage.database import Database


@dataclass(frozen=True, slots=True)
class NoteIndex:
    database: Database

    async def list_recent(self, owner_id: str, *, limit: int, characters: int) -> tuple[int, Sequence[Passage]]:
        """Return how many notes the owner has, and the beginnings of those changed last."""
        async with self.database.statement() as connection:
            cursor = await connection.execute(
                "SELECT count(*) OVER () AS count, n.id, n.title, left(coalesce(c.text, n.text), %(characters)s) AS text"
                " FROM notes n LEFT JOIN chunks c ON c.owner_id = n.owner_id AND c.note_id = n.id AND c.position = 0"
                " WHERE n.owner_id = %(owner)s ORDER BY n.updated_at DESC, n.id DESC LIMIT %(limit)s",
                {"owner": owner_id, "limit": limit, "characters": characters},
            )
            rows = await cursor.fetchall()
        return (rows[0].count if rows else 0), [Passage(row.id, 0, row.title, "", row.text, 1.0) for row in rows]

    async def find_by_name(
        self, owner_id: str, name: str, *, notes: int, passages: int
    ) -> tuple[int, Sequence[Passage]]:
        """Return the first passages of the notes that have every word of `name` in their title or their id.

        Also return the number of passages of these notes. A note with exactly this name is returned alone.
        """
        # The words of a chunk include its note's title, so the index on words finds candidates; only their titles are compared.
        # Full-text search does not find ids: they are looked up by the primary key.
        async with self.database.statement() as connection:
            cursor = await connection.execute(
                "WITH question AS (SELECT plainto_tsquery('english', %(name)s) AS query), candidates AS ("
                " SELECT note_id AS id FROM chunks, question"
                " WHERE owner_id = %(owner)s AND position = 0 AND words @@ query"
                " UNION SELECT id FROM notes WHERE owner_id = %(owner)s AND id = ANY(%(ids)s)"
                "), called AS (SELECT n.id, n.title, n.chunks, lower(n.title) = lower(%(name)s) OR n.id = ANY(%(ids)s) AS exact"
                " FROM candidates JOIN notes n ON n.owner_id = %(owner)s AND n.id = candidates.id, question"
                " WHERE n.id = ANY(%(ids)s)"
                " OR to_tsvector('english', n.title || ' ' || translate(n.id, '-_', '  ')) @@ query"
                " ORDER BY exact DESC, char_length(n.title), n.id LIMIT %(notes)s"
                "), chosen AS (SELECT * FROM called WHERE exact OR NOT (SELECT bool_or(exact) FROM called))"
                " SELECT (SELECT sum(chunks) FROM chosen) AS count, c.note_id, c.position, chosen.title, c.heading, c.text"
                " FROM chosen JOIN chunks c ON c.owner_id = %(owner)s AND c.note_id = chosen.id"
                " WHERE c.position < %(passages)s / (SELECT greatest(count(*), 1) FROM chosen)"
                " ORDER BY chosen.exact DESC, char_length(chosen.title), chosen.id, c.position",
                {
                    "owner": owner_id,
                    "name": name,
                    "ids": name.split(),
                    "notes": notes,
                    "passages": passages,
                },
            )
            rows = await cursor.fetchall()
        return (int(rows[0].count) if rows else 0), [
            Passage(row.note_id, row.position, row.title, row.heading, row.text, 1.0) for row in rows
        ]

"""List the notes of a scope, find notes by their name, and count passages in collections: what a turn needs of the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.note import Passage
from rapport.domain.note_scope import NoteScope
from rapport.storage.database import Database
from rapport.storage.notes.visibility import make_parameters, select_visible


@dataclass(frozen=True, slots=True)
class NoteIndex:
    database: Database

    async def list_recent(self, scope: NoteScope, *, limit: int, characters: int) -> tuple[int, Sequence[Passage]]:
        """Return how many notes the scope has, and the beginnings of those changed last."""
        async with self.database.statement() as connection:
            cursor = await connection.execute(
                "WITH latest AS MATERIALIZED (SELECT owner_id, id, updated_at, count(*) OVER () AS count"
                f" FROM ({select_visible('owner_id, id, updated_at', scope)}) AS visible"
                " ORDER BY updated_at DESC, id DESC LIMIT %(limit)s)"
                " SELECT count, id, n.title, left(coalesce(c.text, n.text), %(characters)s) AS text,"
                " nullif(n.owner_id, %(owner)s) AS shared_by FROM latest JOIN notes n USING (owner_id, id)"
                " LEFT JOIN chunks c ON c.owner_id = n.owner_id AND c.note_id = n.id AND c.position = 0"
                " ORDER BY latest.updated_at DESC, id DESC".encode(),
                {**make_parameters(scope), "limit": limit, "characters": characters},
            )
            rows = await cursor.fetchall()
        return (rows[0].count if rows else 0), [
            Passage(row.id, 0, row.title, "", row.text, 1.0, shared_by=row.shared_by) for row in rows
        ]

    async def find_by_name(
        self, scope: NoteScope, name: str, *, notes: int, passages: int
    ) -> tuple[int, Sequence[Passage]]:
        """Return the first passages of the notes that have every word of `name` in their title or their id.

        Also return the number of passages of these notes. A note with exactly this name is returned alone.
        """
        # The words of a chunk include its note's title, so the index on words finds candidates; only their titles are compared.
        # Full-text search does not find ids: they are looked up by the primary key. Of the candidates of all owners those of
        # the scope are kept.
        visible = select_visible("owner_id, id", scope, only="AND id IN (SELECT id FROM candidates)")
        async with self.database.statement() as connection:
            cursor = await connection.execute(
                "WITH question AS (SELECT plainto_tsquery('english', %(name)s) AS query), candidates AS MATERIALIZED ("
                " SELECT note_id AS id FROM chunks, question WHERE position = 0 AND words @@ query"
                " UNION SELECT unnest(%(ids)s::text[])"
                f"), visible AS MATERIALIZED ({visible}"
                "), called AS (SELECT n.owner_id, n.id, n.title, n.chunks,"
                " lower(n.title) = lower(%(name)s) OR n.id = ANY(%(ids)s) AS exact"
                " FROM visible JOIN notes n USING (owner_id, id), question"
                " WHERE n.id = ANY(%(ids)s)"
                " OR to_tsvector('english', n.title || ' ' || translate(n.id, '-_', '  ')) @@ query"
                " ORDER BY exact DESC, char_length(n.title), n.id LIMIT %(notes)s"
                "), chosen AS (SELECT * FROM called WHERE exact OR NOT (SELECT bool_or(exact) FROM called))"
                " SELECT (SELECT sum(chunks) FROM chosen) AS count, c.note_id, c.position, chosen.title, c.heading, c.text,"
                " nullif(c.owner_id, %(owner)s) AS shared_by"
                " FROM chosen JOIN chunks c ON c.owner_id = chosen.owner_id AND c.note_id = chosen.id"
                " WHERE c.position < %(passages)s / (SELECT greatest(count(*), 1) FROM chosen)"
                " ORDER BY chosen.exact DESC, char_length(chosen.title), chosen.id, c.position".encode(),
                {
                    **make_parameters(scope),
                    "name": name,
                    "ids": name.split(),
                    "notes": notes,
                    "passages": passages,
                },
            )
            rows = await cursor.fetchall()
        return (int(rows[0].count) if rows else 0), [
            Passage(row.note_id, row.position, row.title, row.heading, row.text, 1.0, shared_by=row.shared_by)
            for row in rows
        ]

    async def count_passages(self, scope: NoteScope, embedder: str) -> int:
        """Return the number of passages by this embedder in the scope."""
        async with self.database.statement() as connection:
            cursor = await connection.execute(
                "SELECT coalesce(sum(chunks), 0) AS count FROM"
                f" ({select_visible('chunks', scope, condition='embedder = %(embedder)s')}) AS visible".encode(),
                {**make_parameters(scope), "embedder": embedder},
            )
            row = await cursor.fetchone()
        assert row is not None
        return int(row.count)

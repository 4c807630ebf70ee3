"""Searching passages: by meaning and by words at once, fused by rank, in one statement."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rapport.domain.notes import Found, Passage, Vector
from rapport.storage.database import Connection, Database
from rapport.storage.notes import vector_literal

EXACT_CHUNKS = 4_000
"""Up to so many chunks an owner's own are compared one by one: exact, and faster than an index shared with everybody."""
CANDIDATES = 20
"""How many each of the two searches puts forward."""
MANY_CHUNKS = 500
"""A word that more chunks than this have is not searched for: it says little, and looking at all of them takes long."""
RANK_SHIFT = 60
"""The constant of reciprocal rank fusion, as its authors chose it."""
WORDS_WEIGHT = 0.5
"""How much a rank by words counts beside one by meaning."""

_WORDS_LAST_SECONDS = 300.0

_NEAR_EXACT = """
    SELECT note_id, position, 1 - (embedding <=> %(vector)s::halfvec) AS similarity FROM chunks
    WHERE owner_id = %(owner)s AND embedder = %(embedder)s
    ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(candidates)s
"""

_NEAR_INDEXED = """
    SELECT note_id, position, 1 - (embedding::halfvec({size}) <=> %(vector)s::halfvec({size})) AS similarity FROM chunks
    WHERE vector_dims(embedding) = {size} AND owner_id = %(owner)s AND embedder = %(embedder)s
    ORDER BY embedding::halfvec({size}) <=> %(vector)s::halfvec({size}) LIMIT %(candidates)s
"""

# `near`: by meaning. `worded`: chunks with the question's words, each word worth as much as it is rare; words that very
# many chunks have are left out, unless there are no others: then a chunk must have all of them. The best of these are
# ordered once more with how often and how close they have the words. Then reciprocal rank fusion of the two.
_SEARCH = """
WITH near AS MATERIALIZED ({near}
), asked AS MATERIALIZED (
    SELECT array_to_tsvector(ARRAY[lexeme])::text::tsquery AS query, lexeme = ANY(%(common)s::text[]) AS is_common
    FROM unnest((tsvector_to_array(to_tsvector('english', %(question)s)))[:24]) AS lexeme
), wanted AS MATERIALIZED (
    SELECT query FROM asked WHERE NOT is_common
    UNION ALL
    SELECT string_agg(query::text, ' & ')::tsquery FROM asked HAVING bool_and(is_common)
), hits AS (
    SELECT note_id, position, ln(1 + %(chunks)s / count(*) OVER (PARTITION BY query)) AS rarity
    FROM wanted CROSS JOIN LATERAL (
        SELECT note_id, position FROM chunks
        WHERE words @@ query AND owner_id = %(owner)s AND embedder = %(embedder)s LIMIT %(hits)s
    ) AS found
), pool AS (
    SELECT note_id, position, sum(rarity) AS score FROM hits GROUP BY note_id, position
    ORDER BY score DESC, note_id, position LIMIT 4 * %(candidates)s
), worded AS (
    SELECT note_id, position,
           score + ts_rank(words, (SELECT string_agg(query::text, ' | ')::tsquery FROM asked), 1) AS score
    FROM pool JOIN chunks USING (note_id, position) WHERE owner_id = %(owner)s
    ORDER BY score DESC, note_id, position LIMIT %(candidates)s
), ranked AS (
    SELECT note_id, position,
           %(near_weight)s::float8 / (%(shift)s + row_number() OVER (ORDER BY similarity DESC, note_id, position)) AS points
    FROM near
    UNION ALL
    SELECT note_id, position,
           %(words_weight)s::float8 / (%(shift)s + row_number() OVER (ORDER BY score DESC, note_id, position))
    FROM worded
), fused AS (
    SELECT note_id, position, sum(points) AS points FROM ranked GROUP BY note_id, position
    ORDER BY points DESC, note_id, position LIMIT %(limit)s
)
SELECT (SELECT max(similarity) FROM near), c.note_id, c.position, n.title, c.heading, c.text,
       1 - (c.embedding <=> %(vector)s::halfvec)
FROM fused f
JOIN chunks c ON c.owner_id = %(owner)s AND c.note_id = f.note_id AND c.position = f.position
JOIN notes n ON n.owner_id = c.owner_id AND n.id = c.note_id
ORDER BY f.points DESC, f.note_id, f.position
"""


@dataclass(slots=True)
class Search:
    """Searches an owner's chunks. Keeps for a while which words are common, because a frequent word finds nothing."""

    database: Database
    near_weight: float = 1.0
    words_weight: float = WORDS_WEIGHT
    _common: list[str] = field(default_factory=list[str])
    _known_until: float = 0.0

    async def passages(
        self, owner_id: str, *, embedder: str, question: str, vector: Vector, chunks: int, limit: int
    ) -> Found:
        """The best passages for a question, of `chunks` that the owner has in this embedder's index."""
        async with self.database.statement() as connection:
            if time.monotonic() >= self._known_until:
                self._common = await _common_words(connection)
                self._known_until = time.monotonic() + _WORDS_LAST_SECONDS
            near = _NEAR_EXACT if chunks <= EXACT_CHUNKS else _NEAR_INDEXED.format(size=len(vector))
            found = await connection.execute(
                _SEARCH.replace("{near}", near).encode(),
                {
                    "owner": owner_id,
                    "embedder": embedder,
                    "question": question,
                    "vector": vector_literal(vector),
                    "chunks": float(chunks),
                    "candidates": CANDIDATES,
                    "hits": 2 * MANY_CHUNKS,
                    "shift": RANK_SHIFT,
                    "near_weight": self.near_weight,
                    "words_weight": self.words_weight,
                    "limit": limit,
                    "common": self._common,
                },
            )
            rows = await found.fetchall()
        return Found(rows[0][0] or 0.0, [Passage(*row[1:]) for row in rows]) if rows else Found(0.0)


async def _common_words(connection: Connection) -> list[str]:
    """Words that many chunks have, as ANALYZE has last counted them."""
    found = await connection.execute(
        "SELECT most_common_elems::text::text[], most_common_elem_freqs, (SELECT reltuples FROM pg_class"
        " WHERE oid = 'chunks'::regclass) FROM pg_stats WHERE schemaname = current_schema() AND tablename = 'chunks' AND attname = 'words'"
    )
    row = await found.fetchone()
    if row is None or row[0] is None:
        return []
    words, shares, total = row
    # The list of frequencies ends with their least and greatest, which have no word.
    return [word for word, share in zip(words, shares, strict=False) if share * total > MANY_CHUNKS]

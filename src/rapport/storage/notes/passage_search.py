"""Search passages by meaning and by words in one statement, fused by rank."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rapport.domain.note import NoteCounts, Passage, PassageSearchResult, Vector
from rapport.domain.note_scope import NoteScope
from rapport.storage.database import Connection, Database
from rapport.storage.notes.notes import format_vector
from rapport.storage.notes.visibility import make_parameters, select_shared, select_visible

EXACT_CHUNKS = 2_000
"""Up to this many chunks, all of an owner's vectors are compared: exact, and faster than the index shared by all owners."""
CANDIDATES = 20
"""The number of chunks that the search by words returns, and the minimum of the search by meaning."""
NEAREST_SENTENCES = 60
"""A chunk may have several sentences near the question: this many yield enough chunks."""
MAX_WORD_HITS = 300
"""A word in more chunks than this is not searched for: it selects little, and reading all of them takes long."""
RANK_SHIFT = 5
"""The constant of reciprocal rank fusion. Its authors' 60 assumes lists of equal quality and makes the first hundred ranks
nearly equal; here the first few by meaning are nearly always right."""

_COMMON_WORDS_TTL_SECONDS = 300.0

_WITHOUT = "AND note_id <> %(without)s"
_OWN = "owner_id = %(owner)s"
_IN_SCOPE = "({own} OR (owner_id, note_id) IN (SELECT owner_id, note_id FROM scope))"

# Notes that are read beside the owner's: of others, or all of a scope with collections. `scope` has each id once (ADR 84).
_SCOPE_SHARED = "scope AS MATERIALIZED (SELECT owner_id, id AS note_id FROM ({shared}) AS shared), "
_SCOPE_COLLECTIONS = "scope AS MATERIALIZED (SELECT owner_id, id AS note_id FROM ({visible}) AS visible), "

_NEAR_OWN = """
        SELECT owner_id, note_id, position, embedding <=> %(vector)s::halfvec AS distance FROM sentence_vectors
        WHERE owner_id = %(owner)s AND embedder = %(embedder)s {without}
        ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(points)s
"""
# OFFSET keeps Postgres from joining in another way: the vectors of a note are one range of the primary key.
_NEAR_SCOPE = """
        SELECT scope.owner_id, scope.note_id, position, distance FROM scope CROSS JOIN LATERAL (
            SELECT position, embedding <=> %(vector)s::halfvec AS distance FROM sentence_vectors v
            WHERE v.owner_id = scope.owner_id AND v.note_id = scope.note_id AND embedder = %(embedder)s {without} OFFSET 0
        ) AS vectors ORDER BY distance LIMIT %(points)s
"""
_NEAR_BOTH = f"""
        (SELECT * FROM ({_NEAR_OWN}        ) AS own UNION ALL SELECT * FROM ({_NEAR_SCOPE}        ) AS others
        ORDER BY distance LIMIT %(points)s)
"""

_NEAR_INDEXED = """
        SELECT owner_id, note_id, position, embedding::halfvec({size}) <=> %(vector)s::halfvec({size}) AS distance
        FROM sentence_vectors
        WHERE vector_dims(embedding) = {size} AND {in_scope} AND embedder = %(embedder)s {without}
        ORDER BY embedding::halfvec({size}) <=> %(vector)s::halfvec({size}) LIMIT %(points)s
"""

# `near`: by meaning; the distance of a chunk is that of its nearest sentence. `worded`: by words, weighted by rarity. Common
# words are ignored, unless the question has no others: then a chunk must have all of them. The two are combined by reciprocal
# rank fusion; the score by words is multiplied by the squared share of the question's words that the chunk has.
# Postgres splits "SEV-1" into `sev` and `-1`, but "sev 1" into `sev` and `1`: integers are searched with and without the sign.
# The guard uses the last two (retrieval/relevance.py). `coverage`: the share of the telling words in a passage, weighted by
# rarity; a word in no passage counts like a word in one passage, because it may be a synonym. `rival`: the similarity of the
# nearest passage of any note other than the best one.
_SEARCH = """
WITH {scope}near AS MATERIALIZED (
    SELECT owner_id, note_id, position, 1 - min(distance) AS similarity FROM ({near}    ) AS nearest
    GROUP BY owner_id, note_id, position
), question_words AS MATERIALIZED (
    SELECT CASE WHEN lexeme ~ '^-?[0-9]+$'
                THEN array_to_tsvector(ARRAY[ltrim(lexeme, '-')])::text::tsquery
                     || array_to_tsvector(ARRAY['-' || ltrim(lexeme, '-')])::text::tsquery
                ELSE array_to_tsvector(ARRAY[lexeme])::text::tsquery END AS query,
           lexeme = ANY(%(common)s::text[]) AS is_common,
           lexeme = ANY(tsvector_to_array(to_tsvector('english', %(telling)s))) AS is_telling
    FROM unnest((tsvector_to_array(to_tsvector('english', %(question)s)))[:24]) AS lexeme
), wanted AS MATERIALIZED (
    SELECT row_number() OVER () AS word, query, is_telling FROM (
        SELECT query, is_telling FROM question_words WHERE NOT is_common
        UNION ALL
        SELECT string_agg('(' || query::text || ')', ' & ')::tsquery, false FROM question_words HAVING bool_and(is_common)
    ) AS either
), hits AS MATERIALIZED (
    SELECT word, owner_id, note_id, position FROM wanted CROSS JOIN LATERAL (
        SELECT owner_id, note_id, position FROM chunks
        WHERE words @@ query AND {in_scope} AND embedder = %(embedder)s {without} LIMIT %(hits)s
    ) AS found
), weighed AS MATERIALIZED (
    SELECT word, ln(1 + %(chunks)s / greatest(count(note_id), 0.5)) AS rarity FROM wanted LEFT JOIN hits USING (word) GROUP BY word
), pool AS (
    SELECT owner_id, note_id, position, sum(rarity) / (SELECT sum(rarity) FROM weighed) AS share
    FROM hits JOIN weighed USING (word)
    GROUP BY owner_id, note_id, position ORDER BY share DESC, note_id, position LIMIT 4 * %(candidates)s
), worded AS (
    SELECT owner_id, note_id, position, share,
           share + 0.1 * ts_rank(words, (SELECT string_agg(query::text, ' | ')::tsquery FROM question_words), 1) AS score
    FROM pool JOIN chunks USING (owner_id, note_id, position)
    ORDER BY score DESC, note_id, position LIMIT %(candidates)s
), ranked AS (
    SELECT owner_id, note_id, position,
           %(near_weight)s::float8 / (%(shift)s + row_number() OVER (ORDER BY similarity DESC, note_id, position)) AS points
    FROM near
    UNION ALL
    SELECT owner_id, note_id, position,
           %(words_weight)s::float8 * share ^ 2 / (%(shift)s + row_number() OVER (ORDER BY score DESC, note_id, position))
    FROM worded
), fused AS (
    SELECT owner_id, note_id, position, sum(points) AS points FROM ranked GROUP BY owner_id, note_id, position
    ORDER BY points DESC, note_id, position LIMIT %(limit)s
)
SELECT (SELECT max(similarity) FROM near) AS best,
       (SELECT max(similarity) FROM near WHERE note_id <> (SELECT note_id FROM near ORDER BY similarity DESC, note_id LIMIT 1)) AS rival,
       (SELECT count(*) FROM wanted WHERE is_telling) AS words,
       c.note_id, nullif(c.owner_id, %(owner)s) AS shared_by, c.position, c.heading, c.text,
       (SELECT title FROM notes n WHERE n.owner_id = c.owner_id AND n.id = c.note_id) AS title,
       (SELECT 1 - min(p.embedding <=> %(vector)s::halfvec) FROM sentence_vectors p
        WHERE p.owner_id = c.owner_id AND p.note_id = c.note_id AND p.position = c.position) AS similarity,
       (SELECT coalesce(sum(worth) FILTER (WHERE c.words @@ query) / nullif(sum(worth), 0), 0)
        FROM wanted JOIN weighed USING (word), least(rarity, ln(1 + %(chunks)s)) AS worth WHERE is_telling) AS coverage
FROM fused f
JOIN chunks c ON c.owner_id = f.owner_id AND c.note_id = f.note_id AND c.position = f.position
ORDER BY f.points DESC, f.note_id, f.position
"""


@dataclass(slots=True)
class PassageSearch:
    """Search the chunks of a scope. The list of common words is cached, because they are not searched for."""

    database: Database
    near_weight: float = 1.0
    words_weight: float = 1.0
    _common: str = "{}"
    _known_until: float = 0.0

    async def find_passages(
        self,
        scope: NoteScope,
        *,
        embedder: str,
        question: str,
        vector: Vector,
        counts: NoteCounts,
        limit: int,
        telling: str | None = None,
        without: str | None = None,
    ) -> PassageSearchResult:
        """Return the best passages for a question. `counts` are those of the scope: they choose the plan.

        `telling` is the question without the words that any question has; `without` is the id of a note to leave out.
        """
        async with self.database.statement() as connection:
            if time.monotonic() >= self._known_until:
                self._common = await _load_common_words(connection)
                self._known_until = time.monotonic() + _COMMON_WORDS_TTL_SECONDS
            cursor = await connection.execute(
                _write_search(scope, counts, len(vector), without=without is not None).encode(),
                {
                    **make_parameters(scope),
                    "embedder": embedder,
                    "question": question,
                    "telling": question if telling is None else telling,
                    "without": without,
                    "vector": format_vector(vector),
                    "chunks": float(counts.total),
                    "points": NEAREST_SENTENCES,
                    "candidates": CANDIDATES,
                    "hits": MAX_WORD_HITS,
                    "shift": RANK_SHIFT,
                    "near_weight": self.near_weight,
                    "words_weight": self.words_weight,
                    "limit": limit,
                    "common": self._common,
                },
            )
            rows = await cursor.fetchall()
        if not rows:
            return PassageSearchResult(0.0)
        passages = [
            Passage(
                *(row.note_id, row.position, row.title, row.heading, row.text, row.similarity, row.coverage),
                shared_by=row.shared_by,
            )
            for row in rows
        ]
        first = rows[0]
        return PassageSearchResult(first.best or 0.0, passages, first.rival, first.words)


def _write_search(scope: NoteScope, counts: NoteCounts, size: int, *, without: bool) -> str:
    """Return the statement for a scope: without collections and shared notes, only the owner's rows are named in it."""
    own, near, scope_query = _OWN, _NEAR_OWN, ""
    if scope.collections:
        own, near = "false", _NEAR_SCOPE
        scope_query = _SCOPE_COLLECTIONS.format(visible=select_visible("owner_id, id", scope))
    elif counts.shared:
        near = _NEAR_BOTH if counts.chunks else _NEAR_SCOPE
        scope_query = _SCOPE_SHARED.format(shared=select_shared(scope))
    if counts.total > EXACT_CHUNKS:
        near = _NEAR_INDEXED.replace("{size}", str(size))
    parts = {
        "{near}": near,
        "{scope}": scope_query,
        "{in_scope}": _IN_SCOPE.format(own=own) if scope_query else _OWN,
        "{without}": _WITHOUT if without else "",
    }
    statement = _SEARCH
    for name, part in parts.items():
        statement = statement.replace(name, part)
    return statement


async def _load_common_words(connection: Connection) -> str:
    """Return the words that many chunks have, by the statistics of ANALYZE, as the text of a Postgres array.

    There are up to a thousand, and every search sends them: adapting a list each time would take the driver a millisecond.
    """
    # The array of frequencies ends with the minimum and the maximum, which have no word.
    cursor = await connection.execute(
        "SELECT coalesce(array_agg(word), '{}')::text AS words FROM pg_stats,"
        " unnest(most_common_elems::text::text[], most_common_elem_freqs) AS counted (word, share)"
        " WHERE schemaname = current_schema() AND tablename = 'chunks' AND attname = 'words' AND word IS NOT NULL"
        " AND share * (SELECT reltuples FROM pg_class WHERE oid = 'chunks'::regclass) > %s",
        (MAX_WORD_HITS,),
    )
    row = await cursor.fetchone()
    assert row is not None
    return row.words

"""Search one chat by meaning and by words in one statement, fused by rank.

Only messages of that chat and owner are found: no summaries, no synthetic messages. The cost is bounded however long the chat
is. See ADR 34.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rapport.domain.conversation import Author
from rapport.domain.note import Vector
from rapport.domain.read_models import SearchHit
from rapport.storage.database import Connection
from rapport.storage.messages.messages import TEXT_COLUMNS, to_message
from rapport.storage.notes.notes import format_vector

EXACT_VECTORS = 6_000
"""Up to this many vectors of a group are compared one by one: exact, and faster than the index shared by all groups."""
EXACT_SHARE = 300
"""The index passes other groups' vectors, more of them the smaller the group's share is. A group is therefore also compared
one by one up to sqrt(EXACT_SHARE * all vectors); above that the index is faster."""
MAX_EXACT_VECTORS = 30_000
"""The upper limit of both: comparing this many takes about 30 ms."""
CANDIDATES = 50
"""The number of messages that each of the two searches returns before fusion."""
MAX_WORDS = 16
"""The number of different words of a question that are searched for."""
MAX_WORD_HITS = 1_000
"""The number of messages that are read per word. A word that is in more messages of a long chat is not searched for."""
RANK_SHIFT = 20
"""The constant of reciprocal rank fusion. The authors' 60 makes the first ranks nearly equal."""
AUTHOR_BONUS = 1.0
"""Bonus for a message whose author the question names, relative to the message's own score."""
SATURATION, LENGTH_WEIGHT, USUAL_BYTES = 1.2, 0.4, 80
"""BM25's k1 and b, and the reference length of a message."""
PARTICIPANTS_AMONG = 500
"""Authors of this many of the newest messages count as participants."""
TOPIC_MESSAGES = 5_000
"""The number of the newest messages of a forum topic that are compared by meaning."""

_SAID = "owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic"

# Few vectors: all of them by the primary key; the inner LIMIT tells the planner that there are few. Many: the vector index;
# `conversation_id || ''` keeps the planner from another index. `own` decides which branch runs, before any vector is read.
_NEAR = f"""
    (SELECT message_id, 1 - (embedding <=> %(vector)s::halfvec) AS similarity FROM (
        SELECT message_id, embedding, created_at FROM message_vectors
        WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND embedder = %(embedder)s
          AND (SELECT are_few FROM own)
        ORDER BY conversation_id, message_id LIMIT {2 * MAX_EXACT_VECTORS}) AS few
     WHERE created_at < %(before)s
     ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(candidates)s)
    UNION ALL
    (SELECT message_id, 1 - (embedding::halfvec({{size}}) <=> %(vector)s::halfvec({{size}})) FROM message_vectors
     WHERE vector_dims(embedding) = {{size}} AND conversation_id || '' = %(conversation)s AND owner_id = %(owner)s
       AND embedder || '' = %(embedder)s AND created_at < %(before)s AND (SELECT NOT are_few FROM own)
     ORDER BY embedding::halfvec({{size}}) <=> %(vector)s::halfvec({{size}}) LIMIT %(candidates)s)
"""
# A topic: its newest messages by messages_topic, their vectors by the primary key.
_NEAR_IN_TOPIC = f"""
    SELECT v.message_id, 1 - (v.embedding <=> %(vector)s::halfvec) AS similarity FROM (
        SELECT id FROM messages
        WHERE conversation_id = %(conversation)s AND thread_id = %(topic)s AND created_at < %(before)s
        ORDER BY created_at DESC, id DESC LIMIT {TOPIC_MESSAGES}) AS latest
    JOIN message_vectors v ON v.conversation_id = %(conversation)s AND v.message_id = latest.id
      AND v.embedder = %(embedder)s AND v.owner_id = %(owner)s
    ORDER BY v.embedding <=> %(vector)s::halfvec LIMIT %(candidates)s
"""

# One statement, so that a turn waits for one round trip. `common` are words that ANALYZE counted too often for a long chat;
# `wanted` are the others or, if there are none, all of them at once. `worded` is BM25 with each word counted once. The
# conversation is written as in messages_words, so that the planner uses that index.
_SEARCH = f"""
WITH own AS MATERIALIZED (
    SELECT vectors, vectors <= least({MAX_EXACT_VECTORS}, greatest({EXACT_VECTORS}, sqrt({EXACT_SHARE} * greatest(reltuples, 0)))) AS are_few
    FROM embedding_progress, pg_class
    WHERE conversation_id = %(conversation)s AND embedder = %(embedder)s AND vectors > 0 AND oid = 'message_vectors'::regclass
), near AS MATERIALIZED ({{near}}
), common AS MATERIALIZED (
    SELECT word, share FROM pg_stats, unnest(most_common_elems::text::text[], most_common_elem_freqs) AS counted (word, share)
    WHERE (SELECT vectors > {MAX_EXACT_VECTORS} FROM own) AND schemaname = current_schema() AND tablename = 'messages_words'
      AND attname = 'message_words' AND word IS NOT NULL AND share * (SELECT vectors FROM own) > {MAX_WORD_HITS}
), terms AS MATERIALIZED (
    SELECT array_to_tsvector(ARRAY[lexeme])::text::tsquery AS query, lexeme IN (SELECT word FROM common) AS is_common
    FROM unnest((tsvector_to_array(message_words(%(words)s)))[:{MAX_WORDS}]) AS lexeme
), wanted AS MATERIALIZED (
    SELECT row_number() OVER () AS word, query FROM (
        SELECT query FROM terms WHERE NOT is_common
        UNION ALL
        SELECT string_agg(query::text, ' & ')::tsquery FROM terms HAVING bool_and(is_common)
    ) AS either
), hits AS MATERIALIZED (
    SELECT word, id, size FROM wanted CROSS JOIN LATERAL (
        SELECT id, octet_length(content) AS size FROM messages
        WHERE ARRAY[conversation_id] @> ARRAY[%(conversation)s::text] AND message_words(content) @@ query
          AND {_SAID} AND created_at < %(before)s{{topic}}
        LIMIT {MAX_WORD_HITS}
    ) AS found
), weighed AS MATERIALIZED (
    SELECT word, ln(1 + greatest(coalesce((SELECT vectors FROM own), 0) - found, 0.5 * found, 10) / (found + 0.5)) AS rarity
    FROM (SELECT word, count(id) AS found FROM wanted LEFT JOIN hits USING (word) GROUP BY word) AS counted
), worded AS MATERIALIZED (
    SELECT id, count(*) AS matched, sum(rarity) / (SELECT sum(rarity) FROM weighed) AS share,
           sum(rarity / (1 + {SATURATION} * ({1 - LENGTH_WEIGHT} + {LENGTH_WEIGHT / USUAL_BYTES} * size))) AS score
    FROM hits JOIN weighed USING (word) GROUP BY id ORDER BY score DESC, id DESC LIMIT %(candidates)s
), ranked AS (
    SELECT message_id AS id, 1.0 / ({RANK_SHIFT} + row_number() OVER (ORDER BY similarity DESC, message_id DESC)) AS points FROM near
    UNION ALL
    SELECT id, 1.0 / ({RANK_SHIFT} + row_number() OVER (ORDER BY score DESC, id DESC)) FROM worded
), fused AS (
    SELECT id, sum(points) AS points FROM ranked GROUP BY id
), found AS MATERIALIZED (
    SELECT m.id, points * CASE WHEN author_id = ANY(%(named)s::text[]) THEN {1 + AUTHOR_BONUS} ELSE 1 END AS points
    FROM fused CROSS JOIN LATERAL (
        SELECT id, author_id FROM messages WHERE conversation_id = %(conversation)s AND {_SAID} AND id = fused.id LIMIT 1
    ) AS m ORDER BY 2 DESC, m.id DESC LIMIT %(limit)s
)
SELECT coalesce(near.similarity, (
           SELECT 1 - (embedding <=> %(vector)s::halfvec) FROM message_vectors v
           WHERE v.conversation_id = %(conversation)s AND v.message_id = found.id AND v.embedder = %(embedder)s)) AS similarity,
       worded.matched, worded.share, message.*
FROM found LEFT JOIN near ON near.message_id = found.id LEFT JOIN worded ON worded.id = found.id CROSS JOIN LATERAL (
    SELECT {TEXT_COLUMNS} FROM messages WHERE conversation_id = %(conversation)s AND id = found.id LIMIT 1
) AS message
ORDER BY found.points DESC, found.id DESC
"""

# A bounded backward scan of messages_order.
_PARTICIPANTS = f"""
SELECT DISTINCT author_id, author_name FROM (
    SELECT author_id, author_name FROM messages
    WHERE conversation_id = %(conversation)s AND owner_id = %(owner)s AND created_at <= %(before)s
    ORDER BY created_at DESC, id DESC LIMIT {PARTICIPANTS_AMONG}) AS latest
WHERE author_id IS NOT NULL
"""


async def search_chat(
    connection: Connection,
    owner_id: str,
    conversation_id: str,
    *,
    embedder: str,
    before: datetime,
    vector: Vector | None = None,
    words: str = "",
    named: Sequence[str] = (),
    thread_id: str | None = None,
    limit: int = 8,
) -> list[SearchHit]:
    """Return messages older than `before` that are close to the vector or have some of the words, the best first.

    Messages whose author's id is in `named` get a bonus. With `thread_id` only messages of that topic are found. Without a
    vector the search is by words only, and without words by the vector only.
    """
    near = _NEAR if thread_id is None else _NEAR_IN_TOPIC
    statement = _SEARCH.replace("{near}", near.replace("{size}", str(len(vector or (0,)))))
    cursor = await connection.execute(
        statement.replace("{topic}", "" if thread_id is None else " AND thread_id = %(topic)s").encode(),
        {
            "conversation": conversation_id,
            "owner": owner_id,
            "embedder": embedder if vector is not None else "",  # matches no row
            "vector": None if vector is None else format_vector(vector),
            "words": words,
            "named": list(named),
            "before": before,
            "topic": thread_id,
            "candidates": max(CANDIDATES, limit),
            "limit": limit,
        },
    )
    return [
        SearchHit(to_message(row), row.similarity, row.matched or 0, float(row.share or 0.0))
        for row in await cursor.fetchall()
    ]


async def list_participants(
    connection: Connection, owner_id: str, conversation_id: str, *, before: datetime
) -> list[Author]:
    """Return the authors of the newest messages up to a time, once per name that they used."""
    cursor = await connection.execute(
        _PARTICIPANTS.encode(), {"conversation": conversation_id, "owner": owner_id, "before": before}
    )
    return [Author(row.author_id, row.author_name or row.author_id) for row in await cursor.fetchall()]

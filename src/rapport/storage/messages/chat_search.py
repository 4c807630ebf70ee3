"""Searching one chat: by meaning and by words at once, fused by rank, in one statement.

Only what was said in that chat to its owner is found: no summaries, nothing synthetic. The cost is bounded, however long the
chat is. See ADR 34.
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
"""Up to so many vectors a group's own are compared one by one: exact, and faster than an index shared with all."""
EXACT_SHARE = 300
"""The index meets others' vectors on the way to a group's own, the more of them the smaller the group's share is. So a group
is compared one by one up to the root of so many times all vectors, too: from there on the index is faster."""
MAX_EXACT_VECTORS = 30_000
"""But never more than these: some 30 ms."""
CANDIDATES = 50
"""How many messages each of the two ways puts forward."""
MAX_WORDS = 16
"""How many different words of a question are looked for."""
MAX_WORD_HITS = 1_000
"""How many messages of a chat with a word are looked at. A word that a long chat has in more is not searched for."""
RANK_SHIFT = 20
"""The constant of reciprocal rank fusion. The authors' 60 makes the first ranks nearly equal."""
AUTHOR_BONUS = 1.0
"""What a message of somebody whom the question names counts in addition, relative to its own score."""
SATURATION, LENGTH_WEIGHT, USUAL_BYTES = 1.2, 0.4, 80
"""BM25's k1 and b, and the length of a message to which others are compared."""
PARTICIPANTS_AMONG = 500
"""Who wrote one of so many of the latest messages counts as a participant."""
TOPIC_MESSAGES = 5_000
"""In a forum topic so many of its latest messages are compared by meaning."""

_SAID = "owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic"

# A group with few vectors: all of them, by the primary key (the inner LIMIT says that there are few, whatever statistics
# say of other groups). A group with many: the vector index, with the conversation written so that no other index answers.
# Which of the two is run is decided by the counts alone, before anything is read.
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
# A topic: its latest messages by messages_topic, their vectors by the primary key.
_NEAR_IN_TOPIC = f"""
    SELECT v.message_id, 1 - (v.embedding <=> %(vector)s::halfvec) AS similarity FROM (
        SELECT id FROM messages
        WHERE conversation_id = %(conversation)s AND thread_id = %(topic)s AND created_at < %(before)s
        ORDER BY created_at DESC, id DESC LIMIT {TOPIC_MESSAGES}) AS latest
    JOIN message_vectors v ON v.conversation_id = %(conversation)s AND v.message_id = latest.id
      AND v.embedder = %(embedder)s AND v.owner_id = %(owner)s
    ORDER BY v.embedding <=> %(vector)s::halfvec LIMIT %(candidates)s
"""

# `common`: words that a long chat must be expected to have too often, as ANALYZE has last counted them in all chats. `wanted`:
# the others, or, if there are none, messages with all of them. `worded`: BM25 over what has them, where a word that is there
# counts once: in a chat it is hardly ever there twice. (The conversation as the index has it, and only so: then no other
# index answers.) Then reciprocal rank fusion; a message of somebody whom the question names counts for more.
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
), asked AS MATERIALIZED (
    SELECT array_to_tsvector(ARRAY[lexeme])::text::tsquery AS query, lexeme IN (SELECT word FROM common) AS is_common
    FROM unnest((tsvector_to_array(message_words(%(words)s)))[:{MAX_WORDS}]) AS lexeme
), wanted AS MATERIALIZED (
    SELECT row_number() OVER () AS word, query FROM (
        SELECT query FROM asked WHERE NOT is_common
        UNION ALL
        SELECT string_agg(query::text, ' & ')::tsquery FROM asked HAVING bool_and(is_common)
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
           WHERE v.conversation_id = %(conversation)s AND v.message_id = found.id AND v.embedder = %(embedder)s)),
       worded.matched, worded.share, message.*
FROM found LEFT JOIN near ON near.message_id = found.id LEFT JOIN worded ON worded.id = found.id CROSS JOIN LATERAL (
    SELECT {TEXT_COLUMNS} FROM messages WHERE conversation_id = %(conversation)s AND id = found.id LIMIT 1
) AS message
ORDER BY found.points DESC, found.id DESC
"""

# A walk of messages_order from its end, or of messages_topic.
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
    """Return messages older than `before` that are close to a vector or have some of the words, the best first.

    Messages whose author's id is in `named` count for more. With `thread_id` only messages of that topic are found. Without a
    vector the words alone decide, and without words the vector alone.
    """
    near = _NEAR if thread_id is None else _NEAR_IN_TOPIC
    statement = _SEARCH.replace("{near}", near.replace("{size}", str(len(vector or (0,)))))
    found = await connection.execute(
        statement.replace("{topic}", "" if thread_id is None else " AND thread_id = %(topic)s").encode(),
        {
            "conversation": conversation_id,
            "owner": owner_id,
            "embedder": embedder if vector is not None else "",  # no row is of that one
            "vector": None if vector is None else format_vector(vector),
            "words": words,
            "named": list(named),
            "before": before,
            "topic": thread_id,
            "candidates": max(CANDIDATES, limit),
            "limit": limit,
        },
    )
    return [SearchHit(to_message(row[3:]), row[0], row[1] or 0, float(row[2] or 0.0)) for row in await found.fetchall()]


async def list_participants(
    connection: Connection, owner_id: str, conversation_id: str, *, before: datetime
) -> list[Author]:
    """Return who wrote one of the latest messages up to a moment, under each name that they had."""
    found = await connection.execute(
        _PARTICIPANTS.encode(), {"conversation": conversation_id, "owner": owner_id, "before": before}
    )
    return [Author(row[0], row[1] or row[0]) for row in await found.fetchall()]

"""The vectors of what was said in groups, and how far each group has them. They are made behind the turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.errors import InvalidInput
from rapport.domain.note import Vector
from rapport.storage.database import Connection
from rapport.storage.notes.notes import format_vector

# The groups' own index and the marks, nothing else: how much was said in them plays no part.
_BEHIND = """
SELECT c.id FROM conversations c LEFT JOIN embedding_progress i ON i.conversation_id = c.id AND i.embedder = %(embedder)s
WHERE c.kind = 'group' AND c.id > %(after)s AND (i.embedded_until IS NULL OR c.last_at > i.embedded_until)
ORDER BY c.id LIMIT %(limit)s
"""

# The mark is made under the conversation's lock. Whoever imports holds that lock: so either its rows are seen from here on,
# or it finds the mark and moves it back.
_BEGIN = """
INSERT INTO embedding_progress (conversation_id, embedder, owner_id)
SELECT id, %(embedder)s, owner_id FROM conversations WHERE id = %(conversation)s AND kind = 'group' FOR NO KEY UPDATE
ON CONFLICT DO NOTHING
"""

# A walk of messages_order from the mark on. What has its vector already (a crash, another process, an import into the past)
# counts, so that the walk gets on, but its words are not read. `last_at`, of the same moment, says how far this is everything.
_FOLLOWING = """
WITH mark AS (
    SELECT c.last_at, i.embedded_until, i.imports FROM embedding_progress i JOIN conversations c ON c.id = i.conversation_id
    WHERE i.conversation_id = %(conversation)s AND i.embedder = %(embedder)s
), following AS (
    SELECT id, content, created_at, role = 'system-summary' OR synthetic AS nobody_said FROM messages
    WHERE conversation_id = %(conversation)s AND created_at > (SELECT embedded_until FROM mark)
    ORDER BY created_at, id LIMIT %(limit)s
)
SELECT mark.last_at, CASE WHEN isfinite(mark.embedded_until) THEN mark.embedded_until END, mark.imports, f.id, f.created_at,
       CASE WHEN NOT f.nobody_said AND NOT EXISTS (
           SELECT FROM message_vectors v
           WHERE v.conversation_id = %(conversation)s AND v.message_id = f.id AND v.embedder = %(embedder)s
       ) THEN left(f.content, %(characters)s) END
FROM mark LEFT JOIN following f ON true ORDER BY f.created_at, f.id
"""

# Only of messages that are still there: one may have been taken back meanwhile.
_STORE = """
WITH made AS (
    INSERT INTO message_vectors (conversation_id, message_id, embedder, owner_id, created_at, embedding)
    SELECT m.conversation_id, m.id, %(embedder)s, m.owner_id, m.created_at, v.embedding::halfvec
    FROM unnest(%(ids)s::text[], %(vectors)s::text[]) AS v (id, embedding)
    JOIN messages m ON m.conversation_id = %(conversation)s AND m.id = v.id
    ON CONFLICT DO NOTHING
    RETURNING 1
)
UPDATE embedding_progress SET vectors = vectors + (SELECT count(*) FROM made),
    -- From where this walk began: who has moved the mark meanwhile knows of something that this walk doesn't. So does who
    -- has imported, also where the mark hasn't come to yet.
    embedded_until = CASE WHEN %(is_whole)s AND imports = %(imports)s
        AND embedded_until = coalesce(%(since)s, '-infinity'::timestamptz) THEN %(upto)s ELSE embedded_until END
WHERE conversation_id = %(conversation)s AND embedder = %(embedder)s
RETURNING embedded_until >= %(upto)s
"""


_FORGET = """
WITH other AS (
    SELECT conversation_id, embedder FROM embedding_progress WHERE embedder <> %(embedder)s LIMIT 1
), gone AS (
    DELETE FROM message_vectors WHERE ctid = ANY(ARRAY(
        SELECT v.ctid FROM message_vectors v JOIN other USING (conversation_id, embedder) LIMIT %(limit)s))
    RETURNING 1
)
SELECT conversation_id, embedder, (SELECT count(*) FROM gone) FROM other
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some messages that follow on those with vectors."""

    since: datetime | None
    """The mark that they follow; None at the beginning of the chat."""
    upto: datetime
    """Where the mark stands when they have their vectors."""
    words: Sequence[tuple[str, str]]
    """Id and words of those that have none yet; possibly of no message."""
    is_last: bool
    """Nothing follows."""
    imports: int = 0
    """How often something had been imported when they were read."""


@dataclass(frozen=True, slots=True)
class MessageVectors:
    connection: Connection

    async def list_behind(self, embedder: str, *, limit: int, after: str = "") -> list[str]:
        """Groups, by id, in which something was said that this embedder may not have seen."""
        found = await self.connection.execute(_BEHIND, {"embedder": embedder, "limit": limit, "after": after})
        return [row[0] for row in await found.fetchall()]

    async def load_following(
        self, conversation_id: str, embedder: str, *, limit: int, characters: int
    ) -> Stretch | None:
        """The next `limit` messages to look at; None when the group has all its vectors, or there is no such group."""
        parameters = {
            "conversation": conversation_id,
            "embedder": embedder,
            "limit": limit,
            "characters": characters,
        }
        rows = await (await self.connection.execute(_FOLLOWING, parameters)).fetchall()
        if not rows:
            await self.connection.execute(_BEGIN, parameters)
            rows = await (await self.connection.execute(_FOLLOWING, parameters)).fetchall()
        if not rows or (rows[0][1] is not None and rows[0][1] >= rows[0][0]):
            return None
        last_at, since, imports, *_ = rows[0]
        told = [row[3:] for row in rows if row[3] is not None]
        is_last = len(told) < limit
        upto = last_at if is_last else told[-1][1]
        words = [(message_id, text) for message_id, _, text in told if text is not None]
        return Stretch(since, upto, words, is_last, imports)

    async def store(
        self,
        conversation_id: str,
        embedder: str,
        stretch: Stretch,
        vectors: Sequence[tuple[str, Vector]],
        *,
        is_whole: bool = True,
    ) -> bool:
        """Keep vectors of messages and, if they are all of the stretch, move the mark on. Twice is once.

        False: the mark is not there yet, and the same stretch has to be looked at again. Call it in a transaction.
        """
        # Whoever erases the conversation locks its row first: so does this, or the two would wait for each other. Turns
        # don't notice.
        held = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s FOR KEY SHARE", (conversation_id,)
        )
        if await held.fetchone() is None:
            return True
        moved = await self.connection.execute(
            _STORE,
            {
                "conversation": conversation_id,
                "embedder": embedder,
                "ids": [message_id for message_id, _ in vectors],
                "vectors": [format_vector(vector) for _, vector in vectors],
                "since": stretch.since,
                "upto": stretch.upto,
                "imports": stretch.imports,
                "is_whole": is_whole,
            },
        )
        row = await moved.fetchone()
        return row is not None and bool(row[0])

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """About how many messages have a vector, and how many have one of another embedder."""
        found = await self.connection.execute(
            "SELECT coalesce(sum(vectors), 0), coalesce(sum(vectors) FILTER (WHERE embedder <> %s), 0) FROM embedding_progress",
            (embedder,),
        )
        row = await found.fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    async def delete_other_embedders(self, embedder: str, *, limit: int) -> int:
        """Remove some vectors that other embedders have made; 0 when there are none left."""
        found = await self.connection.execute(
            _FORGET,
            {"embedder": embedder, "limit": limit},
        )
        row = await found.fetchone()
        if row is None:
            return 0
        if row[2] < limit:
            await self.connection.execute(
                "DELETE FROM embedding_progress WHERE conversation_id = %s AND embedder = %s", (row[0], row[1])
            )
        return max(1, row[2])


async def has_index(connection: Connection, dimensions: int) -> bool:
    """Whether messages' vectors of this length have their index."""
    found = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"message_vectors_near_{int(dimensions)}",))
    row = await found.fetchone()
    return row is not None and bool(row[0])


async def ensure_index(connection: Connection, dimensions: int) -> None:
    """Make the index for messages' vectors of this length, if it isn't there; before the first of them is stored."""
    if not 1 <= dimensions <= 4000:  # what pgvector can index at half precision
        raise InvalidInput(f"Vectors of {dimensions} dimensions can't be indexed; at most 4,000 can.")
    size = int(dimensions)
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # every vector of other embedders is looked at
        await connection.execute(
            f"CREATE INDEX IF NOT EXISTS message_vectors_near_{size} ON message_vectors USING hnsw"
            f" ((embedding::halfvec({size})) halfvec_cosine_ops) WHERE vector_dims(embedding) = {size}".encode()
        )

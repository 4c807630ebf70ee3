"""Store the vectors of group messages and each group's embedding progress. They are made in the background, not in a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.note import Vector
from rapport.storage.database import Connection
from rapport.storage.notes.notes import format_vector

# Reads only conversations_groups and the marks, so the cost does not depend on the number of messages.
_BEHIND = """
SELECT c.id FROM conversations c LEFT JOIN embedding_progress i ON i.conversation_id = c.id AND i.embedder = %(embedder)s
WHERE c.kind = 'group' AND c.id > %(after)s AND (i.embedded_until IS NULL OR c.last_at > i.embedded_until)
ORDER BY c.id LIMIT %(limit)s
"""

# The mark is inserted under the conversation's lock, which an import holds too: either the import's rows are visible from here
# on, or the import finds the mark and moves it back.
_BEGIN = """
INSERT INTO embedding_progress (conversation_id, embedder, owner_id)
SELECT id, %(embedder)s, owner_id FROM conversations WHERE id = %(conversation)s AND kind = 'group' FOR NO KEY UPDATE
ON CONFLICT DO NOTHING
"""

# A forward scan of messages_order from the mark. Messages that have a vector already count towards the limit, so that the scan
# advances, but their text is not read. `last_at` of the same snapshot says up to where the result is complete.
_FOLLOWING = """
WITH mark AS (
    SELECT c.last_at, i.embedded_until, i.imports FROM embedding_progress i JOIN conversations c ON c.id = i.conversation_id
    WHERE i.conversation_id = %(conversation)s AND i.embedder = %(embedder)s
), following AS (
    SELECT id, content, created_at, role = 'system-summary' OR synthetic AS is_skipped FROM messages
    WHERE conversation_id = %(conversation)s AND created_at > (SELECT embedded_until FROM mark)
    ORDER BY created_at, id LIMIT %(limit)s
)
SELECT mark.last_at, CASE WHEN isfinite(mark.embedded_until) THEN mark.embedded_until END AS since, mark.imports, f.id, f.created_at,
       CASE WHEN NOT f.is_skipped AND NOT EXISTS (
           SELECT FROM message_vectors v
           WHERE v.conversation_id = %(conversation)s AND v.message_id = f.id AND v.embedder = %(embedder)s
       ) THEN left(f.content, %(characters)s) END AS text
FROM mark LEFT JOIN following f ON true ORDER BY f.created_at, f.id
"""

# Joined with messages: one may have been deleted meanwhile.
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
    -- Only if neither the mark nor the import count has changed since the messages were read: otherwise there are messages
    -- that this run has not seen.
    embedded_until = CASE WHEN %(is_whole)s AND imports = %(imports)s
        AND embedded_until = coalesce(%(since)s, '-infinity'::timestamptz) THEN %(upto)s ELSE embedded_until END
WHERE conversation_id = %(conversation)s AND embedder = %(embedder)s
RETURNING embedded_until >= %(upto)s AS is_moved
"""

# Delete in batches, one conversation and embedder at a time, so that no statement runs long.
_DELETE_OTHERS = """
WITH other AS (
    SELECT conversation_id, embedder FROM embedding_progress WHERE embedder <> %(embedder)s LIMIT 1
), gone AS (
    DELETE FROM message_vectors WHERE ctid = ANY(ARRAY(
        SELECT v.ctid FROM message_vectors v JOIN other USING (conversation_id, embedder) LIMIT %(limit)s))
    RETURNING 1
)
SELECT conversation_id, embedder, (SELECT count(*) FROM gone) AS deleted FROM other
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive messages after the embedding mark."""

    since: datetime | None
    """The mark that they follow; None at the start of the chat."""
    upto: datetime
    """The new mark once all of them have vectors."""
    words: Sequence[tuple[str, str]]
    """Id and text of those without a vector; may be empty."""
    is_last: bool
    """True if no messages follow."""
    imports: int = 0
    """The group's import count when they were read."""


@dataclass(frozen=True, slots=True)
class MessageVectors:
    """Store vectors of messages and the mark up to which a group has them."""

    connection: Connection

    async def list_behind(self, embedder: str, *, limit: int, after: str = "") -> list[str]:
        """Return ids of groups, in order, with messages after this embedder's mark."""
        cursor = await self.connection.execute(_BEHIND, {"embedder": embedder, "limit": limit, "after": after})
        return [row.id for row in await cursor.fetchall()]

    async def load_following(
        self, conversation_id: str, embedder: str, *, limit: int, characters: int
    ) -> Stretch | None:
        """Return the next `limit` messages after the mark; None if there are none or there is no such group."""
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
        if not rows or (rows[0].since is not None and rows[0].since >= rows[0].last_at):
            return None
        mark = rows[0]
        messages = [row for row in rows if row.id is not None]
        is_last = len(messages) < limit
        upto = mark.last_at if is_last else messages[-1].created_at
        words = [(message.id, message.text) for message in messages if message.text is not None]
        return Stretch(mark.since, upto, words, is_last, mark.imports)

    async def store(
        self,
        conversation_id: str,
        embedder: str,
        stretch: Stretch,
        vectors: Sequence[tuple[str, Vector]],
        *,
        is_whole: bool = True,
    ) -> bool:
        """Store vectors and, if they are all of the stretch, advance the mark. Idempotent. Call it in a transaction.

        Return False if the mark was not advanced: then load the messages after it again.
        """
        # Lock the conversation first, as deleting it does, or the two could deadlock. KEY SHARE does not block turns.
        cursor = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s FOR KEY SHARE", (conversation_id,)
        )
        if await cursor.fetchone() is None:
            return True
        mark_cursor = await self.connection.execute(
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
        row = await mark_cursor.fetchone()
        return row is not None and bool(row.is_moved)

    async def count_totals(self, embedder: str) -> tuple[int, int]:
        """Return the approximate number of vectors, and of those made by other embedders."""
        cursor = await self.connection.execute(
            "SELECT coalesce(sum(vectors), 0) AS vectors,"
            " coalesce(sum(vectors) FILTER (WHERE embedder <> %s), 0) AS of_others FROM embedding_progress",
            (embedder,),
        )
        row = await cursor.fetchone()
        assert row is not None
        return int(row.vectors), int(row.of_others)

    async def delete_other_embedders(self, embedder: str, *, limit: int) -> int:
        """Delete some vectors made by other embedders; return 0 when there are none left."""
        cursor = await self.connection.execute(
            _DELETE_OTHERS,
            {"embedder": embedder, "limit": limit},
        )
        row = await cursor.fetchone()
        if row is None:
            return 0
        if row.deleted < limit:
            await self.connection.execute(
                "DELETE FROM embedding_progress WHERE conversation_id = %s AND embedder = %s",
                (row.conversation_id, row.embedder),
            )
        return max(1, row.deleted)

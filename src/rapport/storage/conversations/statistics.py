"""What an owner's conversations came to in the last hours: how many replies, when, and how many of them were no real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.read_models import HourlyReplies
from rapport.storage.database import Connection

# The conversations that anything happened in by conversations_recent, and of each what was said since by messages_order:
# what is older, or somebody else's, is not looked at. A reply has an event; what was imported has none. The hours come from
# the same statement, so that each of them is there, by one clock.
_REPLIES = """
WITH span AS MATERIALIZED (
    SELECT clock_timestamp() - %(hours)s * interval '1 hour' AS since, clock_timestamp() AS now
), said AS MATERIALIZED (
    SELECT date_trunc('hour', m.created_at) AS hour, count(*) AS replies,
           count(*) FILTER (WHERE m.metadata -> 'guard_used' = 'true'::jsonb) AS guarded,
           count(*) FILTER (WHERE m.metadata -> 'fallback_used' = 'true'::jsonb) AS fallen_back
    FROM span, conversations c CROSS JOIN LATERAL (
        SELECT created_at, metadata FROM messages
        WHERE conversation_id = c.id AND created_at >= (SELECT since FROM span) AND owner_id = c.owner_id
          AND role = 'assistant' AND event_id IS NOT NULL AND NOT synthetic
    ) m
    WHERE c.owner_id = %(owner)s AND c.last_at >= span.since
    GROUP BY 1
)
SELECT span.since, hour, coalesce(replies, 0), coalesce(guarded, 0), coalesce(fallen_back, 0)
FROM span CROSS JOIN generate_series(date_trunc('hour', span.since), span.now, interval '1 hour') AS hour
LEFT JOIN said USING (hour) ORDER BY hour
"""


@dataclass(frozen=True, slots=True)
class ConversationStatistics:
    connection: Connection

    async def count_replies(self, owner_id: str, *, hours: int) -> tuple[datetime, Sequence[HourlyReplies]]:
        """Since when, and every hour from then to now, also those in which nothing was said."""
        found = await self.connection.execute(_REPLIES, {"owner": owner_id, "hours": hours})
        rows = await found.fetchall()
        return rows[0][0], [HourlyReplies(*row[1:]) for row in rows]

"""Count an owner's replies of the last hours, and how many of them were guard or fallback replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.read_models import HourlyReplies
from rapport.storage.database import Connection

# conversations_recent finds the active conversations and messages_order their new messages: older rows and other owners' are
# not read. A reply has an event; an imported message has none. generate_series adds hours without a reply, by one clock.
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
SELECT span.since, hour, coalesce(replies, 0) AS replies, coalesce(guarded, 0) AS guarded, coalesce(fallen_back, 0) AS fallen_back
FROM span CROSS JOIN generate_series(date_trunc('hour', span.since), span.now, interval '1 hour') AS hour
LEFT JOIN said USING (hour) ORDER BY hour
"""


@dataclass(frozen=True, slots=True)
class ConversationStatistics:
    connection: Connection

    async def count_replies(self, owner_id: str, *, hours: int) -> tuple[datetime, Sequence[HourlyReplies]]:
        """Return the start of the period and one count for each hour until now, also for hours without a reply."""
        cursor = await self.connection.execute(_REPLIES, {"owner": owner_id, "hours": hours})
        rows = await cursor.fetchall()
        return rows[0].since, [HourlyReplies(row.hour, row.replies, row.guarded, row.fallen_back) for row in rows]

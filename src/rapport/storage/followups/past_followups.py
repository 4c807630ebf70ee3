"""Load the follow-ups that were delivered in a conversation: a later one must not repeat them or come too soon (ADR 35)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rapport.domain.follow_up import MAX_COMPARED_FOLLOW_UPS, PastFollowUp

# One JSON value, so that another statement can include it as a column. `c` is the conversation's row.
PAST_FOLLOWUPS = f"""
CASE WHEN c.last_followup_at IS NULL THEN '[]'::jsonb ELSE (
    SELECT coalesce(jsonb_agg(jsonb_build_array(topic, to_jsonb(sources), ended_at, origin, is_same_silence)), '[]')
    FROM (
        SELECT * FROM (
            SELECT topic, sources, ended_at, origin, state, user_message_count = c.user_message_count AS is_same_silence
            FROM timers WHERE owner_id = c.owner_id AND conversation_id = c.id AND fired_at IS NOT NULL
            ORDER BY fired_at DESC LIMIT {5 * MAX_COMPARED_FOLLOW_UPS}) AS latest
        WHERE state = 'delivered' LIMIT {MAX_COMPARED_FOLLOW_UPS}) AS made) END
"""


def read_past_followups(rows: Any) -> list[PastFollowUp]:
    """Return the follow-ups of a value of PAST_FOLLOWUPS, the newest first."""
    return [
        PastFollowUp(topic, tuple(sources), datetime.fromisoformat(delivered_at), origin == "planner", silence)
        for topic, sources, delivered_at, origin, silence in rows
    ]

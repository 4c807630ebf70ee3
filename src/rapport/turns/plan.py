"""Plan a follow-up after a reply, by rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.conversation import Message
from rapport.domain.event import Reply
from rapport.domain.follow_up import PastFollowUp, Plan
from rapport.followups.planner import plan_by_rules
from rapport.turns.turn import Turn, get_sole_speaker


def plan_follow_up(turn: Turn, reply: Reply, *, just_made: Sequence[PastFollowUp] = ()) -> Plan | None:
    """Return the follow-up that the rules plan after this reply; `just_made` are follow-ups that are not stored yet."""
    autonomy = turn.autonomy
    if autonomy is None:
        return None
    messages = [*turn.input.earlier[-MAX_CHAT_HISTORY:]]
    if turn.event.trigger_type is None:
        messages.append(turn.input.message)
    messages.append(_build_reply_message(turn, reply))
    return plan_by_rules(
        messages,
        earlier=[*just_made, *turn.input.past_follow_ups],
        autonomy=autonomy,
        owner_id=get_sole_speaker(turn.event),
    )


def _build_reply_message(turn: Turn, reply: Reply) -> Message:
    """Return the reply as it will be stored."""
    return Message(
        f"{turn.event.id}-reply",
        turn.event.conversation_id,
        "assistant",
        reply.content,
        datetime.now(UTC),
        metadata=reply.metadata,
    )

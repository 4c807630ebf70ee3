"""Plan a follow-up after a reply: as the model asked for in its answer or, if it calls no tools, by rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rapport.agents.tools.recorded import MayPlan
from rapport.domain.conversation import Message
from rapport.domain.event import Reply
from rapport.domain.follow_up import PastFollowUp, Plan
from rapport.followups.planner import plan_by_rules
from rapport.followups.reflection_form import FollowUp, plan_as_requested
from rapport.turns.turn import Turn, get_sole_speaker

MAX_READ_MESSAGES = 12
"""The number of messages that the rules read."""


def plan_follow_up(turn: Turn, reply: Reply, *, just_made: Sequence[PastFollowUp] = ()) -> Plan | None:
    """Return the follow-up to send after this reply if nobody writes; `just_made` are follow-ups that are not stored yet."""
    autonomy = turn.autonomy
    if autonomy is None:
        return None
    messages = [*turn.input.earlier[-MAX_READ_MESSAGES:]]
    if turn.event.trigger_type is None:
        messages.append(turn.input.message)
    messages.append(_build_reply_message(turn, reply))
    earlier = [*just_made, *turn.input.past_follow_ups]
    owner_id = get_sole_speaker(turn.event)
    if turn.event.trigger_type is None and turn.types_to_plan:
        if reply.follow_up is not None:
            request = FollowUp(**reply.follow_up)
            return plan_as_requested(request, said=messages, earlier=earlier, autonomy=autonomy, owner_id=owner_id)
        if turn.decides_by_tools:  # it could have asked for one
            return None
    return plan_by_rules(messages, earlier=earlier, autonomy=autonomy, owner_id=owner_id)


def make_plan_check(turn: Turn) -> MayPlan:
    """Return a function that accepts a follow-up which `plan_follow_up` would plan after an ordinary reply."""
    return lambda request: plan_follow_up(turn, Reply("All right.", follow_up=request)) is not None


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

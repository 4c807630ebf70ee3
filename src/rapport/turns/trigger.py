"""Build the trigger of a follow-up: the hidden prompt that stands for a person's message."""

from __future__ import annotations

from datetime import UTC, datetime

from langchain_core.messages import HumanMessage

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import Autonomy, TriggerType
from rapport.followups.triggers import make_synthetic_message


def build_trigger(event: ClaimedEvent, profile: AgentProfile) -> tuple[HumanMessage, str]:
    """Return the hidden prompt, and the name of its variant."""
    trigger_type = get_trigger_type(event)
    variant = (profile.autonomy or Autonomy()).choose_prompt(trigger_type, event.id)
    trigger = make_synthetic_message(trigger_type, prompt=variant.text, reason=event.trigger_reason, id=event.id)
    return trigger, variant.name


def build_trigger_message(event: ClaimedEvent, trigger: HumanMessage) -> Message:
    """Return the trigger as a message that can be stored, for operators."""
    tags = trigger.additional_kwargs
    return Message(event.id, event.conversation_id, "user", str(trigger.text), datetime.now(UTC), metadata=tags)


def get_trigger_type(event: ClaimedEvent) -> TriggerType:
    """Return the type of a follow-up's event."""
    assert event.trigger_type is not None
    return event.trigger_type

"""Follow-ups: what the agent says unasked, from the timer that waits for a silence to what became of it (AUTO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Literal, TypeAlias, get_args

from rapport.domain.conversation_kind import TRAITS, ConversationKind, ConversationTraits

TriggerType: TypeAlias = Literal["check_in", "question_unanswered", "task_incomplete", "waiting_for_decision"]
TRIGGER_TYPES: tuple[TriggerType, ...] = get_args(TriggerType)

TimerState: TypeAlias = Literal[
    "pending", "fired", "delivered", "suppressed", "superseded", "leaked", "failed", "expired"
]
Gate: TypeAlias = Literal[
    "server",
    "agent",
    "unreachable",
    "conversation",
    "muted",
    "resting",
    "consecutive",
    "too_soon",
    "quiet_hours",
    "too_frequent",
    "daily_limit",
    "repeated",
]
GATES: tuple[Gate, ...] = get_args(Gate)

PROMPTS: dict[TriggerType, str] = {
    "check_in": "Continue our conversation naturally.",
    "question_unanswered": "The user asked a question but hasn't responded. Follow up on it.",
    "task_incomplete": "Check in about the incomplete task we discussed.",
    "waiting_for_decision": "Follow up on the decision the user needs to make.",
}

EXPIRY_SECONDS = 3_600.0
"""Seconds after which a follow-up that nobody has made is dropped: whoever it was for is somewhere else by now."""

PLANNED_TIMER_ID = "follow-up"
"""The name of the timer that the planner sets: there is one at a time."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """What an agent may do unasked, and within which limits."""

    min_delay: float = 30.0
    max_delay: float = 3_600.0
    max_in_a_row: int = 3
    """Follow-ups without a word from anybody."""
    min_gap: float = 15.0
    """Seconds since the conversation's previous follow-up."""
    inferred_gap: float = 3_600.0
    """Seconds between a follow-up and the next inferred one in the same silence. Inferred: planned by rules or a model."""
    inferred_per_day: int = 2
    """Inferred follow-ups of a conversation within 24 hours."""
    prompts: dict[TriggerType, str] = field(default_factory=dict[TriggerType, str])
    """What the model reads instead of the usual prompt of a type."""

    def prompt(self, trigger_type: TriggerType) -> str:
        return self.prompts.get(trigger_type, PROMPTS[trigger_type])


@dataclass(frozen=True, slots=True)
class Plan:
    """A follow-up worth making if nobody says anything until then. No plan is None, not a word for it."""

    trigger_type: TriggerType
    delay: float
    """Seconds of silence after our last message."""
    topic: str
    """What it is about, in a few words: the same is not asked twice."""
    reason: str | None = None
    """Why, for people who look into it. No model reads it."""
    sources: tuple[str, ...] = ()
    """The ids of the person's messages that it comes from: what one of them says is brought up once."""


MAX_COMPARED_FOLLOW_UPS = 20
"""Latest delivered follow-ups of a conversation that a new one is compared with."""


@dataclass(frozen=True, slots=True)
class PastFollowUp:
    """A follow-up that was made."""

    topic: str
    sources: Sequence[str]
    """The ids of the person's messages that it came from or spoke of."""
    at: datetime
    is_inferred: bool
    """Planned by rules or a model, and not set by a person."""
    in_this_silence: bool
    """Nobody has spoken since."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A follow-up that waits, or what became of it."""

    id: str
    conversation_id: str
    timer_id: str
    owner_id: str
    trigger_type: TriggerType
    reason: str | None
    topic: str
    origin: Literal["planner", "user"]
    state: TimerState
    gate: Gate | None
    message_id: str | None
    due_at: datetime
    created_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class QuietHours:
    """When somebody does not want to hear from an agent, by their own clock; over midnight when it ends before it begins."""

    time_zone: str
    begin: time
    end: time


@dataclass(frozen=True, slots=True)
class GateInput:
    """What the gates look at: how a conversation stands at this moment, by the database's clock."""

    now: datetime
    kind: ConversationKind
    autonomy_enabled: bool | None
    """What somebody has said about follow-ups in this conversation; None when nobody has."""
    muted_until: datetime | None
    is_breaker_open: bool
    """The breaker is open: no model is asked."""
    consecutive_followups: int
    last_followup_at: datetime | None
    quiet_hours: QuietHours | None
    is_unreachable: bool = False
    """Nothing can be sent there: the chat is gone, or whoever it was with has blocked the agent."""
    lateness_seconds: float = 0.0
    """Seconds since the follow-up was due."""
    is_inferred: bool = False
    """The follow-up was planned by rules or a model, and not set by a person."""
    inferred_in_a_day: int = 0
    """Inferred follow-ups that were made here within 24 hours."""
    topic: str = ""
    sources: tuple[str, ...] = ()
    """Of the follow-up: see `Plan`."""

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


def find_trigger_type(text: str) -> TriggerType | None:
    """The type of that name, if there is one."""
    return text if text in TRIGGER_TYPES else None

"""Define follow-ups: timers, gates and their outcomes (AUTO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from hashlib import sha256
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
    "budget",
]
GATES: tuple[Gate, ...] = get_args(Gate)

PROMPTS: dict[TriggerType, str] = {
    "check_in": "Continue our conversation naturally.",
    "question_unanswered": "The user asked a question but hasn't responded. Follow up on it.",
    "task_incomplete": "Check in about the incomplete task we discussed.",
    "waiting_for_decision": "Follow up on the decision the user needs to make.",
}

MEANINGS: dict[TriggerType, str] = {
    "question_unanswered": "the assistant asked something that matters and the user has not answered.",
    "task_incomplete": "the user said they would do something and has not said that it is done.",
    "waiting_for_decision": "the user has to decide something and has not.",
    "check_in": "none of these, but a friend would ask how things are going.",
}
"""The meaning of each type, for a model that chooses one."""


def describe_types(trigger_types: Sequence[TriggerType]) -> str:
    """Return the names and meanings of types, for a model that chooses one of them."""
    return " ".join(f"{each}: {meaning}" for each, meaning in MEANINGS.items() if each in trigger_types)


EXPIRY_SECONDS = 3_600.0
"""A follow-up that is overdue by more than this is dropped: it would be too late. An agent may have another limit."""
MIN_EXPIRY_SECONDS = 60.0
"""The smallest expiry that an agent may have."""

PLANNED_TIMER_ID = "follow-up"
"""The name of the planner's timer: a conversation has at most one."""


@dataclass(frozen=True, slots=True)
class PromptVariant:
    """One wording of a trigger's prompt. The chance of a variant is its share of the weights of its type."""

    name: str
    text: str
    weight: float = 1.0


DEFAULT_VARIANT = "default"
"""The name of the contract's wording of a prompt."""
PLAIN_VARIANT = "(plain)"
"""The name of the plain prompt, which no variant of an agent can have: it replaces the agent's own for models that answer triggers."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """The limits for follow-ups of an agent. Delays and gaps are in seconds."""

    min_delay: float = 30.0
    max_delay: float = 3_600.0
    max_in_a_row: int = 3
    """Maximum of consecutive follow-ups without a message from a person between them."""
    min_gap: float = 15.0
    """Minimum time since the conversation's previous follow-up."""
    inferred_gap: float = 3_600.0
    """Minimum time between a follow-up and the next inferred one in the same silence. Inferred: planned by rules or a model."""
    inferred_per_day: int = 2
    """Maximum of inferred follow-ups of a conversation within 24 hours."""
    expiry: float = EXPIRY_SECONDS
    """A follow-up that is overdue by more than this is dropped."""
    trigger_types: tuple[TriggerType, ...] = TRIGGER_TYPES
    """The types that the planner may plan."""
    prompts: Mapping[TriggerType, Sequence[PromptVariant]] = field(
        default_factory=dict[TriggerType, Sequence[PromptVariant]]
    )
    """Variants that replace the default prompt of a type."""

    def choose_prompt(self, trigger_type: TriggerType, event_id: str) -> PromptVariant:
        """Return the prompt for a follow-up: the same variant each time for the same event, by the variants' weights."""
        variants = self.prompts.get(trigger_type) or (PromptVariant(DEFAULT_VARIANT, PROMPTS[trigger_type]),)
        share = int.from_bytes(sha256(event_id.encode()).digest()[:8]) / 2**64 * sum(each.weight for each in variants)
        for variant in variants:
            share -= variant.weight
            if share < 0:
                return variant
        return variants[-1]

    def list_prompt_texts(self) -> list[str]:
        """Return the texts of all variants."""
        return [variant.text for variants in self.prompts.values() for variant in variants]


@dataclass(frozen=True, slots=True)
class Plan:
    """A follow-up to send if nobody writes before it is due."""

    trigger_type: TriggerType
    delay: float
    """Seconds of silence after the agent's last message."""
    topic: str
    """The topic in a few words: a topic is brought up once."""
    reason: str | None = None
    """The reason, for people. No model reads it."""
    sources: tuple[str, ...] = ()
    """The ids of the person's messages that it is based on: each is used once."""


MAX_COMPARED_FOLLOW_UPS = 20
"""The number of the latest delivered follow-ups of a conversation that a new one is compared with."""


@dataclass(frozen=True, slots=True)
class PastFollowUp:
    """A follow-up that was delivered."""

    topic: str
    sources: Sequence[str]
    """The ids of the person's messages that it was based on or mentioned."""
    at: datetime
    is_inferred: bool
    """Planned by rules or a model, not set by a person."""
    in_this_silence: bool
    """No person has written since."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A pending follow-up, or one that has ended and its outcome."""

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
    """The hours, in a person's time zone, without follow-ups. They span midnight if `end` is before `begin`."""

    time_zone: str
    begin: time
    end: time


@dataclass(frozen=True, slots=True)
class GateInput:
    """The facts that the gates check: the state of a conversation now, by the database's clock."""

    now: datetime
    kind: ConversationKind
    autonomy_enabled: bool | None
    """The choice made for this conversation; None if nobody has made one."""
    muted_until: datetime | None
    is_breaker_open: bool
    """The breaker is open: no model is called."""
    consecutive_followups: int
    last_followup_at: datetime | None
    quiet_hours: QuietHours | None
    is_unreachable: bool = False
    """Nothing can be sent: the chat is gone, or the person has blocked the agent."""
    lateness_seconds: float = 0.0
    """Seconds since the follow-up was due."""
    is_inferred: bool = False
    """The follow-up was planned by rules or a model, not set by a person."""
    inferred_in_a_day: int = 0
    """Inferred follow-ups delivered in this conversation within 24 hours."""
    topic: str = ""
    sources: tuple[str, ...] = ()
    """Of the follow-up: see `Plan`."""

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


def find_trigger_type(text: str) -> TriggerType | None:
    """Return the trigger type with that name; None if there is none."""
    return text if text in TRIGGER_TYPES else None

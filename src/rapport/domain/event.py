"""Define events, each processed by one turn, and the results of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rapport.domain.conversation import Content, Message
from rapport.domain.conversation_kind import TRAITS, ConversationKind, ConversationTraits
from rapport.domain.follow_up import TriggerType
from rapport.domain.memory import MemoryCandidate
from rapport.domain.reminder import NewReminder
from rapport.domain.tool_call import ToolCall
from rapport.domain.usage import Usage

FRESH = "rapport_fresh"
"""Set in a graph run's configuration at the first attempt of an event: no checkpoint can exist yet."""


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that this process may run, valid while its fence is the highest.

    Its id is the id of its message or of its timer, or its own if it goes on with a turn that waited for a decision.
    """

    id: str
    conversation_id: str
    owner_id: str
    fence: int
    attempts: int
    agent_id: str
    kind: ConversationKind
    channel: str
    accepted_by: str
    user_message_count: int = 0
    """The number of people's messages in the conversation when the event was created."""
    trigger_type: TriggerType | None = None
    """Set for a follow-up, which answers no message."""
    trigger_reason: str | None = None
    handle: str | None = None
    """The agent's name on this conversation's platform, beside its own handles."""
    is_cancelled: bool = False
    """Cancelled before it started."""
    resumes: str | None = None
    """The id of the message whose turn goes on, now that a person has decided about its tool calls."""

    @property
    def message_id(self) -> str:
        """Return the id of the message that it answers, or of its timer."""
        return self.resumes or self.id

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting a message: it is stored, and may have an event."""

    message_id: str
    conversation_id: str
    owner_id: str
    agent_id: str
    created_at: datetime
    is_for_agent: bool
    """False if it gets no answer: a group message that does not address the agent."""
    claimed: ClaimedEvent | None = None
    """The event, if this process may run it at once."""
    is_repeated: bool = False
    """The client's id was known: nothing new was stored."""
    overtaken: Sequence[tuple[str, str]] = ()
    """Follow-ups in progress that this message has superseded, by id and type: they must not be sent any more."""
    interrupted: str | None = None
    """The id of the superseded follow-up that a process is running."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a turn, before it is stored."""

    content: Content
    sources: Sequence[Mapping[str, str]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_failed: bool | None = None
    """True if the model failed, for the breaker; None if no model was called or the call was stopped."""
    was_refused: bool = False
    """The model refused the prompt: it may have been too long."""
    memory_candidates: Sequence[MemoryCandidate] = ()
    """The memories that the model wants to store."""
    follow_up: Mapping[str, Any] | None = None
    """The follow-up that the model asked for."""
    reminders: Sequence[NewReminder] = ()
    """The reminders that the reply says are set."""
    usage: Sequence[Usage] = ()
    """The model calls of the turn, to store with the reply."""
    questions: Sequence[ToolCall] = ()
    """Tool calls that the reply asks a person about."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A committed turn: its stored reply and the next steps."""

    reply: Message
    has_more: bool
    """The conversation has another queued event."""
    needs_summary: bool = False
    has_plan: bool = False
    """A follow-up is planned."""

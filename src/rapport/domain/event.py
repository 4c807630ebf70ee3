"""Events: things to process, each by one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rapport.domain.conversation import Content, Message
from rapport.domain.conversation_kind import TRAITS, ConversationKind, ConversationTraits
from rapport.domain.follow_up import TriggerType
from rapport.domain.memory import MemoryCandidate

FRESH = "rapport_fresh"
"""Set in a graph run's configuration when its event has never been tried: there can't be a checkpoint of it yet."""


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that this process may run: valid while its fence is the highest.

    Its id is that of its message, or of the timer that it was.
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
    """How often people had spoken in the conversation when the event was made."""
    trigger_type: TriggerType | None = None
    """Set when this is a follow-up: nobody said anything."""
    trigger_reason: str | None = None
    handle: str | None = None
    """What the agent is called where this conversation takes place, beside its own handles."""
    is_cancelled: bool = False
    """Somebody has cancelled it before it began."""

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What accepting a message did: stored it, and perhaps made an event of it."""

    message_id: str
    conversation_id: str
    owner_id: str
    agent_id: str
    created_at: datetime
    is_for_agent: bool
    """False when nothing will be said to it: a group message that does not address the agent."""
    claimed: ClaimedEvent | None = None
    """Set when this process may run the event right away."""
    is_repeated: bool = False
    """The client's id was known: nothing was stored now."""
    overtaken: Sequence[tuple[str, str]] = ()
    """Follow-ups that were under way, by id and type: nothing of them may be said any more."""
    interrupted: str | None = None
    """The one of them that some process is at."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a turn has to say, before it is stored."""

    content: Content
    sources: Sequence[Mapping[str, str]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_failed: bool | None = None
    """Whether the model failed, for the breaker; None when no model was asked or it was not let finish."""
    was_refused: bool = False
    """The model failed because it would not take what it was given: it may have been too long."""
    memory_candidates: Sequence[MemoryCandidate] = ()
    """What the model asked to remember."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A turn that was committed: its stored reply, and what is to be done next."""

    reply: Message
    has_more: bool
    """The conversation's next event waits."""
    needs_summary: bool = False
    """What the model is given of the conversation has become long enough to be summed up."""

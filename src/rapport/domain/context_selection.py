"""Describe the messages of a chat that are selected for a call to the agent, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rapport.domain.conversation import Message

Strategy: TypeAlias = Literal["relevant", "time_gap", "thread", "recent"]
Reason: TypeAlias = Literal[
    "trigger",  # the call itself
    "anchor",  # the message the call replies to, or else the asker's or the chat's latest message
    "reply_chain",  # linked by a reply to the anchor or to another selected message
    "session",  # no long silence between it and the next selected message
    "topic",  # continues or answers a selected message
    "addressed",  # addresses a participant by name
    "semantic",  # close in meaning to the question, anywhere in the chat
    "neighbour",  # next to an old anchor
    "recent",  # one of the newest
]

MAX_RECENT_MESSAGES = 100
"""Messages before a call that are considered, however long the chat is."""
LOOKBACK_LIMIT = 20
"""Messages that the strategies `time_gap` and `recent` consider (CTX-4)."""
SESSION_GAP_MINUTES = 60.0
"""Silence that ends a session for `time_gap` (CTX-4)."""
MAX_CONTEXT_TOKENS = 4_000
"""Approximate limit for all selected messages together."""
MAX_LINE_CHARACTERS = 1_500
"""The part of one message that the model reads."""


@dataclass(frozen=True, slots=True)
class CandidateMessages:
    """The messages that a selection chooses from. A few indexed queries load them; their number does not grow with the chat."""

    recent: Sequence[Message]
    """The latest messages before the call, oldest first, at most MAX_RECENT_MESSAGES."""
    anchor: Message | None = None
    """The message the call replies to, however old it is."""
    chain: Sequence[Message] = ()
    """The chain of replies that leads to the anchor, and the replies to the anchor; oldest first."""
    around: Sequence[Message] = ()
    """Neighbours of an anchor that is older than `recent`, with the anchor; oldest first."""
    similar: Sequence[tuple[Message, float]] = ()
    """Messages close in meaning to the question, with their similarity, the closest first. They may repeat the others."""


@dataclass(frozen=True, slots=True)
class ChosenMessage:
    """A selected message, the reasons, and the confidence (0 to 1)."""

    message: Message
    reasons: tuple[Reason, ...]
    score: float


@dataclass(frozen=True, slots=True)
class ContextSelection:
    """The result of a selection: the prompt is built from it, the tool returns it and `why` shows it (CTX-6)."""

    strategy: Strategy
    chosen: Sequence[ChosenMessage]
    """Oldest first, each message once, the call itself last."""
    anchor: Message | None = None
    """The message the call is about."""
    passed_over: Sequence[tuple[Message, float]] = ()
    """Messages that were considered and not selected, with their score; oldest first."""

    @property
    def ids(self) -> list[str]:
        return [chosen.message.id for chosen in self.chosen]

    @property
    def earlier(self) -> list[ChosenMessage]:
        """Return the selected messages without the call itself."""
        return [chosen for chosen in self.chosen if "trigger" not in chosen.reasons]

    @property
    def receipt(self) -> dict[str, Any]:
        """Return the record that is stored with the reply: it explains the selection and holds no text."""
        return {
            "strategy": self.strategy,
            "anchor_id": self.anchor.id if self.anchor else None,
            "messages": [
                {"id": chosen.message.id, "reasons": list(chosen.reasons), "score": round(chosen.score, 3)}
                for chosen in self.chosen
            ],
        }

"""Values that lists, searches and statistics return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rapport.domain.conversation import Conversation, Message, Role


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The beginning of a conversation's last message."""

    author: str | None
    role: Role
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """A conversation in a list of them."""

    conversation: Conversation
    last_message: LastMessage | None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that a search has found."""

    message: Message
    similarity: float | None
    """Of its vector to the question's; None if one of them has none."""
    matched: int
    """The number of the question's words that it contains."""
    share: float
    """The share of these words in the question, weighted by rarity; 0 to 1."""


@dataclass(frozen=True, slots=True)
class HourlyReplies:
    """The agent's replies in one hour."""

    at: datetime
    replies: int
    guarded: int
    """Of the replies: guard replies, because no note answered the question."""
    fallen_back: int
    """Of the replies: fallback replies, because the model could not be asked."""

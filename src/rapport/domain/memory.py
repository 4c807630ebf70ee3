"""Memories: lasting facts about a user, one by one, each with where it comes from (MEM)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Origin: TypeAlias = Literal["user", "agent", "extracted"]
"""Who wrote it down: the user, the model by its tool, or what listens to conversations."""

MAX_CHARACTERS = 8_192
CAPACITY = 1_000
"""Memories of one agent about one user."""
WARN_AT_SHARE = 0.8
SAME_SIMILARITY = 0.95
"""From this similarity on two memories say the same."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One fact, as an agent remembers it."""

    id: str
    owner_id: str
    agent_id: str
    key: str | None
    content: str
    origin: Origin
    conversation_id: str | None
    message_id: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryCandidate:
    """Something worth remembering, before it is stored."""

    content: str
    key: str | None = None
    origin: Origin = "extracted"
    conversation_id: str | None = None
    message_id: str | None = None
    """The message it was said in."""

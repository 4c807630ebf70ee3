"""Define memories: single lasting facts about a user, each with its origin (MEM)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Origin: TypeAlias = Literal["user", "agent", "extracted"]
"""The author: the user, the model through its tool, or the extraction after a turn."""

MAX_CHARACTERS = 8_192
CAPACITY = 1_000
"""The limit for one agent and one user."""
WARN_AT_SHARE = 0.8
SAME_SIMILARITY = 0.95
"""Two memories at least this similar state the same fact."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored fact of an agent about a user."""

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
    """A fact to remember, before it is stored."""

    content: str
    key: str | None = None
    origin: Origin = "extracted"
    conversation_id: str | None = None
    message_id: str | None = None
    """The message that states it."""

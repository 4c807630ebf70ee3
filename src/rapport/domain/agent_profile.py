"""Define an agent: its persona and the settings that decide how it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rapport.domain.follow_up import Autonomy

Grounding: TypeAlias = Literal["blend", "strict"]
ReflectionMode: TypeAlias = Literal["off", "when_open", "always"]
"""Whether a model call of its own, after a pause, decides about follow-ups and memories: `when_open` asks only if the rules
find something open."""


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """A persona and its settings."""

    id: str
    name: str
    description: str
    persona: str
    grounding: Grounding
    handles: tuple[str, ...]
    """The names that people write after an @ to address it in a group."""
    remembers: bool = False
    """True if it keeps lasting facts about the person it talks with, in direct chats."""
    autonomy: Autonomy | None = None
    """The rules for follow-ups; None: it sends none."""
    reflection: ReflectionMode | None = None
    """None: the server's setting."""

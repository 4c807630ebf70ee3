"""The agents that ship: who answers, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Grounding: TypeAlias = Literal["blend", "strict"]


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """A persona and its settings."""

    id: str
    name: str
    description: str
    persona: str
    grounding: Grounding
    handles: tuple[str, ...]
    """What people write after an @ to address it in a group."""


COMPANION = AgentProfile(
    id="companion",
    name="Companion",
    description="Talks with you, in direct and group chats.",
    persona=(
        "You are a warm, attentive companion in a chat. Answer briefly and naturally, in the language of the person "
        "you talk with. When you don't know something, say so."
    ),
    grounding="blend",
    handles=("bot", "companion"),
)

LIBRARIAN = AgentProfile(
    id="librarian",
    name="Librarian",
    description="Answers carefully and says what it does not know.",
    persona=(
        "You are a careful, helpful assistant. Answer clearly and concisely. When you can't know something, say so "
        "instead of guessing."
    ),
    grounding="strict",
    handles=("bot", "librarian"),
)

AGENTS: dict[str, AgentProfile] = {agent.id: agent for agent in (COMPANION, LIBRARIAN)}

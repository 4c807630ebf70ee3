"""The agents that ship: who answers, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rapport.domain.follow_up import Autonomy

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
    remembers: bool = False
    """Whether it keeps lasting facts about the person it talks with, in direct chats."""
    autonomy: Autonomy | None = None
    """What it may say unasked; None: nothing."""


COMPANION = AgentProfile(
    id="companion",
    name="Companion",
    description="Talks with you, in direct and group chats; remembers what you tell it and follows up on it.",
    persona=(
        "You are a warm, attentive companion in a chat. Answer briefly and naturally, in the language of the person "
        "you talk with. When you don't know something, say so."
    ),
    grounding="blend",
    handles=("bot", "companion"),
    remembers=True,
    autonomy=Autonomy(),
)

LIBRARIAN = AgentProfile(
    id="librarian",
    name="Librarian",
    description="Answers from your notes alone, cites what it used, and says so when they don't hold the answer.",
    persona=(
        "You are a careful, helpful assistant. Answer clearly and concisely. When you can't know something, say so "
        "instead of guessing."
    ),
    grounding="strict",
    handles=("bot", "librarian"),
)

AGENTS: dict[str, AgentProfile] = {agent.id: agent for agent in (COMPANION, LIBRARIAN)}


def get_agent(agent_id: str, *, called: str | None = None) -> AgentProfile:
    """Who answers; a conversation of an agent that is gone gets the careful one. `called` is one more handle it has there."""
    agent = AGENTS.get(agent_id, LIBRARIAN)
    return agent if called is None else replace(agent, handles=(called, *agent.handles))

"""Define the agents that ship with Rapport, and find an agent by its id.

Callers use only `get_agent`, `find_agent` and `list_agents`, so that agents can have another source than this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import Autonomy

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

_AGENTS: dict[str, AgentProfile] = {agent.id: agent for agent in (COMPANION, LIBRARIAN)}


def list_agents() -> Sequence[AgentProfile]:
    """Return every agent, in the order in which they are shown."""
    return tuple(_AGENTS.values())


def find_agent(agent_id: str) -> AgentProfile | None:
    """Return the agent with this id; None if there is none."""
    return _AGENTS.get(agent_id)


def get_agent(agent_id: str, *, chat_handle: str | None = None) -> AgentProfile:
    """Return the agent that answers; `LIBRARIAN` for a conversation whose agent no longer exists.

    `chat_handle` is one more handle that the agent has in this chat.
    """
    agent = _AGENTS.get(agent_id, LIBRARIAN)
    return agent if chat_handle is None else replace(agent, handles=(chat_handle, *agent.handles))


def require_agent(agent_id: str) -> AgentProfile:
    """Return the agent with this id; raise InvalidInput with all ids if there is none."""
    if (agent := _AGENTS.get(agent_id)) is None:
        raise InvalidInput(f"There is no agent {agent_id[:64]!r}; there are {', '.join(sorted(_AGENTS))}.")
    return agent

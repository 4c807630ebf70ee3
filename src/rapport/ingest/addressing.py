"""Whether a message is meant for the agent (CTX-9)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rapport.domain.agents import AgentProfile


def mentioned_agents(text: str, agents: Iterable[AgentProfile]) -> list[str]:
    """The ids of those agents that the text mentions by one of their handles."""
    if "@" not in text:
        return []
    return [agent.id for agent in agents if mentions(text, agent)]


def mentions(text: str, agent: AgentProfile) -> bool:
    """Whether the text holds an @mention of one of the agent's handles, in any case, as a word of its own."""
    handles = "|".join(re.escape(handle) for handle in agent.handles)
    # Not inside a word or an address ("me@bot.example"), nor the beginning of a longer handle ("@bottle", "@bot_2").
    return re.search(rf"(?<![\w@.])@(?:{handles})(?![\w-]|\.\w)", text, re.IGNORECASE) is not None

"""Whether a message is meant for the agent (CTX-9)."""

from __future__ import annotations

import re

from rapport.domain.agents import AgentProfile
from rapport.domain.conversation import Kind


def mentions(text: str, agent: AgentProfile) -> bool:
    """Whether the text holds an @mention of one of the agent's handles, in any case, as a word of its own."""
    handles = "|".join(re.escape(handle) for handle in agent.handles)
    # Not inside a word or an address ("me@bot.example"), nor the beginning of a longer handle ("@bottle", "@bot_2").
    return re.search(rf"(?<![\w@.])@(?:{handles})(?![\w-]|\.\w)", text, re.IGNORECASE) is not None


def is_addressed(kind: Kind, text: str, agent: AgentProfile, *, replies_to_agent: bool) -> bool:
    """In a direct chat every message is; in a group a mention of the agent or a reply to it."""
    return kind == "direct" or replies_to_agent or mentions(text, agent)

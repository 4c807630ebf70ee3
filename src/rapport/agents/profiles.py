"""Define the agents that ship with Rapport. At start they are stored as ordinary agents for everyone (`core/agents.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rapport.agents.document import AgentDocument, AutonomyPart, make_profile

COMPANION_DOCUMENT: Final = AgentDocument(
    id="companion",
    name="Companion",
    description="Talks with you, in direct and group chats; remembers what you tell it and follows up on it.",
    persona=(
        "You are a warm, attentive companion in a chat. Answer briefly and naturally, in the language of the person "
        "you talk with. When you don't know something, say so."
    ),
    grounding="blend",
    handles=["bot", "companion"],
    memory=True,
    autonomy=AutonomyPart(enabled=True),
)

LIBRARIAN_DOCUMENT: Final = AgentDocument(
    id="librarian",
    name="Librarian",
    description="Answers from your notes alone, cites what it used, and says so when they don't hold the answer.",
    persona=(
        "You are a careful, helpful assistant. Answer clearly and concisely. When you can't know something, say so "
        "instead of guessing."
    ),
    grounding="strict",
    handles=["bot", "librarian"],
    memory=False,
)

SHIPPED: Final[Mapping[str, AgentDocument]] = {"companion": COMPANION_DOCUMENT, "librarian": LIBRARIAN_DOCUMENT}
"""The agents that ship, in the order in which they are shown."""

COMPANION = make_profile(COMPANION_DOCUMENT, agent_id="companion")
LIBRARIAN = make_profile(LIBRARIAN_DOCUMENT, agent_id="librarian")

DEFAULT_AGENT_ID: Final = COMPANION.id
"""The agent that answers in a conversation whose agent was deleted."""

SHARED_HANDLES = frozenset({"bot"})
"""Handles that several agents may have: a group has one agent, and people call it so."""

SHIPPED_HANDLES = frozenset(handle for document in SHIPPED.values() for handle in document.handles)

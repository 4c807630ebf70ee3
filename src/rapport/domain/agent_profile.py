"""Define an agent: its persona and the settings that decide how it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rapport.domain.context_selection import Strategy
from rapport.domain.follow_up import Autonomy

Grounding: TypeAlias = Literal["blend", "strict", "none"]
"""`strict`: answers from notes alone; `blend`: uses notes where they help; `none`: uses no notes."""
ReflectionMode: TypeAlias = Literal["off", "when_open", "always"]
"""Whether a model call of its own, after a pause, decides about follow-ups and memories: `when_open` asks only if the rules
find something open."""

MAX_ID_CHARACTERS = 64
AGENT_ID = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{MAX_ID_CHARACTERS - 1}}}")

EVERYONE = "*"
"""The owner id of rows that belong to everyone. No key can have it."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model and its options. An empty name is the server's model."""

    name: str = ""
    """`provider:model`, or `builtin`."""
    temperature: float | None = None
    max_tokens: int | None = None
    base_url: str = ""
    """The address of the model's server, in place of the one that the environment names."""
    key_variable: str = ""
    """The name of the environment variable that holds the key for `base_url`; never the key itself."""

    @property
    def is_servers(self) -> bool:
        """Return True if it is the server's model without options of its own."""
        return self == ModelChoice()


SERVERS_MODEL = ModelChoice()


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """How messages of a group are selected. None: the server's setting."""

    strategy: Strategy | None = None
    lookback: int | None = None
    gap_minutes: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """A persona and its settings: one version of an agent."""

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
    owner_id: str = EVERYONE
    version: int = 1
    stamp: int = 0
    """A number that every change of any agent raises: two profiles with one stamp are the same."""
    greeting: str = ""
    """The text that an empty conversation shows."""
    model: ModelChoice = ModelChoice()
    fallback_model: str = ""
    """The model that answers when the first one fails; empty: none."""
    guard_text: str = ""
    """The refusal of a strict agent; empty: the text of the contract."""
    min_similarity: float | None = None
    """The required relevance of a passage; None: the one measured for the notes, or the embedder's."""
    context: ContextChoice = ContextChoice()
    max_chat_history: int | None = None
    """None: the server's setting."""
    tools: tuple[str, ...] | None = None
    """The tools that its model may call; None: the default ones."""
    tools_without_approval: tuple[str, ...] = ()
    """The tools with effects outside that run without asking a person."""
    collections: tuple[str, ...] = ()
    """It uses only notes in one of these collections; empty: all that the person may see."""
    monthly_token_budget: int | None = None
    """The tokens that all use of it may take in a month; None: no limit."""
    replaces: str | None = None
    """The id of the deleted agent that it answers for; None: its own conversations."""

    @property
    def budget_id(self) -> str:
        """Return the id under which its budget is kept: with the owner, unless it is for everyone."""
        return self.id if self.is_for_everyone else f"{self.owner_id}/{self.id}"

    @property
    def is_for_everyone(self) -> bool:
        return self.owner_id == EVERYONE


@dataclass(frozen=True, slots=True)
class AgentHandle:
    """An agent as group messages address it."""

    id: str
    handles: tuple[str, ...]
    answers_for_deleted: bool = False
    """True for the agent that answers in conversations whose agent was deleted."""

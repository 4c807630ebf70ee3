"""The dependencies of a turn, wired in `app.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from langchain_core.messages import BaseMessage, HumanMessage

from rapport.agents.graph import Answer, Form
from rapport.agents.model_record import ModelRecord
from rapport.agents.tools import ChatToolbox, MaySave
from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.agent_profile import AgentProfile, ReflectionMode
from rapport.domain.conversation_kind import ConversationTraits
from rapport.domain.follow_up import Autonomy
from rapport.domain.server_note import ServerNote
from rapport.memory.memory_store import MemoryStore
from rapport.memory.recall import Recall
from rapport.metrics import Metrics
from rapport.retrieval.retriever import Retriever
from rapport.storage.database import Database
from rapport.turns.group_context import ContextSelector


class OnToken(Protocol):
    """A callback for each token that the model streams."""

    def __call__(self, token: str, /) -> None: ...


class Agent(Protocol):
    """The methods of an agent's model that turns, summaries and reflections need."""

    @property
    def calls_tools(self) -> bool: ...

    @property
    def record(self) -> ModelRecord: ...

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage],
        on_token: OnToken | None,
        fresh: bool,
        may_save: MaySave | None,
        may_plan: bool,
        lookups: ChatToolbox | None,
        note: ServerNote,
        tags: dict[str, str],
    ) -> Answer: ...

    async def ask(self, system: str, text: str) -> str: ...

    async def decide(self, system: str, text: str, form: type[Form]) -> Form: ...


@dataclass(frozen=True, slots=True)
class TurnDeps:
    """The dependencies of turns, summaries and reflections."""

    database: Database
    agent: Agent
    retriever: Retriever
    recall: Recall
    memory_store: MemoryStore
    metrics: Metrics
    context_selector: ContextSelector
    autonomy: bool = True
    """False if this server sends no follow-ups at all."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The clock for the time that prompts state."""
    model: str = ""
    """The name of the model, from RAPPORT_MODEL."""
    model_server: str = ""
    """Host and port of the model's server; empty for the provider's own."""
    reflection: ReflectionMode = "off"
    """When a model call after a turn decides about follow-ups and memories, for agents without a choice of their own."""
    max_chat_history: int = MAX_CHAT_HISTORY
    """Above this number of messages a conversation gets its first summary."""

    def get_autonomy(self, profile: AgentProfile, traits: ConversationTraits, choice: bool | None) -> Autonomy | None:
        """Return the agent's rules for follow-ups in such a conversation; None if follow-ups are off.

        `choice` is the conversation's own setting; None if it is unset.
        """
        return profile.autonomy if self.autonomy and traits.wants_follow_ups(choice) else None

    def get_reflection(self, profile: AgentProfile) -> ReflectionMode:
        """Return when the agent reflects after a turn."""
        return profile.reflection or self.reflection

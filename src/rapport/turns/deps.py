"""The dependencies of a turn, wired in `app.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from rapport.agents.call_usage import OnCall
from rapport.agents.directory import AgentDirectory
from rapport.agents.failures import ModelFailed
from rapport.agents.graph import Form
from rapport.agents.graph_run import Answer, Keep, PromptSource
from rapport.agents.health import ModelHealth
from rapport.agents.model_pool import ModelPool
from rapport.agents.model_record import ModelRecord
from rapport.agents.tools.recorded import Requests
from rapport.agents.tools.toolbox import Toolbox
from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.agent_profile import AgentProfile, ReflectionMode
from rapport.domain.conversation_kind import ConversationTraits
from rapport.domain.follow_up import Autonomy
from rapport.domain.tool import NO_TOOL_SOURCE, ToolSource
from rapport.memory.memory_store import MemoryStore
from rapport.memory.recall import Recall
from rapport.metrics import Metrics
from rapport.retrieval.retriever import Retriever
from rapport.storage.database import Database
from rapport.turns.budgets import Budgets
from rapport.turns.group_context import ContextSelector


class OnToken(Protocol):
    """A callback for each token that the model streams."""

    def __call__(self, token: str, /) -> None: ...


class Agent(Protocol):
    """The methods of an agent's model that turns, summaries and reflections need."""

    @property
    def name(self) -> str: ...

    @property
    def calls_tools(self) -> bool: ...

    @property
    def record(self) -> ModelRecord: ...

    @property
    def health(self) -> ModelHealth: ...

    async def run_turn(
        self,
        source: PromptSource,
        *,
        thread_id: str,
        tools: Toolbox,
        requests: Requests,
        on_call: OnCall,
        fresh: bool,
        keep: Keep,
        tags: dict[str, str],
        deadline_share: float,
    ) -> Answer | None: ...

    async def ask(self, system: str, text: str, *, on_call: OnCall) -> str: ...

    async def decide(self, system: str, text: str, form: type[Form], *, on_call: OnCall) -> Form: ...


async def _flush_nothing() -> None:
    """Do nothing: there are no checkpoints."""


@dataclass(frozen=True, slots=True)
class TurnDeps:
    """The dependencies of turns, summaries and reflections."""

    database: Database
    agents: AgentDirectory
    models: ModelPool
    retriever: Retriever
    recall: Recall
    memory_store: MemoryStore
    metrics: Metrics
    context_selector: ContextSelector
    budgets: Budgets
    tool_source: ToolSource = NO_TOOL_SOURCE
    """The tools outside Rapport."""
    flush_checkpoints: Callable[[], Awaitable[None]] = _flush_nothing
    """Make the written checkpoints durable."""
    approval_minutes: float = 60.0
    """The time that a call with an effect outside waits for a person's decision."""
    autonomy: bool = True
    """False if this server sends no follow-ups at all."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The clock for the time that prompts state."""
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

    async def find_model(self, profile: AgentProfile) -> Agent | ModelFailed:
        """Return the agent's model, or the reason why it can't be made."""
        try:
            return await self.models.get(profile.model)
        except ModelFailed as failure:
            return failure

    def get_max_chat_history(self, profile: AgentProfile) -> int:
        """Return the number of messages above which the agent's conversations get their first summary."""
        return profile.max_chat_history or self.max_chat_history

"""The core: everything a channel may call, grouped by concern. `app.py` makes it once for each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from rapport.agents.directory import AgentDirectory
from rapport.core.access import Access
from rapport.core.agents import AgentLibrary
from rapport.core.approvals import Approvals
from rapport.core.conversations import ConversationDirectory
from rapport.core.explanations import Explanations
from rapport.core.follow_ups import FollowUpControls
from rapport.core.history import MessageHistory
from rapport.core.monitoring import Monitoring
from rapport.core.notes import Notebook
from rapport.core.reminders import ReminderBook
from rapport.core.samples import Samples
from rapport.core.smart_context import SmartContext
from rapport.core.tools import ListServers, ToolCatalog
from rapport.core.turn_runner import TurnRunner
from rapport.core.usage import UsageAccounts
from rapport.domain.tool import NO_TOOL_SOURCE, ToolSource
from rapport.memory.memory_store import MemoryStore
from rapport.retrieval.library import Library
from rapport.retrieval.retriever import Retriever
from rapport.storage.database import Database
from rapport.turns.budgets import Budgets
from rapport.turns.group_context import ContextSelector


@dataclass(frozen=True, slots=True)
class Core:
    """All operations of channels."""

    runner: TurnRunner
    access: Access
    agents: AgentLibrary
    conversations: ConversationDirectory
    history: MessageHistory
    follow_ups: FollowUpControls
    reminders: ReminderBook
    approvals: Approvals
    tools: ToolCatalog
    notes: Notebook
    memories: MemoryStore
    explanations: Explanations
    smart_context: SmartContext
    samples: Samples
    monitoring: Monitoring
    usage: UsageAccounts


def make_core(
    runner: TurnRunner,
    database: Database,
    library: Library,
    retriever: Retriever,
    memories: MemoryStore,
    selector: ContextSelector,
    agents: AgentDirectory,
    budgets: Budgets,
    *,
    tool_source: ToolSource = NO_TOOL_SOURCE,
    list_tool_servers: ListServers = tuple,
    on_timers_changed: Callable[[], None] = lambda: None,
    on_reminders_changed: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Core:
    """Return the core on this database. `on_timers_changed` is called after every change of a timer, and `on_reminders_changed` of a reminder; `now` is the clock."""
    return Core(
        runner=runner,
        access=Access(database),
        agents=AgentLibrary(database, agents),
        conversations=ConversationDirectory(database, agents),
        history=MessageHistory(database, agents),
        follow_ups=FollowUpControls(database, on_timers_changed, on_reminders_changed),
        reminders=ReminderBook(database, now, on_reminders_changed),
        approvals=Approvals(database, runner.notice_decision),
        tools=ToolCatalog(agents, tool_source, list_tool_servers),
        notes=Notebook(database, library, retriever),
        memories=memories,
        explanations=Explanations(selector, agents),
        smart_context=SmartContext(selector, agents),
        samples=Samples(database, library, runner),
        monitoring=Monitoring(database),
        usage=UsageAccounts(database, now, budgets),
    )

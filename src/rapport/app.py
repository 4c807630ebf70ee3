"""The composition root: make every part from the settings and pass it on."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from rapport.domain import failpoints
from rapport.domain.extras import WORDLLAMA
from rapport.settings import Settings
from rapport.storage.postgres.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from rapport.agents.graph import LangGraphAgent
    from rapport.agents.health import ModelHealth
    from rapport.agents.mcp.config import McpServer
    from rapport.agents.mcp.source import McpTools
    from rapport.channels.base import Channel, OpenChannel
    from rapport.core.core import Core
    from rapport.domain.embedder import Embedder
    from rapport.domain.tool import ToolSource
    from rapport.memory.memory_store import MemoryStore
    from rapport.metrics import Metrics
    from rapport.retrieval.library import Library
    from rapport.retrieval.retriever import Retriever
    from rapport.runtime.worker import Worker
    from rapport.storage.database import Database
    from rapport.turns.group_context import ContextSelector

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class App:
    """The parts that channels and commands use."""

    settings: Settings
    database: Database
    agent: LangGraphAgent
    worker: Worker
    library: Library
    retriever: Retriever
    memory: MemoryStore
    metrics: Metrics
    context_selector: ContextSelector
    model: BaseChatModel
    health: ModelHealth
    core: Core
    channels: Mapping[str, Channel]
    tool_source: McpTools


@asynccontextmanager
async def open_database(
    settings: Settings, *, meanwhile: Callable[[], None] = lambda: None
) -> AsyncGenerator[Database]:
    """Yield the open database: embedded in the data directory, or the one that `DATABASE_URL` names.

    `meanwhile` runs while the embedded one starts.
    """
    async with AsyncExitStack() as stack:
        starting = embedded = None
        if settings.database_url is None:
            loop = asyncio.get_running_loop()
            starting = loop.run_in_executor(None, EmbeddedPostgres.start, settings.data_dir)
        from rapport.storage.database import Database

        if starting is not None:
            try:
                meanwhile()
                embedded = await asyncio.shield(starting)
            except BaseException:
                (await starting).stop()  # cancelled while starting: stop the server too
                raise
            stack.callback(embedded.stop)
            url = embedded.url
        else:
            assert settings.database_url is not None
            url = settings.database_url
        database = Database(url, max_size=settings.database_connections, embedded=embedded)
        stack.push_async_callback(database.close)
        await database.open()
        yield database


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    model: BaseChatModel | None = None,
    channels: Sequence[OpenChannel[Settings]] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    tool_source: ToolSource | None = None,
) -> AsyncGenerator[App]:
    """Yield the wired and running app; on exit drain its turns and close all parts.

    Those of `channels` are opened that the settings configure. `now` is the clock for the time that prompts state.
    `tool_source` replaces the tools of the configured MCP servers.
    """
    if settings.failpoint:
        failpoints.arm(settings.failpoint)
    servers = make_tool_source(settings)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings, meanwhile=_import_slow_modules))
        from rapport.agents.client_tools import ClientToolModel
        from rapport.agents.directory import AgentDirectory
        from rapport.agents.graph import LangGraphAgent
        from rapport.agents.health import ModelHealth
        from rapport.agents.metadata import verify_metadata
        from rapport.agents.model_pool import ModelPool, PooledModel
        from rapport.agents.model_record import ModelRecord
        from rapport.agents.models import find_server, get_host, make_model
        from rapport.channels.base import ChannelServices
        from rapport.channels.registry import open_channels
        from rapport.core.agents import AgentStore, store_shipped_agents
        from rapport.core.core import make_core
        from rapport.domain.agent_profile import ModelChoice
        from rapport.memory.memory_store import MemoryStore
        from rapport.memory.recall import Recall
        from rapport.metrics import Metrics
        from rapport.retrieval.embedders.question_cache import QuestionCache
        from rapport.retrieval.embedders.registry import close_embedder, make_embedder
        from rapport.retrieval.library import Library
        from rapport.retrieval.retriever import make_retriever
        from rapport.runtime.worker import Worker
        from rapport.storage.migrate import migrate, schema_lock
        from rapport.storage.model_records import ModelRecords
        from rapport.storage.notes.note_index import NoteIndex
        from rapport.storage.notes.passage_search import PassageSearch
        from rapport.storage.work.checkpoints import Checkpoints, checkpoint_pool
        from rapport.turns.budgets import Budgets
        from rapport.turns.deps import TurnDeps

        chat_model = model or make_model(settings.model, timeout=settings.model_timeout, environment=os.environ)
        pool = checkpoint_pool(database.url)
        stack.push_async_callback(pool.close)
        await pool.open()
        saver = Checkpoints(pool)
        async with schema_lock(database):
            for step in await migrate(database):
                log.info("storage.migrated", step=step)
            await saver.setup()
            await store_shipped_agents(database)
        metrics = Metrics()
        health = ModelHealth(metrics.count_model_failure)

        async def make_agent(model: BaseChatModel, name: str, server: str, health: ModelHealth) -> PooledModel:
            async with database.statement() as connection:
                record = ModelRecord.read(await ModelRecords(connection).load(name, server))
            deadline = settings.turn_deadline
            agent = LangGraphAgent(
                model, saver, deadline=deadline, health=health, record=record, name=name, server=server
            )
            return PooledModel(agent, ClientToolModel(model, record, health, name=name, deadline=deadline))

        async def make_chosen_agent(choice: ModelChoice) -> PooledModel:
            name = choice.name or settings.model
            made = make_model(name, timeout=settings.model_timeout, environment=os.environ, choice=choice)
            server = get_host(choice.base_url) if choice.base_url else find_server(name, os.environ)
            return await make_agent(made, name, server, ModelHealth(metrics.count_model_failure))

        pooled = await make_agent(chat_model, settings.model, find_server(settings.model, os.environ), health)
        agent, models = pooled.agent, ModelPool(pooled, make_chosen_agent)
        stack.push_async_callback(models.close)
        agents = AgentDirectory(AgentStore(database))
        await verify_metadata(agent.graph, saver)
        embedder = make_embedder(settings.embeddings, environment=os.environ)
        stack.push_async_callback(close_embedder, embedder)
        questions = QuestionCache(embedder)
        memory = MemoryStore(database, embedder)
        deps = TurnDeps(
            database,
            agents,
            models,
            make_retriever(questions, PassageSearch(database), NoteIndex(database)),
            Recall(questions, memory),
            memory,
            metrics,
            make_context_selector(settings, database, questions),
            Budgets(database, now),
            tool_source=tool_source or servers,
            flush_checkpoints=saver.flush,
            approval_minutes=settings.approval_minutes,
            autonomy=settings.autonomy,
            now=now,
            reflection=settings.reflection,
            max_chat_history=settings.max_chat_history,
        )
        retention = timedelta(days=settings.retention_days) if settings.retention_days else None
        worker = Worker(deps, saver, max_turns=settings.max_turns, retention=retention)
        library = Library(database, embedder)
        core = make_core(
            worker,
            database,
            library,
            deps.retriever,
            memory,
            deps.context_selector,
            agents,
            deps.budgets,
            tool_source=deps.tool_source,
            list_tool_servers=servers.list_servers,
            on_timers_changed=worker.notice_timer_change,
            on_reminders_changed=worker.notice_reminder_change,
            now=now,
        )
        services = ChannelServices(core, worker.delivery_loop.post_notice, database, settings.autonomy)
        channels_by_name = await open_channels(channels, settings, services, stack)
        for channel in channels_by_name.values():
            worker.add_channel(channel.name, channel.outgoing)
        stack.push_async_callback(worker.stop)
        await worker.start()
        await _warm_up(embedder, database, deps.context_selector)
        for channel in channels_by_name.values():
            if channel.source is not None:
                worker.add_source(channel.source)
        for name, loop in servers.loops:
            worker.add_loop(name, loop)
        yield App(
            settings,
            database,
            agent,
            worker,
            library,
            deps.retriever,
            memory,
            metrics,
            deps.context_selector,
            chat_model,
            health,
            core,
            channels_by_name,
            servers,
        )


def make_tool_source(settings: Settings) -> McpTools:
    """Return the tools of the configured MCP servers. Raise Permanent for a mistake in their configuration."""
    from rapport.agents.mcp.source import McpTools

    return McpTools(read_mcp_servers(settings))


def read_mcp_servers(settings: Settings) -> list[McpServer]:
    """Return the configured MCP servers. Raise Permanent for a mistake in their configuration."""
    from rapport.agents.mcp.config import read_servers

    return read_servers(settings.mcp_config, settings.data_dir, os.environ)


def make_context_selector(settings: Settings, database: Database, embedder: Embedder) -> ContextSelector:
    """Return the context selector that the settings configure."""
    from rapport.context.engine import SelectionOptions
    from rapport.retrieval.embedders.wordllama import open_word_table
    from rapport.turns.group_context import ContextSelector

    choice = SelectionOptions(
        settings.context_strategy,
        lookback=settings.lookback_limit,
        gap_minutes=settings.time_threshold,
        min_similarity=embedder.min_similarity,
        words=open_word_table(),
    )
    return ContextSelector(database, embedder, choice)


async def _warm_up(embedder: Embedder, database: Database, chooser: ContextSelector) -> None:
    """Load the embedder's weights if there are notes or memories, and warn about those of another embedder.

    If there are groups, load the context scorer too.
    """
    from rapport.retrieval.embedders.local import LocalEmbedder
    from rapport.storage.conversations.conversations import Conversations
    from rapport.storage.memories import Memories
    from rapport.storage.notes.notes import Notes

    async with database.statement() as connection:
        notes, outdated_notes = await Notes(connection).count_totals(embedder.name)
        memories, outdated_memories = await Memories(connection).count_totals(embedder.name)
        has_groups = await Conversations(connection).has_groups()
    if has_groups:
        asyncio.get_running_loop().run_in_executor(None, chooser.warm_up)
        if not WORDLLAMA.is_installed:
            log.warning("context.no_word_vectors", remedy=WORDLLAMA.remedy)
    if outdated_notes:
        log.warning("notes.outdated", notes=outdated_notes, embedder=embedder.name, remedy="rapport reindex")
    if outdated_memories:
        log.warning("memories.outdated", memories=outdated_memories, embedder=embedder.name, remedy="rapport reindex")
    if (notes or memories) and isinstance(embedder, LocalEmbedder):
        embedder.start_loading()


def _import_slow_modules() -> None:
    """Import slow modules, such as LangGraph, while Postgres starts on another core."""
    for name in ("rapport.agents.graph", "rapport.runtime.worker"):
        importlib.import_module(name)

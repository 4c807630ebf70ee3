"""Check every part that is in use and say whether it works: `rapport doctor`."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from langchain_core.messages import HumanMessage
from rich.console import Console
from rich.markup import escape

from rapport.agents.advice import advise
from rapport.agents.directory import read_profile
from rapport.agents.failures import classify_failure
from rapport.agents.graph import LangGraphAgent
from rapport.agents.metadata import verify_metadata
from rapport.agents.model_record import ModelRecord
from rapport.agents.models import BUILTIN, close_model, find_server, make_model
from rapport.app import open_database
from rapport.cli.main import secrets_in
from rapport.cli.output import escape_line
from rapport.cli.usage import describe_budget
from rapport.core.agents import store_shipped_agents
from rapport.domain.agent_profile import ModelChoice
from rapport.domain.errors import RapportError
from rapport.domain.extras import TELEGRAM, WORDLLAMA, missing_extra
from rapport.domain.usage import WARNING_SHARE
from rapport.logs import Redactor
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.settings import Settings
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.agents import Agents
from rapport.storage.database import Database
from rapport.storage.followups.timers import Timers
from rapport.storage.memories import Memories
from rapport.storage.migrate import list_migrations, migrate, schema_lock
from rapport.storage.model_records import ModelRecords
from rapport.storage.notes.notes import Notes
from rapport.storage.usage import UsageBudgets
from rapport.storage.work.checkpoints import Checkpoints, checkpoint_pool

HOW_TO_SWITCH = (
    "It needs no key and knows little. For a real one: RAPPORT_MODEL=openai:gpt-5-mini with OPENAI_API_KEY,"
    " RAPPORT_MODEL=anthropic:claude-sonnet-4-5 with ANTHROPIC_API_KEY, RAPPORT_MODEL=ollama:qwen3, or any"
    " OpenAI-compatible server with OPENAI_BASE_URL."
)


class Caution(str):
    """A part works, with a remark for the operator."""

    __slots__ = ()


class Part(Protocol):
    """Print one line about a part: its name, and what the check returns or raises."""

    async def __call__(self, name: str, check: Callable[[], Awaitable[str]], *, seconds: float | None = None) -> None:
        """`seconds` is how long the part took, if that is not the time of the check."""
        ...


async def examine(settings: Settings) -> bool:
    """Check every part and print a line about each; return True when all of them work."""
    console = Console(highlight=False)
    console.print("[bold]Rapport's parts[/bold]")
    redact = Redactor(secrets_in(os.environ))  # providers may quote a refused key
    results: list[bool] = []

    async def part(name: str, check: Callable[[], Awaitable[str]], *, seconds: float | None = None) -> None:
        started_at = time.perf_counter()
        try:
            state = await check()
        except RapportError as error:
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            console.print(f"[red]✗[/red] [bold]{name}[/bold]: {escape(redact(f'{error}{cause}'))}", soft_wrap=True)
            results.append(False)
        else:
            ms = (time.perf_counter() - started_at if seconds is None else seconds) * 1000
            mark = "[yellow]![/yellow]" if isinstance(state, Caution) else "[green]✓[/green]"
            console.print(
                f"{mark} [bold]{name}[/bold]: {escape(redact(state))} [dim]({ms:.0f} ms)[/dim]", soft_wrap=True
            )
            results.append(True)

    await part("Model", lambda: _check_model(settings))
    await part("Embedder", lambda: _check_embedder(settings))
    await part("Group context", lambda: _check_group_context(settings))
    if settings.telegram_bot_token is None:
        await part("Telegram", _report_no_telegram)
    elif not TELEGRAM.is_installed:
        await part("Telegram", _report_missing_telegram)
    else:
        await _check_telegram(part, settings)
    await _check_mcp_servers(part, settings)
    await part("Database", lambda: _check_database_parts(part, settings))
    return all(results)


async def _check_database_parts(part: Part, settings: Settings) -> str:
    """Check the database, and while it is open everything that it stores."""
    async with open_database(settings) as database:
        state = await _check_database(database, settings)
        if settings.model != BUILTIN:
            await part("Model in use", lambda: _report_model_record(database, settings))
        await _check_agents(part, database, settings)
        await part("Metadata", lambda: _check_metadata(database, settings))
        await part("Notes", lambda: _check_notes(database, settings))
        await part("Memories", lambda: _check_memories(database, settings))
        await part("Follow-ups", lambda: _check_follow_ups(database, settings))
        await part("Budgets", lambda: _check_budgets(database))
        await part("Access", lambda: _check_access(database, settings))
        if settings.telegram_bot_token is not None and TELEGRAM.is_installed:
            from rapport.cli.telegram_doctor import report_access

            await part("Telegram access", lambda: report_access(database, settings))
        return state


async def _check_telegram(part: Part, settings: Settings) -> None:
    from rapport.cli.telegram_doctor import check_bot, check_privacy_mode

    await part("Telegram", lambda: check_bot(settings))
    await part("Telegram groups", lambda: check_privacy_mode(settings))


async def _check_mcp_servers(part: Part, settings: Settings) -> None:
    from rapport.cli.mcp_doctor import check_mcp_servers

    await check_mcp_servers(part, settings)


async def _report_no_telegram() -> str:
    return "off: TELEGRAM_BOT_TOKEN is not set (docs/telegram.md says how to begin)"


async def _report_missing_telegram() -> str:
    raise missing_extra(TELEGRAM, "TELEGRAM_BOT_TOKEN is set")


async def _check_group_context(settings: Settings) -> str:
    if settings.context_strategy != "relevant" or WORDLLAMA.is_installed:
        return f"chosen by the strategy `{settings.context_strategy}`"
    return Caution(
        "chosen without word vectors, which finds less of what belongs to a call (ADR 46), because wordllama is not"
        f" installed. Run, with Python 3.13 or older: {WORDLLAMA.remedy}"
    )


async def _check_model(settings: Settings) -> str:
    model = make_model(settings.model, timeout=min(settings.model_timeout, 20), environment=os.environ)
    try:
        reply = await model.ainvoke([HumanMessage("Hello! Answer with one short sentence.")])
    except Exception as error:
        advice = advise(classify_failure(error).problem, settings.model)
        raise RapportError(f"{settings.model} does not answer. {advice}") from error
    finally:
        await close_model(model)
    if settings.model == BUILTIN:
        return f"the built-in one. {HOW_TO_SWITCH}"
    return f"{settings.model} answers ({len(str(reply.text))} characters)"


async def _check_agents(part: Part, database: Database, settings: Settings) -> None:
    """Print how many agents there are, and a line about each whose model can't be made. No model is called."""
    await store_shipped_agents(database)
    async with database.statement() as connection:
        stored = await Agents(connection).list_all()

    async def count() -> str:
        own = sum(not profile.model.is_servers for profile in profiles)
        return f"{len(profiles)}, {own} of them with a model of their own: `rapport agents list`"

    profiles = [read_profile(each) for each in stored]
    await part("Agents", count)
    for profile in profiles:
        for choice in (profile.model, ModelChoice(profile.fallback_model)):
            if not choice.is_servers and (problem := await _find_model_problem(choice, settings)):
                name = f"Agent {profile.id}" if profile.is_for_everyone else f"Agent {profile.id} of {profile.owner_id}"
                await part(escape_line(name), partial(_report_problem, problem))


async def _find_model_problem(choice: ModelChoice, settings: Settings) -> str | None:
    """Return why an agent's model can't be made, such as a missing key; None if it can."""
    name = choice.name or settings.model
    try:
        model = make_model(name, timeout=settings.model_timeout, environment=os.environ, choice=choice)
    except RapportError as error:
        return str(error)
    await close_model(model)
    return None


async def _report_problem(problem: str) -> str:
    raise RapportError(problem)


async def _report_model_record(database: Database, settings: Settings) -> str:
    """Return what servers on this database have seen the model do (ADR 63)."""
    async with database.statement() as connection:
        facts = await ModelRecords(connection).load(settings.model, find_server(settings.model, os.environ))
    return ModelRecord.read(facts).describe()


async def _check_embedder(settings: Settings) -> str:
    embedder = make_embedder(settings.embeddings, environment=os.environ)
    try:
        vector = await embedder.embed_question("Hello!")
    except RapportError as error:
        raise RapportError(str(error)) from error.__cause__
    finally:
        await close_embedder(embedder)
    prefix = "the bundled one, " if settings.embeddings == "bundled" else ""
    return f"{prefix}{embedder.name}, {len(vector)} dimensions; a passage counts from {embedder.min_similarity:.2f} on"


async def _check_notes(database: Database, settings: Settings) -> str:
    count = await _count_indexed(Notes, database, settings, if_outdated="are not found")
    return f"{count}" if count else "none yet: `rapport notes add FILES…`"


async def _check_memories(database: Database, settings: Settings) -> str:
    count = await _count_indexed(Memories, database, settings, if_outdated="are not recalled")
    return f"{count}: `rapport memory list`" if count else "none yet"


async def _count_indexed(
    repository: type[Notes | Memories], database: Database, settings: Settings, *, if_outdated: str
) -> int:
    """Return the number of rows; raise RapportError if the current embedder can't find some of them."""
    embedder = make_embedder(settings.embeddings, environment=os.environ)
    try:
        async with database.statement() as connection:
            count, outdated = await repository(connection).count_totals(embedder.name)
    finally:
        await close_embedder(embedder)
    if outdated:
        raise RapportError(
            f"{outdated} of {count} were indexed by another embedder and {if_outdated}: `rapport reindex`"
        )
    return count


async def _check_follow_ups(database: Database, settings: Settings) -> str:
    if not settings.autonomy:
        return "off: RAPPORT_AUTONOMY=false"
    async with database.statement() as connection:
        pending = await Timers(connection).count_pending()
    return f"on, {pending} waiting: `rapport timers list`" if pending else "on, none waiting"


async def _check_budgets(database: Database) -> str:
    """Return the budgets of tokens of which at least 80 % are used this month."""
    async with database.statement() as connection:
        states = await UsageBudgets(connection).list_states(
            None, await Agents(connection).list_budgets(), today=datetime.now(UTC).date()
        )
    if not states:
        return "none: `rapport usage budget --user NAME TOKENS` sets one"
    if nearly_spent := [describe_budget(state) for state in states if state.is_nearly_spent]:
        return Caution(" ".join(nearly_spent))
    return f"{len(states)}, less than {WARNING_SHARE:.0%} used of each: `rapport usage --user '*'`"


async def _check_database(database: Database, settings: Settings) -> str:
    async with schema_lock(database):
        await migrate(database)
    async with database.statement() as connection:
        row = await (await connection.execute("SHOW server_version")).fetchone()
        vector = await (
            await connection.execute("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
        ).fetchone()
    location = "DATABASE_URL" if settings.database_url else f"embedded in {settings.data_dir}"
    pgvector = f"pgvector {vector[0]}" if vector else "without pgvector"
    return f"Postgres {row[0] if row else '?'} ({location}), schema version {list_migrations()[-1].version}, {pgvector}"


async def _check_metadata(database: Database, settings: Settings) -> str:
    async with checkpoint_pool(database.url) as pool:
        saver = Checkpoints(pool)
        async with schema_lock(database):
            await saver.setup()
        model = make_model(BUILTIN, timeout=1, environment=os.environ)
        await verify_metadata(LangGraphAgent(model, saver, deadline=settings.turn_deadline).graph, saver)
    return "tags survive LangGraph's checkpoints"


async def _check_access(database: Database, settings: Settings) -> str:
    async with database.statement() as connection:
        rows = await ApiKeys(connection).list_all()
    active = [row for row in rows if row.revoked_at is None]
    count, operators = len(active), sum(row.role == "operator" for row in active)
    if rows and not count:
        raise RapportError("every key is revoked, so nobody can sign in: `rapport keys create NAME`")
    if count:
        told = f"{count} active key{'s' if count > 1 else ''}, {operators or 'none'} of an operator"
        return f"{told}; every request needs one"
    if settings.is_loopback:
        return f"no keys; {settings.host} is this machine only, its callers are the user `local`"
    raise RapportError(f"no keys, and HOST={settings.host} can be reached by others: `rapport keys create NAME`")

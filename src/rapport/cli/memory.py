"""`rapport memory`: manage an agent's memories about a user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rapport.agents.profiles import COMPANION
from rapport.cli.output import escape_line, make_plain_line
from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from rapport.domain.live_updates import MemoryChangeKind
    from rapport.domain.memory import Memory
    from rapport.memory.memory_store import MemoryStore

app = typer.Typer(help="Memories: list, add, search, edit, forget, stats.", no_args_is_help=True)

Agent = Annotated[str, typer.Option(help="The agent.")]
User = Annotated[
    str, owner_option("The user whom the memories are about; `local` is the user of a server without keys.")
]
Key = Annotated[str | None, typer.Option(help="A name by which the memory can be replaced later.")]

HINT_SENDER = "command"
"""The sender of the notifications about changes by a command."""

_WRITTEN_BY = {"user": "by hand", "agent": "by the agent", "extracted": "from what was said"}


@app.command("list")
def list_(agent: Agent = COMPANION.id, user: User = LOCAL_USER) -> None:
    """List the memories with their origin, the newest first."""
    from rich.console import Console

    from rapport.cli.follow_up_output import WIDE, render_records
    from rapport.cli.main import start

    async def job(settings: Settings) -> list[Memory]:
        from rapport.cli.database import open_agents, open_migrated_database
        from rapport.storage.memories import Memories

        all_memories: list[Memory] = []
        async with open_migrated_database(settings) as database, database.statement() as connection:
            await open_agents(database).require(user, agent)
            while page := await Memories(connection).list_page(
                user,
                agent,
                limit=1_000,
                before=(all_memories[-1].created_at, all_memories[-1].id) if all_memories else None,
            ):
                all_memories += page
        return all_memories

    memories = start(job, level="warning")
    console = Console(highlight=False)
    if not memories:
        console.print(_nothing(agent, user))
    elif console.width < WIDE:
        console.print(render_records(_lines(memory) for memory in memories))
    else:
        console.print(_table(memories))


def _lines(memory: Memory) -> list[str]:
    """Return a memory as lines, for terminals without room for a table."""
    key = f"  {make_plain_line(memory.key)}" if memory.key else ""
    return [
        f"{memory.id}{key}",
        make_plain_line(memory.content),
        f"{_origin(memory)}, {_format_change_time(memory)}",
    ]


def _table(memories: Sequence[Memory]) -> Table:
    from rich.table import Column, Table

    table = Table(
        Column("id", no_wrap=True),  # the whole id, to be copied
        Column("memory", overflow="fold"),
        Column("key", overflow="fold"),
        Column("from", overflow="fold"),
        Column("changed", no_wrap=True),
        box=None,
    )
    for memory in memories:
        table.add_row(
            memory.id,
            escape_line(memory.content),
            escape_line(memory.key or ""),
            _provenance(memory),
            _format_change_time(memory),
        )
    return table


@app.command()
def add(content: str, key: Key = None, agent: Agent = COMPANION.id, user: User = LOCAL_USER) -> None:
    """Add a memory. A memory with the same meaning as an existing one is refused."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> Memory:
        from rapport.domain.memory import MemoryCandidate

        async with _open_book(settings, user, agent) as store:
            return await store.create(user, agent, MemoryCandidate(content, key=key, origin="user"))

    typer.echo(f"Remembered as {start(job, level='error').id}.")


@app.command()
def search(
    query: str,
    agent: Agent = COMPANION.id,
    user: User = LOCAL_USER,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 10,
) -> None:
    """Search the memories, the most similar first."""
    from rich.console import Console

    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        console = Console(highlight=False)
        async with _open_book(settings, user, agent) as store:
            hits = await store.search(user, agent, query, limit)
            count = 0 if hits else (await store.stats(user, agent)).count
        for memory, similarity in hits:
            console.print(
                f"[bold]{memory.id}[/bold]  {similarity:.3f}  {escape_line(memory.content)}  [dim]{_provenance(memory)}[/dim]",
                soft_wrap=True,
            )
        if not hits:
            console.print(
                _nothing(agent, user)
                if not count
                else "There is nothing to look for in this."
                if not query.strip()
                else "Nothing is indexed by the embedder in use: `rapport reindex`"
            )

    start(job, level="warning")


@app.command()
def edit(
    memory_id: str,
    content: Annotated[str | None, typer.Argument(help="The new text; without it only the key changes.")] = None,
    key: Annotated[str | None, typer.Option(help="The new key; an empty one removes it.")] = None,
    agent: Agent = COMPANION.id,
    user: User = LOCAL_USER,
) -> None:
    """Change a memory."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> Memory:
        async with _open_book(settings, user, agent) as store:
            return await store.edit(user, agent, memory_id, content=content, key=key)

    typer.echo(f"Changed {start(job, level='error').id}.")


@app.command()
def forget(
    memory_ids: Annotated[list[str] | None, typer.Argument(help="The ids of the memories.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All memories of this agent about this user.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    agent: Agent = COMPANION.id,
    user: User = LOCAL_USER,
) -> None:
    """Delete memories. Messages that were written with their help stay."""
    from rapport.cli.main import fail, start

    ids = memory_ids or []
    if every == bool(ids):
        fail("Name the memories to forget, or say --all.")
    if every and not yes:
        typer.confirm(f"Forget everything that {agent} remembers about {make_plain_line(user)}?", abort=True)
    if not start(lambda settings: _forget(settings, agent, user, None if every else ids), level="warning"):
        raise typer.Exit(1)


async def _forget(settings: Settings, agent: str, user: str, ids: list[str] | None) -> bool:
    """Delete the given memories, or all. A missing one is reported, and the others are deleted. Needs no embedder."""
    from rapport.cli.database import open_agents, open_migrated_database
    from rapport.domain.errors import NotFound
    from rapport.storage.memories import Memories
    from rapport.storage.messages.new_messages import NewMessages, memory_hint

    missing = False
    async with open_migrated_database(settings) as database:
        await open_agents(database).require(user, agent)
        if ids is None:
            async with database.transaction() as connection:
                await Memories(connection).lock(user, agent)
                deleted = await Memories(connection).delete_all(user, agent)
                await NewMessages(connection).send_hints(
                    [memory_hint(HINT_SENDER, "deleted", agent, one, user) for one in deleted]
                )
            typer.echo(f"Forgot {len(deleted):,} {'memory' if len(deleted) == 1 else 'memories'}.")
        for memory_id in ids or []:
            try:
                async with database.transaction() as connection:
                    await Memories(connection).lock(user, agent)
                    await Memories(connection).delete(user, agent, memory_id)
                    await NewMessages(connection).send_hints(
                        [memory_hint(HINT_SENDER, "deleted", agent, memory_id, user)]
                    )
                typer.echo(f"Forgot {memory_id}.")
            except NotFound as error:
                missing = True
                typer.secho(str(error), fg="red", err=True)
    return not missing


@app.command()
def stats(agent: Agent = COMPANION.id, user: User = LOCAL_USER) -> None:
    """Count the memories by origin."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        async with _open_book(settings, user, agent) as store:
            statistics = await store.stats(user, agent)
        typer.echo(f"{statistics.count:,} of {statistics.capacity:,} places are taken ({statistics.share:.0%}).")
        if statistics.oldest and statistics.newest:
            typer.echo(
                ", ".join(f"{count:,} {_WRITTEN_BY[origin]}" for origin, count in statistics.by_origin.items()) + "."
            )
            typer.echo(
                f"The oldest is of {statistics.oldest.astimezone():%Y-%m-%d %H:%M},"
                f" the newest of {statistics.newest.astimezone():%Y-%m-%d %H:%M}."
            )
        if statistics.warning:
            typer.secho(statistics.warning, fg="yellow")

    start(job, level="warning")


@asynccontextmanager
async def _open_book(settings: Settings, user: str, agent: str) -> AsyncGenerator[MemoryStore]:
    """Yield the memory store with the embedder of the settings; then notify servers of the changes.

    Raise InvalidInput if the user has no such agent.
    """
    from rapport.cli.database import open_agents
    from rapport.cli.note_library import open_library
    from rapport.memory.memory_store import MemoryStore
    from rapport.storage.messages.new_messages import NewMessages, memory_hint

    hints: list[str] = []

    def announce_change(owner_id: str, kind: MemoryChangeKind, memory: Memory) -> None:
        hints.append(memory_hint(HINT_SENDER, kind, memory.agent_id, memory.id, owner_id))

    async with open_library(settings) as (library, _):
        await open_agents(library.database).require(user, agent)
        store = MemoryStore(library.database, library.embedder)
        store.listeners.append(announce_change)
        yield store
        if hints:
            async with library.database.statement() as connection:
                await NewMessages(connection).send_hints(hints)


def _origin(memory: Memory) -> str:
    source = f", message {memory.message_id}" if memory.message_id else ""
    return make_plain_line(f"{_WRITTEN_BY[memory.origin]}{source}")


def _provenance(memory: Memory) -> str:
    return escape_line(_origin(memory))


def _format_change_time(memory: Memory) -> str:
    return f"{memory.updated_at.astimezone():%Y-%m-%d %H:%M}"


def _nothing(agent: str, user: str) -> str:
    person = "you" if user == LOCAL_USER else escape_line(user)
    return f"{agent} remembers nothing about {person} yet: `rapport memory add TEXT`"

"""`rapport import` and `rapport export`: read conversations from files and write them to files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rapport.agents.profiles import COMPANION
from rapport.cli.output import make_plain_line, make_progress
from rapport.cli.owner_option import owner_option
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput, TooLarge
from rapport.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rapport.domain.chat_archive import Archive, RowProblem
    from rapport.ingest.telegram_export import TelegramChat
    from rapport.storage.database import Database
    from rapport.storage.messages.import_export import ImportCounts

MAX_BYTES = 200_000_000
"""Maximum size of a file: it takes several times its size in memory."""
MAX_SHOWN_PROBLEMS = 100
"""The number of problems of rows that are printed; the others are counted."""

User = Annotated[str, owner_option("The owner of the conversation; `local` is the user of a server without keys.")]


def import_(
    file: Annotated[
        Path | None, typer.Argument(help="The file: `.jsonl`, or Telegram Desktop's `result.json`.")
    ] = None,
    form: Annotated[
        Literal["jsonl", "telegram"] | None, typer.Option("--format", help="The format of the file.")
    ] = None,
    user: User = LOCAL_USER,
    agent: Annotated[str, typer.Option(help="The agent of a new conversation.")] = COMPANION.id,
    conversation: Annotated[
        str | None, typer.Option(help="Import into this conversation instead of a new one.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title of a new conversation.")] = None,
    kind: Annotated[Literal["direct", "group"] | None, typer.Option(help="The kind of a new conversation.")] = None,
    chat: Annotated[
        str | None, typer.Option(help="The chat of a Telegram file, by name or id; for jsonl, a name for the chat.")
    ] = None,
    agent_author: Annotated[
        list[str] | None,
        typer.Option(help="The author in a Telegram chat that was the agent, by name or id; may be repeated."),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="The file is an export of Rapport: also import its sources and tags.")
    ] = False,
    tag_legacy: Annotated[
        bool, typer.Option("--tag-legacy", help="Tag follow-ups of older systems among the stored messages.")
    ] = False,
) -> None:
    """Import a conversation from a file. Importing it again adds new messages. Imported messages are not answered."""
    from rapport.cli.main import fail, start

    if tag_legacy and file is None:
        start(lambda settings: _tag_legacy(settings, user), level="warning")
        return
    if tag_legacy or file is None or form is None:
        fail("say what to import: `--format jsonl FILE`, `--format telegram FILE`, or `--tag-legacy` alone.")

    async def job(settings: Settings) -> bool:
        from datetime import UTC, datetime

        from rapport.cli.database import open_migrated_database
        from rapport.ingest.archive_rows import read_jsonl
        from rapport.ingest.telegram_export import list_telegram_chats, read_telegram

        now, limit = datetime.now(UTC), settings.max_message_characters
        content = await _content(file)
        async with open_migrated_database(settings) as database:
            speaker = await _agent(database, user, conversation, agent)
            if form == "jsonl":
                archive = read_jsonl(
                    content, agent=speaker, now=now, trusted=trusted, chat=chat, title=file.stem, limit=limit
                )
            else:
                chosen_chat = _choose_chat(list_telegram_chats(content.getvalue()), chat)
                archive = read_telegram(chosen_chat, now=now, agent_authors=agent_author or (), limit=limit)
                del chosen_chat  # larger than the file
            content.close()
            return await _store(database, archive, user, speaker, conversation, title=title, kind=kind)

    if not start(job, level="warning"):
        raise typer.Exit(1)


async def _agent(database: Database, user: str, conversation: str | None, agent: str) -> AgentProfile:
    """Return the agent of the named conversation, or of the new one."""
    from rapport.cli.database import open_agents
    from rapport.storage.conversations.conversations import Conversations

    if conversation is not None:
        async with database.statement() as connection:
            agent = (await Conversations(connection).get(user, conversation)).agent_id
    return await open_agents(database).require(user, agent)


async def _content(file: Path) -> io.BytesIO:
    """Read a file; refuse one that is too large, and anything that is no file."""
    import asyncio

    def read() -> bytes:
        size = file.stat().st_size
        if not file.is_file():
            raise InvalidInput(f"{make_plain_line(file, limit=200)} isn't a file.")
        if size > MAX_BYTES:
            raise TooLarge(
                f"{make_plain_line(file, limit=200)} has {size:,} bytes; at most {MAX_BYTES:,} are read. Split it, or export less."
            )
        return file.read_bytes()

    try:
        return io.BytesIO(await asyncio.to_thread(read))
    except OSError as error:
        raise InvalidInput(f"{make_plain_line(file, limit=200)}: {error.strerror or error}.") from error


def _choose_chat(chats: list[TelegramChat], name: str | None) -> TelegramChat:
    matches = chats if name is None else [chat for chat in chats if chat.has_name(name)]
    if len(matches) == 1:
        return matches[0]
    listed = "\n".join(
        f"  {chat.id}  {make_plain_line(chat.name, limit=200) or '(no name)'} ({chat.type.replace('_', ' ')}, {len(chat.rows):,} rows)"
        for chat in (matches or chats)
    )
    reason = "There is no such chat" if name is not None and not matches else f"There are {len(matches)} chats"
    raise InvalidInput(f"{reason} in this file: choose one by `--chat` and its id or name.\n{listed}")


async def _store(
    database: Database,
    archive: Archive,
    user: str,
    agent: AgentProfile,
    target: str | None,
    *,
    title: str | None,
    kind: Literal["direct", "group"] | None,
) -> bool:
    from rich.console import Console

    from rapport.ingest.import_messages import import_archive

    console = Console(highlight=False)
    _tell(console, archive.problems, "[red]✗[/red]")
    _tell(console, archive.warnings, "[yellow]![/yellow]")
    with make_progress(console) as bar:
        task = bar.add_task("messages", total=len(archive.messages))
        counts = await import_archive(
            database,
            archive,
            owner_id=user,
            agent_id=agent.id,
            conversation_id=target,
            kind=kind,
            title=make_plain_line(title if title is not None else archive.title or "", limit=200) or None,
            on_progress=lambda count: bar.advance(task, count),
        )
    summary = _summary(archive, counts, target or archive.derive_conversation_id(user))
    console.print(summary, soft_wrap=True, markup=False)
    return bool(archive.messages) and not archive.problems


def _tell(console: Console, problems: Sequence[RowProblem], mark: str) -> None:
    from rich.markup import escape

    for problem in problems[:MAX_SHOWN_PROBLEMS]:
        console.print(
            f"{mark} {escape(make_plain_line(f'{problem.place}: {problem.reason}', limit=500))}", soft_wrap=True
        )
    if len(problems) > MAX_SHOWN_PROBLEMS:
        console.print(f"{mark} and {len(problems) - MAX_SHOWN_PROBLEMS:,} more")


def _summary(archive: Archive, counts: ImportCounts, conversation_id: str) -> str:
    from rapport.domain.synthetic import is_synthetic

    if not archive.messages:
        return "There is no message to import in this file."
    tagged = sum(is_synthetic(message) for message in archive.messages)
    parts = [
        f"Imported {_count(counts.added, 'message')} into {conversation_id}",
        f"{counts.known:,} were there already" if counts.known else "",
        f"{counts.changed:,} of those with other words, which stay" if counts.changed else "",
        f"{_count(len(archive.problems), 'row')} left out" if archive.problems else "",
        f"{_count(archive.skipped, 'row')} in which nobody says anything skipped" if archive.skipped else "",
        f"{_count(tagged, 'trigger')} of follow-ups tagged, which no history shows" if tagged else "",
        f"{_count(counts.loose, 'reply', 'replies')} to a message that isn't there" if counts.loose else "",
    ]
    return "; ".join(part for part in parts if part) + "."


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


async def _tag_legacy(settings: Settings, user: str) -> None:
    from rich.console import Console

    from rapport.cli.database import open_migrated_database
    from rapport.ingest.import_messages import tag_legacy

    async with open_migrated_database(settings) as database:
        counts = await tag_legacy(database, user)
    _tell(Console(highlight=False), counts.warnings, "[yellow]![/yellow]")
    triggers, replies = _count(counts.triggers, "trigger"), _count(counts.replies, "reply", "replies")
    typer.echo(f"Tagged {triggers} of follow-ups and {replies} to them.")


def export(
    conversation: Annotated[str, typer.Argument(help="The conversation's id or a prefix of it.")],
    user: User = LOCAL_USER,
    form: Annotated[
        Literal["jsonl", "markdown"], typer.Option("--format", help="`jsonl` for programs, `markdown` for people.")
    ] = "jsonl",
    include_synthetic: Annotated[
        bool, typer.Option("--include-synthetic", help="Include the hidden messages that start follow-ups.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Export all messages of a conversation, oldest first."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rapport.cli.database import open_agents, open_migrated_database
        from rapport.cli.transcript import Transcript, as_jsonl, as_markdown
        from rapport.storage.conversations.conversations import Conversations
        from rapport.storage.messages.import_export import Archives

        async with open_migrated_database(settings) as database, database.statement() as connection:
            found = await Conversations(connection).get_by_prefix(user, conversation)
            transcript = Transcript(found, include_synthetic)
            agent = await open_agents(database).directory.reload(user, found.agent_id)
            render = as_jsonl(transcript) if form == "jsonl" else as_markdown(transcript, agent_name=agent.name)
            with _writing(output) as write:
                cursor = None
                while page := await Archives(connection).list_after(user, found.id, limit=200, cursor=cursor):
                    for message in page:
                        if transcript.is_exported(message):
                            write(render(message))
                    cursor = (page[-1].created_at, page[-1].id)
        typer.echo(f"Exported {_count(transcript.exported, 'message')}.", err=True)
        if transcript.filtered:
            typer.echo(f"Filtered {_count(transcript.filtered, 'synthetic message')}", err=True)

    start(job, level="warning")


@contextmanager
def _writing(output: Path | None) -> Generator[Callable[[str], object]]:
    """Open the output for writing. A file appears only when it is complete."""
    if output is None:
        yield _to_terminal if sys.stdout.isatty() else lambda text: typer.echo(text, nl=False)
        return
    if output.is_dir():
        raise InvalidInput(f"{make_plain_line(output, limit=200)} can't be written: it is a folder.")
    partial = output.with_name(f".{output.name}.part")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file.write
        partial.replace(output)
    except OSError as error:
        raise InvalidInput(
            f"{make_plain_line(output, limit=200)} can't be written: {error.strerror or error}."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _to_terminal(text: str) -> None:
    """Print text of other people without control characters."""
    from rapport.retrieval.files.plain import clean_text

    typer.echo(clean_text(text), nl=False)

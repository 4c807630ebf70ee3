"""`rapport notes`: manage the notes that answers may cite."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rapport.cli.output import escape_line, make_progress
from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

    from rapport.domain.note import Note
    from rapport.domain.note_scope import NoteSettings
    from rapport.retrieval.files.reader import FileReader
    from rapport.retrieval.library import Library

app = typer.Typer(help="Notes: add, list, show, search, share, delete.", no_args_is_help=True)

AUDIENCE = "Who sees them: `owner`, `everyone`, or the id of a group conversation."
User = Annotated[str, owner_option("The owner of the notes; `local` is the user of a server without keys.")]


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Files (txt, md, html, pdf, docx) or folders of such files.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="A collection that they shall belong to; may be given several times.")
    ] = None,
    share: Annotated[str | None, typer.Option(help=AUDIENCE)] = None,
    user: User = LOCAL_USER,
) -> None:
    """Add files as notes. A changed file replaces its note; an unchanged file is skipped."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> bool:
        from rapport.domain.note_scope import check_settings

        return await _add(settings, files, user, check_settings(collection, share, by_operator=True))

    if not start(job, level="warning"):
        raise typer.Exit(1)


async def _add(settings: Settings, paths: list[Path], user: str, note_settings: NoteSettings) -> bool:
    """Add each file. An unreadable one is reported, and the others are added."""
    from rich.console import Console

    from rapport.cli.note_library import open_library
    from rapport.domain.errors import InvalidInput, Transient
    from rapport.retrieval.files.reader import FileReader
    from rapport.retrieval.files.registry import FORMATS, index_by_suffix

    files = [file for path in paths for file in _files_in(path, index_by_suffix())]
    console = Console(highlight=False)
    if not files:
        console.print(f"There is no file to add ({', '.join(note_format.name for note_format in FORMATS)}).")
        return False
    counts = {"added": 0, "replaced": 0, "unchanged": 0, "failed": 0}
    bar = make_progress(console)
    reader = FileReader()
    async with open_library(settings) as (library, _):
        with bar:
            files_done = bar.add_task("files", total=len(files))
            for file in files:
                try:
                    outcome, note = await _add_one(library, reader, file, user, note_settings, bar)
                except (InvalidInput, Transient, OSError) as error:
                    counts["failed"] += 1
                    reason = (error.strerror or error) if isinstance(error, OSError) else error
                    console.print(
                        f"[red]✗[/red] {escape_line(file.path, limit=4000)}: {escape_line(reason, limit=4000)}",
                        soft_wrap=True,
                    )
                else:
                    counts[outcome] += 1
                    console.print(
                        f"[green]✓[/green] {escape_line(file.path, limit=4000)}: {outcome}, [bold]{note.id}[/bold]"
                        f" ({note.chunks} passage{'' if note.chunks == 1 else 's'})",
                        soft_wrap=True,
                    )
                bar.advance(files_done)
    console.print(", ".join(f"{count} {what}" for what, count in counts.items() if count) + ".")
    return not counts["failed"]


class _File(NamedTuple):
    path: Path
    name: str
    """The name of its note: the file's path below the given folder."""


async def _add_one(
    library: Library, reader: FileReader, file: _File, user: str, note_settings: NoteSettings, bar: Progress
) -> tuple[str, Note]:
    import asyncio

    from rapport.retrieval.files.document import FileName, fit_on_one_line

    data = await asyncio.to_thread(_content, file.path, reader.limits.max_bytes)
    document = await reader.read(file.path.name, data)
    task = bar.add_task(f"  {FileName.of(file.path.name).shown}", total=None)
    folder = "".join(f"{fit_on_one_line(part)}/" for part in file.name.split("/")[:-1])
    try:
        added = await library.add(
            user,
            document.text,
            file_title=document.title,
            file_name=f"{folder}{FileName.of(file.path.name).stem}.{document.format_name}",
            settings=note_settings,
            on_progress=lambda completed, total: bar.update(task, completed=completed, total=total),
        )
    finally:
        bar.remove_task(task)
    return ("unchanged" if added.unchanged else "added" if added.is_new else "replaced"), added.note


def _content(path: Path, max_bytes: int) -> bytes:
    """Read a file; refuse one that is too large, and anything that is no file."""
    from rapport.domain.errors import InvalidInput, TooLarge

    size = path.stat().st_size
    if not path.is_file():
        raise InvalidInput("This is neither a file nor a folder.")
    if size > max_bytes:
        raise TooLarge(
            f"It has {size:,} bytes; at most {max_bytes:,} are accepted. Split it or leave out its pictures."
        )
    return path.read_bytes()


def _files_in(path: Path, extensions: Container[str]) -> list[_File]:
    """Return the file itself, or the readable files of a folder in a fixed order, without hidden ones."""
    if not path.is_dir():
        return [_File(path, path.name)]
    inside = [(file, file.relative_to(path)) for file in path.rglob("*")]
    return [
        _File(file, name.as_posix())
        for file, name in sorted(inside)
        if file.suffix.lower().lstrip(".") in extensions
        and not any(part.startswith(".") for part in name.parts)
        and file.is_file()
    ]


@app.command("list")
def list_(
    collection: Annotated[str | None, typer.Option(help="Only the notes in this collection.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """List your notes and those that others share with you, the latest first."""
    from rich.console import Console
    from rich.table import Column, Table

    from rapport.cli.main import start

    async def job(settings: Settings) -> list[Note]:
        from rapport.cli.database import open_migrated_database
        from rapport.domain.note_scope import NoteScope, check_collection
        from rapport.storage.notes.visible_notes import VisibleNotes

        collections = () if collection is None else (check_collection(collection, field="--collection"),)
        all_notes: list[Note] = []
        async with open_migrated_database(settings) as database, database.statement() as connection:
            while page := await VisibleNotes(connection).list_page(
                NoteScope(user, collections=collections),
                limit=1_000,
                before=(all_notes[-1].updated_at, all_notes[-1].id) if all_notes else None,
            ):
                all_notes += page
        return all_notes

    notes = start(job, level="warning")
    table = Table(
        Column("id", overflow="fold"),  # the whole id, to be copied
        Column("title", overflow="ellipsis", no_wrap=True),
        Column("characters", justify="right", no_wrap=True),
        Column("passages", justify="right", no_wrap=True),
        Column("changed", no_wrap=True),
        box=None,
    )
    every: dict[str, Callable[[Note], str]] = {
        "collections": lambda note: ", ".join(note.collections),
        "shared": lambda note: _describe_sharing(note, user),
    }
    more = {name: describe for name, describe in every.items() if any(map(describe, notes))}
    for name in more:
        table.add_column(name, overflow="fold")
    for note in notes:
        table.add_row(
            note.id,
            escape_line(note.title, limit=4000),
            f"{note.characters:,}",
            f"{note.chunks:,}",
            f"{note.updated_at.astimezone():%Y-%m-%d %H:%M}",
            *(describe(note) for describe in more.values()),
        )
    nothing = f"There are no notes{_of(user)} in {collection!r}." if collection else _why_nothing(user, has_notes=False)
    Console(highlight=False).print(table if notes else nothing)


def _describe_sharing(note: Note, user: str) -> str:
    if note.owner_id != user:
        return f"by {escape_line(note.owner_id, limit=80)}"
    return {"owner": "", "everyone": "with everyone"}.get(note.shared_with, f"with {note.shared_with}")


def _of(user: str) -> str:
    return "" if user == LOCAL_USER else f" of {escape_line(user, limit=4000)}"


@app.command()
def show(note_id: str, user: User = LOCAL_USER) -> None:
    """Print a note's text."""
    from rapport.cli.main import start
    from rapport.retrieval.files.plain import clean_text

    async def job(settings: Settings) -> str:
        from rapport.cli.database import open_migrated_database
        from rapport.domain.note_scope import NoteScope
        from rapport.storage.notes.visible_notes import VisibleNotes

        async with open_migrated_database(settings) as database, database.statement() as connection:
            return (await VisibleNotes(connection).read(NoteScope(user), note_id))[1]

    text = start(job, level="warning")
    typer.echo(clean_text(text) if sys.stdout.isatty() else text)  # without control characters for a terminal


@app.command()
def delete(note_ids: list[str], user: User = LOCAL_USER) -> None:
    """Delete notes. Messages that cite them stay."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> bool:
        from rapport.cli.database import open_migrated_database
        from rapport.domain.errors import NotFound
        from rapport.storage.notes.notes import Notes

        missing = False
        async with open_migrated_database(settings) as database:
            for note_id in note_ids:
                try:
                    async with database.transaction() as connection:
                        await Notes(connection).delete(user, note_id)
                    typer.echo(f"Deleted {note_id}.")
                except NotFound as error:
                    missing = True
                    typer.secho(str(error), fg="red", err=True)
        return not missing

    if not start(job, level="warning"):
        raise typer.Exit(1)


@app.command()
def search(question: str, user: User = LOCAL_USER, limit: Annotated[int, typer.Option(min=1, max=20)] = 5) -> None:
    """Show the passages that match a question, and whether a strict agent would answer it."""
    from rich.console import Console
    from rich.padding import Padding

    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rapport.cli.note_library import open_library
        from rapport.domain.note_scope import NoteScope
        from rapport.retrieval.relevance import TOP
        from rapport.retrieval.standalone_question import plain
        from rapport.storage.notes.visible_notes import VisibleNotes

        console, scope = Console(highlight=False), NoteScope(user)
        async with open_library(settings) as (library, retriever):
            async with library.database.statement() as connection:
                counts = await VisibleNotes(connection).get_counts(user, retriever.embedder.name)
                has_notes = bool(await VisibleNotes(connection).list_page(scope, limit=1))
            retrieval = await retriever.find(scope, plain(question), note_counts=counts, limit=max(limit, TOP))
        for passage in retrieval.passages[:limit]:
            location = " > ".join(name for name in (passage.title, passage.heading) if name)
            console.print(
                f"[bold]{passage.note_id}[/bold]  {passage.similarity:.3f}  [dim]{escape_line(location, limit=4000)}[/dim]",
                soft_wrap=True,
            )
            console.print(Padding(escape_line(passage.text, limit=4000), (0, 0, 0, 2)))
        if not counts.total:
            console.print(_why_nothing(user, has_notes=has_notes))
        elif not retrieval.passages:
            console.print("There is nothing to look for in this question.")
        else:
            threshold = retriever.threshold(counts)
            relevance = retriever.compute_relevance(retrieval)
            verdict = "enough" if relevance >= threshold else "not enough"
            corrected = "" if relevance == retrieval.best else f", with the question's words {relevance:.3f}"
            console.print(
                f"The best similarity is {retrieval.best:.3f}{corrected}, the threshold {threshold:.3f}: {verdict} for a strict"
                " agent to answer.",
                soft_wrap=True,
            )

    start(job, level="warning")


def _why_nothing(user: str, *, has_notes: bool) -> str:
    if has_notes:
        return f"No note{_of(user)} is indexed by the embedder in use: `rapport reindex`"
    return f"There are no notes{_of(user)} yet: `rapport notes add FILES…`"

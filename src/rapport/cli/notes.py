"""`rapport notes`: what answers may cite, from the command line."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

    from rapport.domain.notes import Note
    from rapport.knowledge.library import Library

app = typer.Typer(help="Notes: add, list, show, search, delete.", no_args_is_help=True)

User = Annotated[str, typer.Option(help="Whose notes; `local` is the user of a server without keys.")]


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Files (txt, md, html, pdf, docx) or folders of such files.")],
    user: User = LOCAL_USER,
) -> None:
    """Add files as notes. A file that was added before and has changed replaces its note; an unchanged one is skipped."""
    from rapport.cli.main import start

    if not start(lambda settings: _add(settings, files, user), level="warning"):
        raise typer.Exit(1)


async def _add(settings: Settings, files: list[Path], user: str) -> bool:
    """Add each file; one that can't be read is said so, and the others go on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from rapport.cli.library import open_library
    from rapport.domain.errors import RapportError
    from rapport.knowledge.files.document import EXTENSIONS

    wanted = [file for path in files for file in _files_in(path, EXTENSIONS)]
    console = Console(highlight=False)
    done = {"added": 0, "replaced": 0, "unchanged": 0, "failed": 0}
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    async with open_library(settings) as (library, _):
        with bar:
            files_done = bar.add_task("files", total=len(wanted))
            for file in wanted:
                try:
                    outcome, note = await _add_one(library, file, user, bar)
                except (RapportError, OSError) as error:
                    done["failed"] += 1
                    console.print(f"[red]✗[/red] {_shown(file)}: {_shown(error)}", soft_wrap=True)
                else:
                    done[outcome] += 1
                    console.print(
                        f"[green]✓[/green] {_shown(file)}: {outcome} as [bold]{note.id}[/bold] ({note.chunks} passages)"
                    )
                bar.advance(files_done)
    told = ", ".join(f"{count} {what}" for what, count in done.items() if count)
    console.print(told.capitalize() + "." if told else "There is no file to add (txt, md, html, pdf, docx).")
    return not done["failed"] and bool(told)


async def _add_one(library: Library, file: Path, user: str, bar: Progress) -> tuple[str, Note]:
    import asyncio

    from rapport.knowledge.files.document import FileName
    from rapport.knowledge.files.reader import FileReader

    document = await FileReader().read(file.name, await asyncio.to_thread(file.read_bytes))
    task = bar.add_task(f"  {FileName.of(file.name).shown}", total=None)
    try:
        added = await library.add(
            user,
            document.text,
            title=document.title,
            file_name=f"{FileName.of(file.name).stem}.{document.kind}",
            on_progress=lambda at, total: bar.update(task, completed=at, total=total),
        )
    finally:
        bar.remove_task(task)
    return ("unchanged" if added.unchanged else "added" if added.is_new else "replaced"), added.note


def _files_in(path: Path, extensions: Container[str]) -> list[Path]:
    """The file itself, or what can be read of a folder, in a fixed order."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.suffix.lower().lstrip(".") in extensions)


def _shown(value: object) -> str:
    from rich.markup import escape

    return escape(str(value))


@app.command("list")
def list_(user: User = LOCAL_USER) -> None:
    """Your notes, the latest first."""
    from rich.console import Console
    from rich.table import Table

    from rapport.cli.main import start

    async def job(settings: Settings) -> list[Note]:
        from rapport.cli.database import migrated_database
        from rapport.storage.notes import Notes

        async with migrated_database(settings) as database, database.statement() as connection:
            return await Notes(connection).page(user, limit=10_000)

    notes = start(job, level="warning")
    table = Table("id", "title", "characters", "passages", "changed", box=None)
    for note in notes:
        table.add_row(
            note.id, _shown(note.title), f"{note.characters:,}", str(note.chunks), f"{note.updated_at:%Y-%m-%d %H:%M}"
        )
    Console(highlight=False).print(table if notes else "There are no notes yet: `rapport notes add FILES…`")


@app.command()
def show(note_id: str, user: User = LOCAL_USER) -> None:
    """A note's text."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> str:
        from rapport.cli.database import migrated_database
        from rapport.storage.notes import Notes

        async with migrated_database(settings) as database, database.statement() as connection:
            return (await Notes(connection).read(user, note_id))[1]

    typer.echo(start(job, level="warning"))


@app.command()
def delete(note_ids: list[str], user: User = LOCAL_USER) -> None:
    """Delete notes. What was said with their help stays said."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rapport.cli.database import migrated_database
        from rapport.storage.notes import Notes

        async with migrated_database(settings) as database:
            for note_id in note_ids:
                async with database.transaction() as connection:
                    await Notes(connection).delete(user, note_id)
                typer.echo(f"Deleted {note_id}.")

    start(job, level="warning")


@app.command()
def search(question: str, user: User = LOCAL_USER, limit: Annotated[int, typer.Option(min=1, max=20)] = 5) -> None:
    """What the notes say to a question, and whether a strict agent would answer it."""
    from rich.console import Console

    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rapport.cli.library import open_library
        from rapport.knowledge.questions import plain
        from rapport.storage.notes import Notes

        console = Console(highlight=False)
        async with open_library(settings) as (library, retriever):
            async with library.database.statement() as connection:
                shelf = await Notes(connection).shelf(user, retriever.embedder.name)
            found = await retriever.find(user, plain(question), shelf=shelf, limit=limit)
        for passage in found.passages:
            console.print(
                f"[bold]{passage.note_id}[/bold]  {passage.similarity:.3f}  [dim]{_shown(passage.heading)}[/dim]"
            )
            console.print(f"  {_shown(' '.join(passage.text.split()))}")
        threshold = retriever.threshold(shelf)
        verdict = "answered" if found.passages and found.best >= threshold else "refused by a strict agent"
        console.print(f"best similarity {found.best:.3f}, threshold {threshold:.3f}: {verdict}")

    start(job, level="warning")

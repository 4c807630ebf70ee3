"""`rapport reindex`: move every note and memory to the embedder that is in use now."""

from __future__ import annotations

import contextlib

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rapport.cli.library import open_library
from rapport.domain.errors import Conflict, NotFound
from rapport.knowledge.library import Library
from rapport.memory.book import MemoryBook
from rapport.settings import Settings
from rapport.storage.memories import Memories
from rapport.storage.notes import Notes


async def reindex(settings: Settings) -> tuple[int, int]:
    """Embed again what another embedder has indexed: how many notes and memories. Interrupted, it goes on where it was."""
    async with open_library(settings) as (library, _):
        console = Console()
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        with bar:
            notes = await _notes(library, bar)
            return notes, await _memories(MemoryBook(library.database, library.embedder), bar)


async def _notes(library: Library, bar: Progress) -> int:
    done = 0
    async with library.database.statement() as connection:
        _, outdated = await Notes(connection).totals(library.embedder.name)
    task = bar.add_task("notes", total=outdated)
    while True:
        async with library.database.statement() as connection:
            some = await Notes(connection).outdated(library.embedder.name, limit=50)
        if not some:
            return done
        for owner_id, note_id in some:
            # Deleted or replaced meanwhile; what is still to be done then comes again with the next batch.
            with contextlib.suppress(NotFound, Conflict):
                await library.reindex(owner_id, note_id)
                done += 1
            bar.advance(task)


async def _memories(book: MemoryBook, bar: Progress) -> int:
    done = 0
    async with book.database.statement() as connection:
        _, outdated = await Memories(connection).totals(book.embedder.name)
    task = bar.add_task("memories", total=outdated)
    while some := await book.reindex_some():
        done += some
        bar.advance(task, some)
    return done

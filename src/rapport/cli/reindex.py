"""`rapport reindex`: embed all notes, memories and group messages with the current embedder."""

from __future__ import annotations

import contextlib

import typer
from rich.console import Console
from rich.progress import Progress

from rapport.cli.note_library import open_library
from rapport.cli.output import make_progress
from rapport.domain.errors import Conflict, NotFound
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.memory.memory_store import MemoryStore
from rapport.retrieval.library import Library
from rapport.settings import Settings
from rapport.storage.memories import Memories
from rapport.storage.messages.message_vectors import MessageVectors
from rapport.storage.notes.notes import Notes


async def reindex(settings: Settings) -> tuple[int, int]:
    """Embed all rows of other embedders again; return the number of notes and memories. It resumes after an interruption.

    Group messages are embedded too, and their number is printed here; a running server does the same in the background.
    """
    async with open_library(settings) as (library, _):
        console = Console()
        bar = make_progress(console)
        with bar:
            notes = await _notes(library, bar)
            memories = await _memories(MemoryStore(library.database, library.embedder), bar)
            messages = await _messages(MessageEmbedding(library.database, library.embedder), bar)
        if messages:
            typer.echo(f"Indexed {messages:,} message{'' if messages == 1 else 's'} of groups anew.")
        return notes, memories


async def _notes(library: Library, bar: Progress) -> int:
    count = 0
    async with library.database.statement() as connection:
        _, outdated = await Notes(connection).count_totals(library.embedder.name)
    task = bar.add_task("notes", total=outdated)
    while True:
        async with library.database.statement() as connection:
            batch = await Notes(connection).list_outdated(library.embedder.name, limit=50)
        if not batch:
            return count
        for owner_id, note_id in batch:
            # Deleted or replaced concurrently; if it is still outdated, the next batch has it again.
            with contextlib.suppress(NotFound, Conflict):
                await library.reindex(owner_id, note_id)
                count += 1
            bar.advance(task)


async def _memories(store: MemoryStore, bar: Progress) -> int:
    count = 0
    async with store.database.statement() as connection:
        _, outdated = await Memories(connection).count_totals(store.embedder.name)
    task = bar.add_task("memories", total=outdated)
    while embedded := await store.reindex_batch():
        count += embedded
        bar.advance(task, embedded)
    return count


async def _messages(index: MessageEmbedding, bar: Progress) -> int:
    """Embed the messages without vectors, then delete the vectors of other embedders."""
    count = 0
    async with index.database.statement() as connection:
        _, outdated = await MessageVectors(connection).count_totals(index.embedder.name)
    task = bar.add_task("messages", total=outdated or None)
    after = ""
    while groups := await index.list_pending_groups(after=after):
        for conversation_id in groups:
            has_more = True
            while has_more:
                embedded, has_more = await index.embed_next(conversation_id)
                count += embedded
                bar.advance(task, embedded)
        after = groups[-1]
    async with index.database.statement() as connection:
        while await MessageVectors(connection).delete_other_embedders(index.embedder.name, limit=5_000):
            pass
    return count

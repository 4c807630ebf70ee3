"""`rapport reindex`: move every note to the embedder that is in use now."""

from __future__ import annotations

import contextlib

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rapport.cli.library import open_library
from rapport.domain.errors import Conflict, NotFound
from rapport.settings import Settings
from rapport.storage.notes import Notes


async def reindex(settings: Settings) -> int:
    """Embed again what another embedder has indexed; returns how many notes. Interrupted, it goes on where it was."""
    done = 0
    async with open_library(settings) as (library, _):
        async with library.database.statement() as connection:
            _, outdated = await Notes(connection).totals(library.embedder.name)
        console = Console()
        bar = Progress(
            TextColumn("notes"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        with bar:
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

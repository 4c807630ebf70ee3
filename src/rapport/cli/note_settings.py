"""`rapport notes collections|collect|share`: put notes into collections and share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rapport.cli.notes import AUDIENCE, User, app
from rapport.cli.output import escape_line
from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.storage.notes.visible_notes import CollectionCount


@app.command()
def collections(user: User = LOCAL_USER) -> None:
    """List the collections of the notes that you may see."""
    from rich.console import Console
    from rich.table import Column, Table

    from rapport.cli.main import start

    async def job(settings: Settings) -> list[CollectionCount]:
        from rapport.cli.database import open_migrated_database
        from rapport.domain.note_scope import NoteScope
        from rapport.storage.notes.visible_notes import VisibleNotes

        async with open_migrated_database(settings) as database, database.statement() as connection:
            return await VisibleNotes(connection).count_collections(NoteScope(user))

    rows = start(job, level="warning")
    table = Table(
        Column("collection", overflow="fold"),
        Column("notes", justify="right", no_wrap=True),
        Column("own", justify="right", no_wrap=True),
        box=None,
    )
    for row in rows:
        table.add_row(row.name, f"{row.notes:,}", f"{row.own:,}")
    Console(highlight=False).print(
        table if rows else "No note is in a collection: `rapport notes collect ID… --collection NAME`"
    )


@app.command()
def collect(
    note_ids: list[str],
    collection: Annotated[
        list[str] | None,
        typer.Option(help="A collection that they shall belong to; may be given several times. Without one: to none."),
    ] = None,
    user: User = LOCAL_USER,
) -> None:
    """Put notes into these collections, and out of all others."""
    _change(note_ids, user, collections=collection or [])


@app.command()
def share(
    note_ids: list[str],
    with_: Annotated[str, typer.Option("--with", help=AUDIENCE)],
    user: User = LOCAL_USER,
) -> None:
    """Share notes, or stop sharing them (`--with owner`)."""
    _change(note_ids, user, shared_with=with_)


def _change(
    note_ids: list[str], user: str, *, collections: list[str] | None = None, shared_with: str | None = None
) -> None:
    """Change the settings of notes, each for itself; exit with 1 if one is missing."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> bool:
        from rapport.cli.database import open_migrated_database
        from rapport.domain.errors import NotFound
        from rapport.domain.note_scope import check_settings
        from rapport.storage.notes.notes import Notes

        note_settings = check_settings(collections, shared_with, by_operator=True)
        missing = False
        async with open_migrated_database(settings) as database:
            for note_id in note_ids:
                try:
                    async with database.transaction() as connection:
                        note = await Notes(connection).change_settings(user, note_id, note_settings)
                except NotFound as error:
                    missing = True
                    typer.secho(str(error), fg="red", err=True)
                else:
                    inside = ", ".join(note.collections) or "no collection"
                    typer.echo(f"{escape_line(note.id, limit=80)}: in {inside}; shared with {note.shared_with}.")
        return not missing

    if not start(job, level="warning"):
        raise typer.Exit(1)

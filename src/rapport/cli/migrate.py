"""`rapport migrate`: migrate the schema up or down."""

from __future__ import annotations

import typer

from rapport.app import open_database
from rapport.domain.errors import InvalidInput
from rapport.settings import Settings
from rapport.storage.database import Database
from rapport.storage.migrate import list_migrations, load_applied_versions, schema_lock
from rapport.storage.migrate import migrate as run_migrations


async def migrate(settings: Settings, *, to: int | None, yes: bool) -> None:
    """Migrate to a version and print the steps. Without `yes`, ask before a way down, which deletes data."""
    newest = list_migrations()[-1].version
    if to is not None and not 0 <= to <= newest:
        raise InvalidInput(f"there is no version {to}; versions go from 0 (empty) to {newest}.")
    async with open_database(settings) as database, schema_lock(database):
        if to is not None and not yes:
            await _confirm_way_down(database, to)
        steps = await run_migrations(database, to=to)
    for step in steps:
        typer.echo(step)
    if not steps:
        typer.echo("Nothing to do: the schema is up to date.")


async def _confirm_way_down(database: Database, to: int) -> None:
    async with database.statement() as connection:
        current = max(await load_applied_versions(connection), default=0)
    if to < current:
        lost = "everything" if to == 0 else f"what the migrations after {to} have created"
        typer.confirm(f"This deletes {lost} from the database (version {current}). Go on?", abort=True)

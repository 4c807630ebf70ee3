"""`rapport migrate`: migrate the schema up or down."""

from __future__ import annotations

import typer

from rapport.app import open_database
from rapport.domain.errors import InvalidInput
from rapport.settings import Settings
from rapport.storage.migrate import list_migrations, schema_lock
from rapport.storage.migrate import migrate as run_migrations


async def migrate(settings: Settings, *, to: int | None) -> None:
    """Migrate to a version and print the steps."""
    newest = list_migrations()[-1].version
    if to is not None and not 0 <= to <= newest:
        raise InvalidInput(f"there is no version {to}; versions go from 0 (empty) to {newest}.")
    async with open_database(settings) as database, schema_lock(database):
        steps = await run_migrations(database, to=to)
    for step in steps:
        typer.echo(step)
    if not steps:
        typer.echo("Nothing to do: the schema is up to date.")

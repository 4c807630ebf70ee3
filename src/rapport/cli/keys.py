"""`rapport keys`: manage the keys for the API."""

from __future__ import annotations

from typing import Annotated

import typer

from rapport.cli.owner_option import owner_option
from rapport.domain.caller import Role
from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

app = typer.Typer(help="API keys: create, list, revoke.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="A name for the key, such as its purpose.")],
    user: Annotated[
        str, owner_option("The user that the key belongs to; `local` is the user of a server without keys.")
    ] = LOCAL_USER,
    role: Annotated[
        Role | None,
        typer.Option(
            help="`operator` also shows metrics and problems of the model; the default is `operator` for the user"
            " `local`, and `user` for others.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create a key. Its secret is shown only once, now."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rapport.cli.database import open_migrated_database
        from rapport.storage.access.api_keys import ApiKeys

        async with open_migrated_database(settings) as database, database.statement() as connection:
            row, secret = await ApiKeys(connection).create(user, name=name, role=role)
        typer.echo(
            f"Key {row.id} for {row.role} {row.owner_id!r} ({row.name}). Keep it: it can't be shown again.",
            err=True,
        )
        typer.echo(secret)

    start(job, level="warning")


@app.command("list")
def list_() -> None:
    """List all keys, without their secrets."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rich.console import Console
        from rich.table import Table

        from rapport.cli.database import open_migrated_database
        from rapport.storage.access.api_keys import ApiKeys

        async with open_migrated_database(settings) as database, database.statement() as connection:
            rows = await ApiKeys(connection).list_all()
        if not rows:
            typer.echo("There are no keys: on loopback everybody on this machine is the user `local`, an operator.")
            return
        table = Table("id", "user", "role", "name", "created", "revoked")
        for row in rows:
            revoked = f"{row.revoked_at:%Y-%m-%d %H:%M}" if row.revoked_at else ""
            table.add_row(row.id, row.owner_id, row.role, row.name, f"{row.created_at:%Y-%m-%d %H:%M}", revoked)
        Console().print(table)

    start(job, level="warning")


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The id that `list` shows.")]) -> None:
    """Revoke a key at once."""
    from rapport.cli.main import fail, start

    async def job(settings: Settings) -> bool:
        from rapport.cli.database import open_migrated_database
        from rapport.storage.access.api_keys import ApiKeys

        async with open_migrated_database(settings) as database, database.statement() as connection:
            return await ApiKeys(connection).revoke(key_id)

    if not start(job, level="warning"):
        fail(f"there is no active key {key_id!r}; `rapport keys list` shows them.")
    typer.echo("Revoked.")

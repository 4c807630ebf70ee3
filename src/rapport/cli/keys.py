"""`rapport keys`: manage the keys for the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rapport.cli.owner_option import owner_option
from rapport.domain.caller import Role
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.storage.access.api_keys import ApiKey

ID_CHARACTERS: Final = 26
MIN_TABLE_CHARACTERS: Final = 80
MAX_NAMED_KEYS: Final = 5
"""The number of keys that the error about an ambiguous name lists."""

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
        from rich.table import Column, Table

        from rapport.cli.database import open_migrated_database
        from rapport.cli.output import escape_line
        from rapport.storage.access.api_keys import ApiKeys

        async with open_migrated_database(settings) as database, database.statement() as connection:
            rows = await ApiKeys(connection).list_all()
        if not rows:
            typer.echo("There are no keys: on loopback everybody on this machine is the user `local`, an operator.")
            return
        # Ids are copied from here, so they are never cut.
        table = Table(Column("id", no_wrap=True, min_width=ID_CHARACTERS), "user", "role", "name", "created", "revoked")
        for row in rows:
            revoked = f"{row.revoked_at:%Y-%m-%d %H:%M}" if row.revoked_at else ""
            owner, name = escape_line(row.owner_id), escape_line(row.name)
            table.add_row(row.id, owner, row.role, name, f"{row.created_at:%Y-%m-%d %H:%M}", revoked)
        console = Console()
        console.print(table, width=max(console.width, MIN_TABLE_CHARACTERS), crop=False, no_wrap=True)

    start(job, level="warning")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id as `list` shows it, the beginning of the id, or its name.")],
) -> None:
    """Revoke a key at once."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> ApiKey:
        from rapport.cli.database import open_migrated_database
        from rapport.storage.access.api_keys import ApiKeys

        async with open_migrated_database(settings) as database, database.statement() as connection:
            keys = ApiKeys(connection)
            found = _choose_active(await keys.list_all(), key)
            await keys.revoke(found.id)
            return found

    revoked = start(job, level="warning")
    typer.echo(f"Revoked {revoked.id}, {_describe(revoked)}.")


def _choose_active(rows: Sequence[ApiKey], text: str) -> ApiKey:
    """Return the active key with this id, beginning of an id, or name. Raise InvalidInput if there is none, or several."""
    active = [row for row in rows if row.revoked_at is None]
    matching = [row for row in active if row.id == text] or [
        row for row in active if text and (row.name == text or row.id.startswith(text.upper()))
    ]
    if not matching:
        raise InvalidInput(f"there is no active key {text!r}; `rapport keys list` shows them.")
    if len(matching) > 1:
        several = ", ".join(f"{row.id} ({_describe(row)})" for row in matching[:MAX_NAMED_KEYS])
        rest = f" and {len(matching) - MAX_NAMED_KEYS} more" if len(matching) > MAX_NAMED_KEYS else ""
        raise InvalidInput(f"{text!r} stands for several keys: give the id of one. They are {several}{rest}.")
    return matching[0]


def _describe(key: ApiKey) -> str:
    return f"{key.name!r} of {key.owner_id!r}"

"""Define the option `--user` of commands that work on one owner's data."""

from __future__ import annotations

from typing import Any

import typer

from rapport.domain.caller import check_owner_id
from rapport.domain.errors import InvalidInput


def owner_option(help_text: str, **settings: Any) -> Any:
    """Return an option that takes the name of a user and refuses one that no user can have, such as `*`."""
    return typer.Option(help=help_text, callback=_check, **settings)


def _check(user: str | None) -> str | None:
    try:
        return None if user is None else check_owner_id(user)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None

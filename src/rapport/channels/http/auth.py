"""Who is calling: the owner of the key, or the local user on a loopback server without keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request

from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import Unauthorized
from rapport.storage.database import Database
from rapport.storage.keys import Keys

_LOOK_AGAIN = 2.0
"""Seconds for which "there are no keys" is believed."""

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def authenticator(database: Database, *, loopback: bool) -> Callable[[Request], Coroutine[Any, Any, str]]:
    """A FastAPI dependency that returns the caller's owner id or raises Unauthorized."""
    keyless = _Keyless(database)

    async def authenticate(request: Request) -> str:
        if loopback and await keyless.is_open():
            _refuse_foreign_pages(request)
            return LOCAL_USER
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthorized("Send a key: `Authorization: Bearer <key>`. `rapport keys create NAME` makes one.")
        async with database.statement() as connection:
            owner = await Keys(connection).owner_of(secret.strip())
        if owner is None:
            raise Unauthorized("This key is not valid (any more).")
        return owner

    return authenticate


class _Keyless:
    """Whether the server has no keys, remembered for a moment so that it costs nothing on every request."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answer = False
        self._until = 0.0

    async def is_open(self) -> bool:
        if time.monotonic() >= self._until:
            async with self._database.statement() as connection:
                self._answer = not await Keys(connection).any_ever()
            self._until = time.monotonic() + _LOOK_AGAIN
        return self._answer


def _refuse_foreign_pages(request: Request) -> None:
    """Without keys, a web page from elsewhere must not talk to this server through its visitor's browser.

    Its requests carry its own name as Origin, or (with a name that was made to point here) as Host.
    """
    if _host(request.headers.get("host", "")) not in _LOCAL_NAMES:
        raise Unauthorized(
            "Without keys this server answers only to localhost. `rapport keys create NAME` makes a key."
        )
    origin = request.headers.get("origin")
    if origin is not None and _host(origin.partition("://")[2]) not in _LOCAL_NAMES:
        raise Unauthorized("Without keys this server does not answer to pages of other sites.")


def _host(netloc: str) -> str:
    try:
        return (urlsplit(f"//{netloc}").hostname or "").lower()
    except ValueError:  # not a host at all
        return ""

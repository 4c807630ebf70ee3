"""Access: API keys and the sessions of browsers that signed in with one."""

from __future__ import annotations

from dataclasses import dataclass

from rapport.domain.caller import Caller
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.access.sessions import SESSION_LIFETIME as SESSION_LIFETIME
from rapport.storage.access.sessions import Sessions
from rapport.storage.database import Database

__all__ = ["SESSION_LIFETIME", "Access"]


@dataclass(frozen=True, slots=True)
class Access:
    """Finds the caller with a key or a session, and opens and closes sessions."""

    database: Database

    async def find_caller_by_key(self, secret: str) -> Caller | None:
        """Return the owner and role of an active key; None if it is not one."""
        async with self.database.statement() as connection:
            return await ApiKeys(connection).find_caller(secret)

    async def find_caller_by_session(self, token: str) -> Caller | None:
        """Return the owner and role of a valid session; None if it is not one."""
        async with self.database.statement() as connection:
            return await Sessions(connection).find_caller(token)

    async def has_keys(self) -> bool:
        """Return True if a key was ever created, revoked ones included."""
        async with self.database.statement() as connection:
            return await ApiKeys(connection).has_any()

    async def open_session(self, key: str) -> str | None:
        """Return a session token for an active key, valid for SESSION_LIFETIME; None if the key is not active."""
        async with self.database.statement() as connection:
            return await Sessions(connection).open(key)

    async def close_session(self, token: str) -> None:
        """End a session and the streams that were opened with it."""
        async with self.database.statement() as connection:
            await Sessions(connection).close(token)

"""API keys: shown once, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.conversation import LOCAL_USER
from rapport.domain.ids import new_id
from rapport.storage.database import Connection
from rapport.storage.work.events import NOTIFY_CHANNEL

PREFIX = "rapport_"
MAX_HINT_CHARACTERS = 500
"""Of an owner's name, in a hint: Postgres takes less than 8,000 bytes."""

# With the row, and so never without it: every process hears of it as soon as it is committed. It is only a hint; streams ask
# again after a while anyway.
_REVOKE = f"""
WITH revoked AS (
    UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = %s AND revoked_at IS NULL RETURNING owner_id
)
SELECT pg_notify('{NOTIFY_CHANNEL}', 'access ' || left(owner_id, {MAX_HINT_CHARACTERS})) FROM revoked
"""

# Who came without a key is the local user, whoever the first key is for.
_CREATE = f"""
WITH made AS (
    INSERT INTO api_keys (id, owner_id, name, hash) VALUES (%s, %s, %s, %s)
    RETURNING id, owner_id, name, created_at, revoked_at
)
SELECT made.*, pg_notify('{NOTIFY_CHANNEL}', 'access {LOCAL_USER}') FROM made
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    owner_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ApiKeys:
    connection: Connection

    async def create(self, owner_id: str, *, name: str) -> tuple[ApiKey, str]:
        """A new key and its secret, which can't be had a second time."""
        secret = PREFIX + secrets.token_urlsafe(32)
        cursor = await self.connection.execute(_CREATE.encode(), (new_id(), owner_id, name, hash_secret(secret)))
        row = await cursor.fetchone()
        assert row is not None
        return ApiKey(*row[:5]), secret

    async def list_all(self) -> list[ApiKey]:
        """All keys, for the operator."""
        cursor = await self.connection.execute(
            "SELECT id, owner_id, name, created_at, revoked_at FROM api_keys ORDER BY created_at, id"
        )
        return [ApiKey(*row) for row in await cursor.fetchall()]

    async def revoke(self, key_id: str) -> bool:
        """End a key, and what was opened with it; False when there is no such active key."""
        cursor = await self.connection.execute(_REVOKE.encode(), (key_id,))
        return cursor.rowcount == 1

    async def find_owner(self, secret: str) -> str | None:
        """Whose key this is, if it is an active one."""
        # Looked up by the hash of a 256-bit secret: the index comparison tells an attacker nothing useful by its time.
        cursor = await self.connection.execute(
            "SELECT owner_id FROM api_keys WHERE hash = %s AND revoked_at IS NULL", (hash_secret(secret),)
        )
        row = await cursor.fetchone()
        return row[0] if row else None

    async def has_any(self) -> bool:
        """Whether a key was ever made: revoking the last one does not open the door again."""
        cursor = await self.connection.execute("SELECT EXISTS (SELECT FROM api_keys)")
        row = await cursor.fetchone()
        return bool(row and row[0])

    async def has_active(self) -> bool:
        cursor = await self.connection.execute("SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL)")
        row = await cursor.fetchone()
        return bool(row and row[0])


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()

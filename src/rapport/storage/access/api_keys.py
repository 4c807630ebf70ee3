"""Store API keys as hashes. A key is shown once, when it is created."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.caller import Caller, Role, choose_default_role
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.ids import new_id
from rapport.storage.database import Connection
from rapport.storage.work.events import NOTIFY_CHANNEL

PREFIX = "rapport_"
MAX_HINT_CHARACTERS = 500
"""The part of an owner's name in a notification, whose payload Postgres limits to 8,000 bytes."""

# The notification is part of the statement, so every process gets it at the commit. It is only a hint: streams also check
# their access periodically.
_REVOKE = f"""
WITH revoked AS (
    UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = %s AND revoked_at IS NULL RETURNING owner_id
)
SELECT pg_notify('{NOTIFY_CHANNEL}', 'access ' || left(owner_id, {MAX_HINT_CHARACTERS})) FROM revoked
"""

# Clients without a key act as the local user. The first key ends their access, even if it is another user's key.
_CREATE = f"""
WITH made AS (
    INSERT INTO api_keys (id, owner_id, role, name, hash) VALUES (%s, %s, %s, %s, %s)
    RETURNING id, owner_id, role, name, created_at, revoked_at
)
SELECT made.*, pg_notify('{NOTIFY_CHANNEL}', 'access {LOCAL_USER}') FROM made
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    owner_id: str
    role: Role
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ApiKeys:
    connection: Connection

    async def create(self, owner_id: str, *, name: str, role: Role | None = None) -> tuple[ApiKey, str]:
        """Create a key, in the owner's default role unless one is named; return it and its secret, which is stored nowhere."""
        secret = PREFIX + secrets.token_urlsafe(32)
        values = (new_id(), owner_id, role or choose_default_role(owner_id), name, hash_secret(secret))
        cursor = await self.connection.execute(_CREATE.encode(), values)
        row = await cursor.fetchone()
        assert row is not None
        return _to_api_key(row), secret

    async def list_all(self) -> list[ApiKey]:
        """Return all keys, for the operator."""
        cursor = await self.connection.execute(
            "SELECT id, owner_id, role, name, created_at, revoked_at FROM api_keys ORDER BY created_at, id"
        )
        return [_to_api_key(row) for row in await cursor.fetchall()]

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key, which also ends its sessions; return False if there is no such active key."""
        cursor = await self.connection.execute(_REVOKE.encode(), (key_id,))
        return cursor.rowcount == 1

    async def find_caller(self, secret: str) -> Caller | None:
        """Return the owner and role of an active key; None if it is not one."""
        # The lookup is by the hash of a 256-bit secret: its timing tells an attacker nothing useful.
        cursor = await self.connection.execute(
            "SELECT owner_id, role FROM api_keys WHERE hash = %s AND revoked_at IS NULL", (hash_secret(secret),)
        )
        row = await cursor.fetchone()
        return Caller(row.owner_id, row.role) if row else None

    async def find_role(self, owner_id: str) -> Role:
        """Return `operator` for the local user and for an owner with an active key of an operator, `user` for others."""
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM api_keys WHERE owner_id = %s AND role = 'operator' AND revoked_at IS NULL) AS has_key",
            (owner_id,),
        )
        row = await cursor.fetchone()
        return "operator" if row is not None and row.has_key else choose_default_role(owner_id)

    async def has_any(self) -> bool:
        """Return True if a key was ever created: revoking the last one does not allow access without a key again."""
        cursor = await self.connection.execute("SELECT EXISTS (SELECT FROM api_keys) AS has_any")
        row = await cursor.fetchone()
        return bool(row and row.has_any)

    async def has_active(self) -> bool:
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL) AS has_active"
        )
        row = await cursor.fetchone()
        return bool(row and row.has_active)


def _to_api_key(row: Any) -> ApiKey:
    return ApiKey(row.id, row.owner_id, row.role, row.name, row.created_at, row.revoked_at)


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()

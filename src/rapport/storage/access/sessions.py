"""Store browser sessions, each opened with a key. Only a hash of the token is stored, and no session outlives its key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from rapport.domain.caller import Caller
from rapport.storage.access.api_keys import MAX_HINT_CHARACTERS, hash_secret
from rapport.storage.database import Connection
from rapport.storage.work.events import NOTIFY_CHANNEL

SESSION_LIFETIME = timedelta(days=30)
MAX_SESSIONS_PER_KEY = 50
"""Sessions of one key; one more ends the oldest."""

# One statement reads the key once: a key that is revoked meanwhile opens no lasting session. It also deletes all expired
# sessions and those over the limit, so that the table stays small.
_OPEN = f"""
WITH key AS (
    SELECT id, owner_id FROM api_keys WHERE hash = %(key)s AND revoked_at IS NULL
), old AS (
    DELETE FROM sessions WHERE expires_at <= clock_timestamp() OR hash IN (
        SELECT hash FROM sessions WHERE key_id = (SELECT id FROM key)
        ORDER BY created_at DESC, hash OFFSET {MAX_SESSIONS_PER_KEY - 1})
)
INSERT INTO sessions (hash, key_id, owner_id, expires_at)
SELECT %(hash)s, id, owner_id, clock_timestamp() + %(lifetime)s FROM key RETURNING owner_id
"""

# Two lookups by primary key. The key is read every time: its role is the session's, and revoking it ends its sessions at once.
_CALLER = """
SELECT s.owner_id, k.role FROM sessions s JOIN api_keys k ON k.id = s.key_id
WHERE s.hash = %s AND s.expires_at > clock_timestamp() AND k.revoked_at IS NULL
"""

_CLOSE = f"""
WITH closed AS (DELETE FROM sessions WHERE hash = %s RETURNING owner_id)
SELECT pg_notify('{NOTIFY_CHANNEL}', 'access ' || left(owner_id, {MAX_HINT_CHARACTERS})) FROM closed
"""


@dataclass(frozen=True, slots=True)
class Sessions:
    connection: Connection

    async def open(self, key: str) -> str | None:
        """Open a session for SESSION_LIFETIME and return its token, which is stored nowhere; None if the key is not active."""
        token = secrets.token_urlsafe(32)
        cursor = await self.connection.execute(
            _OPEN.encode(), {"key": hash_secret(key), "hash": hash_secret(token), "lifetime": SESSION_LIFETIME}
        )
        return token if await cursor.fetchone() else None

    async def find_caller(self, token: str) -> Caller | None:
        """Return the session's owner and its key's role; None if it has expired or its key is not active."""
        # The lookup is by a hash, as for keys: its timing tells nothing about a token.
        cursor = await self.connection.execute(_CALLER, (hash_secret(token),))
        row = await cursor.fetchone()
        return Caller(row.owner_id, row.role) if row else None

    async def close(self, token: str) -> None:
        """End a session and the streams that were opened with it. An unknown token is ignored."""
        await self.connection.execute(_CLOSE.encode(), (hash_secret(token),))

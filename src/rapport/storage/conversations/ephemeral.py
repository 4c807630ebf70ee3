"""Find ephemeral conversations, which exist for one answer. A prefix of their ids marks them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rapport.domain.chat_archive import new_id_at
from rapport.domain.ids import EPHEMERAL_PREFIX
from rapport.storage.database import Connection


@dataclass(frozen=True, slots=True)
class EphemeralConversations:
    connection: Connection

    async def list_leftover(self, *, before: datetime, limit: int) -> list[tuple[str, str]]:
        """Return (owner id, conversation id) of the existing ones that were created before a time, oldest first."""
        # The id still sorts by time after its prefix, so the rows are one short range of the primary key.
        cursor = await self.connection.execute(
            "SELECT owner_id, id FROM conversations WHERE id >= %s AND id < %s ORDER BY id LIMIT %s",
            (EPHEMERAL_PREFIX, EPHEMERAL_PREFIX + new_id_at(before)[1:], limit),
        )
        return [(row.owner_id, row.id) for row in await cursor.fetchall()]

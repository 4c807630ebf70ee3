"""Passing conversations: made for one answer and erased with it. Their ids tell them from all others."""

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
        """Those made before a moment that are still there, each as its owner's id and its own; oldest first."""
        # The rest of the id is still the time: what is left behind is one short stretch of the primary key.
        found = await self.connection.execute(
            "SELECT owner_id, id FROM conversations WHERE id >= %s AND id < %s ORDER BY id LIMIT %s",
            (EPHEMERAL_PREFIX, EPHEMERAL_PREFIX + new_id_at(before)[1:], limit),
        )
        return [(owner_id, conversation_id) for owner_id, conversation_id in await found.fetchall()]

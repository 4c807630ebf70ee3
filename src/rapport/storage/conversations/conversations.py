"""Conversations: each belongs to an owner, and only that owner finds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.conversation import API_CHANNEL, Conversation
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.follow_up_requests import Permission
from rapport.domain.ids import is_id, new_id
from rapport.storage.database import Connection

_COLUMNS = "id, owner_id, agent_id, kind, channel, title, created_at, last_at"

# A mute that is over is none, by the clock that the gates go by.
_PERMISSION = "CASE WHEN muted_until > clock_timestamp() THEN muted_until END, autonomy_enabled"


@dataclass(frozen=True, slots=True)
class Conversations:
    connection: Connection

    async def create(
        self,
        owner_id: str,
        *,
        agent_id: str,
        kind: ConversationKind = "direct",
        channel: str = API_CHANNEL,
        title: str | None = None,
        handle: str | None = None,
    ) -> Conversation:
        """A new, empty conversation."""
        cursor = await self.connection.execute(
            f"INSERT INTO conversations (id, owner_id, agent_id, kind, channel, title, handle)"
            f" VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}",
            (new_id(), owner_id, agent_id, kind, channel, title, handle),
        )
        row = await cursor.fetchone()
        assert row is not None
        return _to_conversation(row)

    async def get(self, owner_id: str, conversation_id: str) -> Conversation:
        """The conversation, if it is this owner's."""
        if is_id(conversation_id):
            cursor = await self.connection.execute(
                f"SELECT {_COLUMNS} FROM conversations WHERE id = %s AND owner_id = %s",
                (conversation_id, owner_id),
            )
            if row := await cursor.fetchone():
                return _to_conversation(row)
        raise no_such_conversation(conversation_id)

    async def get_by_prefix(self, owner_id: str, prefix: str) -> Conversation:
        """Return the owner's conversation whose id begins so, in any case. Raise InvalidInput if several do, NotFound if none."""
        if not (prefix.isascii() and prefix.isalnum()):
            raise no_such_conversation(prefix.encode(errors="replace").decode())
        # starts_with: the prefix is text here, not a pattern.
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE owner_id = %s AND starts_with(id, %s) ORDER BY id LIMIT 2",
            (owner_id, prefix.upper()),
        )
        found = await cursor.fetchall()
        if len(found) > 1:
            raise InvalidInput(f"Several conversations begin with {prefix[:64]!r}: give more of the id.")
        if not found:
            raise no_such_conversation(prefix)
        return _to_conversation(found[0])

    async def get_permission(self, owner_id: str, conversation_id: str) -> Permission:
        """What the owner has said about follow-ups in a conversation."""
        return await self._fetch_permission(
            f"SELECT {_PERMISSION} FROM conversations WHERE id = %(id)s AND owner_id = %(owner)s",
            owner_id,
            conversation_id,
        )

    async def mute(self, owner_id: str, conversation_id: str, *, until: datetime | float | None) -> Permission:
        """Let no follow-up through until a moment, or for that many seconds; None: unmute. What waits stays."""
        seconds, moment = (None, until) if isinstance(until, datetime) else (until, None)
        return await self._fetch_permission(
            "UPDATE conversations SET muted_until = coalesce(clock_timestamp() + %(seconds)s * interval '1 second',"
            f" %(moment)s::timestamptz) WHERE id = %(id)s AND owner_id = %(owner)s RETURNING {_PERMISSION}",
            owner_id,
            conversation_id,
            seconds=seconds,
            moment=moment,
        )

    async def set_followups_enabled(self, owner_id: str, conversation_id: str, allowed: bool | None) -> Permission:
        """Turn follow-ups on or off in a conversation; None: as its kind has it."""
        return await self._fetch_permission(
            "UPDATE conversations SET autonomy_enabled = %(allowed)s WHERE id = %(id)s AND owner_id = %(owner)s"
            f" RETURNING {_PERMISSION}",
            owner_id,
            conversation_id,
            allowed=allowed,
        )

    async def _fetch_permission(self, statement: str, owner_id: str, conversation_id: str, **values: Any) -> Permission:
        if is_id(conversation_id):
            cursor = await self.connection.execute(
                statement.encode(), {"id": conversation_id, "owner": owner_id, **values}
            )
            if row := await cursor.fetchone():
                return Permission(*row)
        raise no_such_conversation(conversation_id)

    async def rename(self, conversation_id: str, title: str | None) -> None:
        """It is called so from now on."""
        await self.connection.execute("UPDATE conversations SET title = %s WHERE id = %s", (title, conversation_id))

    async def mark_unreachable(self, conversation_id: str) -> None:
        """Nothing can be sent there any more, until somebody speaks."""
        await self.connection.execute(
            "UPDATE conversations SET unreachable_since = clock_timestamp() WHERE id = %s", (conversation_id,)
        )

    async def mark_reachable(self, conversation_id: str) -> None:
        """It can be sent to again."""
        await self.connection.execute(
            "UPDATE conversations SET unreachable_since = NULL WHERE id = %s", (conversation_id,)
        )

    async def has_groups(self) -> bool:
        """Whether anybody here has a group."""
        found = await self.connection.execute("SELECT EXISTS (SELECT FROM conversations WHERE kind = 'group')")
        row = await found.fetchone()
        return row is not None and row[0]

    async def lock(self, owner_id: str, conversation_id: str) -> None:
        """Until the transaction ends nobody else writes to the conversation: no message comes in, no turn ends."""
        if not is_id(conversation_id):
            raise no_such_conversation(conversation_id)
        cursor = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s AND owner_id = %s FOR UPDATE", (conversation_id, owner_id)
        )
        if await cursor.fetchone() is None:
            raise no_such_conversation(conversation_id)

    async def delete(self, owner_id: str, conversation_id: str) -> None:
        """Erase a conversation with all that belongs to it, LangGraph's working state included. Call it in a transaction."""
        await self.lock(owner_id, conversation_id)
        await self.connection.execute("SET LOCAL statement_timeout = 0")  # a million messages take as long as they take
        # A turn's checkpoints are kept under its event's id.
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            await self.connection.execute(
                f"DELETE FROM {table} WHERE thread_id IN (SELECT id FROM events WHERE conversation_id = %s)".encode(),
                (conversation_id,),
            )
        await self.connection.execute("DELETE FROM conversations WHERE id = %s", (conversation_id,))


def no_such_conversation(conversation_id: str) -> NotFound:
    """The one answer for a missing and for a foreign conversation."""
    return NotFound(f"There is no conversation {conversation_id[:64]!r}.")


def _to_conversation(row: tuple[Any, ...]) -> Conversation:
    return Conversation(*row)

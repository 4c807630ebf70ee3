"""Store conversations. Each belongs to an owner, and every statement asks for the owner."""

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

# An expired mute counts as none, by the database's clock, which the gates use too. Reminders are counted only under a mute.
_PERMISSION = """CASE WHEN muted_until > clock_timestamp() THEN muted_until END AS muted_until, autonomy_enabled,
CASE WHEN muted_until > clock_timestamp() THEN (
    SELECT count(*) FROM reminders r WHERE r.conversation_id = conversations.id AND r.state IN ('waiting', 'held')
    AND r.due_at < muted_until) ELSE 0 END AS held_reminders"""


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
        """Create an empty conversation."""
        cursor = await self.connection.execute(
            f"INSERT INTO conversations (id, owner_id, agent_id, kind, channel, title, handle)"
            f" VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}",
            (new_id(), owner_id, agent_id, kind, channel, title, handle),
        )
        row = await cursor.fetchone()
        assert row is not None
        return to_conversation(row)

    async def get(self, owner_id: str, conversation_id: str) -> Conversation:
        """Return the conversation; raise NotFound if it is missing or somebody else's."""
        if is_id(conversation_id):
            cursor = await self.connection.execute(
                f"SELECT {_COLUMNS} FROM conversations WHERE id = %s AND owner_id = %s",
                (conversation_id, owner_id),
            )
            if row := await cursor.fetchone():
                return to_conversation(row)
        raise no_such_conversation(conversation_id)

    async def get_by_prefix(self, owner_id: str, prefix: str) -> Conversation:
        """Return the owner's conversation whose id has this prefix, in upper or lower case.

        Raise InvalidInput if several have it, NotFound if none has.
        """
        if not (prefix.isascii() and prefix.isalnum()):
            raise no_such_conversation(prefix.encode(errors="replace").decode())
        # starts_with: the prefix is text here, not a pattern.
        cursor = await self.connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE owner_id = %s AND starts_with(id, %s) ORDER BY id LIMIT 2",
            (owner_id, prefix.upper()),
        )
        rows = await cursor.fetchall()
        if len(rows) > 1:
            raise InvalidInput(f"Several conversations begin with {prefix[:64]!r}: give more of the id.")
        if not rows:
            raise no_such_conversation(prefix)
        return to_conversation(rows[0])

    async def get_permission(self, owner_id: str, conversation_id: str) -> Permission:
        """Return the owner's settings for follow-ups in a conversation."""
        return await self._fetch_permission(
            f"SELECT {_PERMISSION} FROM conversations WHERE id = %(id)s AND owner_id = %(owner)s",
            owner_id,
            conversation_id,
        )

    async def mute(self, owner_id: str, conversation_id: str, *, until: datetime | float | None) -> Permission:
        """Hold back follow-ups until a time, or for that many seconds; None unmutes. Pending timers stay."""
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
        """Turn follow-ups on or off in a conversation; None restores the default of its kind."""
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
                return Permission(row.muted_until, row.autonomy_enabled, row.held_reminders)
        raise no_such_conversation(conversation_id)

    async def set_agent(self, owner_id: str, conversation_id: str, agent_id: str) -> None:
        """Let another agent answer in the conversation from the next message on."""
        await self.connection.execute(
            "UPDATE conversations SET agent_id = %s WHERE id = %s AND owner_id = %s",
            (agent_id, conversation_id, owner_id),
        )

    async def rename(self, conversation_id: str, title: str | None) -> None:
        """Change the title."""
        await self.connection.execute("UPDATE conversations SET title = %s WHERE id = %s", (title, conversation_id))

    async def mark_unreachable(self, conversation_id: str) -> None:
        """Record that nothing can be sent there until a person writes."""
        await self.connection.execute(
            "UPDATE conversations SET unreachable_since = clock_timestamp() WHERE id = %s", (conversation_id,)
        )

    async def mark_reachable(self, conversation_id: str) -> None:
        """Record that messages can be sent there again."""
        await self.connection.execute(
            "UPDATE conversations SET unreachable_since = NULL WHERE id = %s", (conversation_id,)
        )

    async def has_groups(self) -> bool:
        """Return True if there is a group chat of any owner."""
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM conversations WHERE kind = 'group') AS has_groups"
        )
        row = await cursor.fetchone()
        return row is not None and row.has_groups

    async def lock(self, owner_id: str, conversation_id: str) -> None:
        """Lock the conversation until the transaction ends: no message is stored and no turn is committed meanwhile."""
        if not is_id(conversation_id):
            raise no_such_conversation(conversation_id)
        cursor = await self.connection.execute(
            "SELECT id FROM conversations WHERE id = %s AND owner_id = %s FOR UPDATE", (conversation_id, owner_id)
        )
        if await cursor.fetchone() is None:
            raise no_such_conversation(conversation_id)

    async def delete(self, owner_id: str, conversation_id: str) -> None:
        """Delete a conversation with all its rows, LangGraph's checkpoints included. Call it in a transaction."""
        await self.lock(owner_id, conversation_id)
        await self.connection.execute("SET LOCAL statement_timeout = 0")  # a long conversation takes longer
        # A turn's checkpoints have its event's id as their thread.
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            await self.connection.execute(
                f"DELETE FROM {table} WHERE thread_id IN (SELECT id FROM events WHERE conversation_id = %s)".encode(),
                (conversation_id,),
            )
        await self.connection.execute("DELETE FROM conversations WHERE id = %s", (conversation_id,))
        # After the row is gone, nobody can share a note with it. An import may make a conversation of this id again.
        await self.connection.execute("UPDATE notes SET shared_with = NULL WHERE shared_with = %s", (conversation_id,))


def no_such_conversation(conversation_id: str) -> NotFound:
    """Return the error for a missing and for somebody else's conversation: they must look the same."""
    return NotFound(f"There is no conversation {conversation_id[:64]!r}.")


def to_conversation(row: Any) -> Conversation:
    """Return the conversation of a row that has at least its columns."""
    return Conversation(
        id=row.id,
        owner_id=row.owner_id,
        agent_id=row.agent_id,
        kind=row.kind,
        channel=row.channel,
        title=row.title,
        created_at=row.created_at,
        last_at=row.last_at,
    )

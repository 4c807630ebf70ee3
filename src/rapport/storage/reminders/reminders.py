"""Store reminders: set, listed, changed and cancelled by people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import errors

from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.ids import is_id
from rapport.domain.reminder import MAX_REMINDERS, NewReminder, Reminder, Schedule
from rapport.storage.conversations.conversations import Conversations, no_such_conversation
from rapport.storage.database import Connection

COLUMNS = (
    "id, conversation_id, owner_id, text, local_at, zone, moment, rule, ends_at, due_at, state, created_at, author_id,"
    " author_name, is_personal, sent_at, message_id"
)

# Counted up to the limit only. Two requests at once may exceed it by one: it protects the server, and counts nothing else.
_INSERT = f"""
INSERT INTO reminders (conversation_id, id, owner_id, author_id, author_name, is_personal, text, local_at, zone, moment, rule,
                       ends_at, due_at)
SELECT c.id, %(id)s, c.owner_id, %(author_id)s, %(author_name)s, %(is_personal)s, %(text)s, %(local_at)s, %(zone)s, %(moment)s,
       %(rule)s, %(ends_at)s, %(due_at)s
FROM conversations c WHERE c.id = %(conversation)s AND c.owner_id = %(owner)s
  AND (SELECT count(*) FROM (SELECT FROM reminders r WHERE r.owner_id = c.owner_id AND r.state IN ('waiting', 'held')
                             LIMIT %(most)s) AS waiting) < %(most)s
ON CONFLICT (conversation_id, id) DO NOTHING
RETURNING {COLUMNS}
"""


@dataclass(frozen=True, slots=True)
class Reminders:
    """Every method names the owner: nobody reaches the reminders of another."""

    connection: Connection

    async def add(
        self, owner_id: str, conversation_id: str, new: NewReminder, *, limit: int = MAX_REMINDERS
    ) -> Reminder:
        """Store a reminder; the same id again stores nothing new.

        Raise NotFound without such a conversation, InvalidInput if `limit` wait.
        """
        if not is_id(conversation_id):
            raise no_such_conversation(conversation_id)
        parameters = {
            **_schedule_parameters(new.schedule, new.due_at),
            "conversation": conversation_id,
            "owner": owner_id,
            "id": new.id,
            "text": new.text,
            "author_id": new.author_id,
            "author_name": new.author_name,
            "is_personal": new.is_personal,
            "most": limit,
        }
        try:
            cursor = await self.connection.execute(_INSERT, parameters)
        except errors.ForeignKeyViolation as error:  # the conversation was erased while the insert waited for its row
            raise no_such_conversation(conversation_id) from error
        row = await cursor.fetchone()
        if row is None:
            if (stored := await self.find(owner_id, new.id)) is not None:
                return stored
            await Conversations(self.connection).get(owner_id, conversation_id)  # raises NotFound if it is missing
            raise InvalidInput(f"{MAX_REMINDERS:,} reminders wait already: cancel some first.")
        return to_reminder(row)

    async def get(self, owner_id: str, reminder_id: str, *, lock: bool = False) -> Reminder:
        """Return the owner's reminder; raise NotFound. With `lock` nobody changes it until the transaction ends."""
        if (found := await self.find(owner_id, reminder_id, lock=lock)) is None:
            raise NotFound("There is no such reminder.")
        return found

    async def find(self, owner_id: str, reminder_id: str, *, lock: bool = False) -> Reminder | None:
        """Return the owner's reminder, or None."""
        if not is_id(reminder_id):
            return None
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM reminders WHERE owner_id = %s AND id = %s{' FOR UPDATE' if lock else ''}".encode(),
            (owner_id, reminder_id),
        )
        row = await cursor.fetchone()
        return None if row is None else to_reminder(row)

    async def count_waiting(self, owner_id: str) -> int:
        """Return how many of the owner's reminders wait, counted up to the limit."""
        cursor = await self.connection.execute(
            "SELECT count(*) AS number FROM (SELECT FROM reminders WHERE owner_id = %s AND state IN ('waiting', 'held') LIMIT %s) AS r",
            (owner_id, MAX_REMINDERS),
        )
        row = await cursor.fetchone()
        return row.number if row else 0

    async def list(
        self, owner_id: str, *, conversation_id: str | None = None, past: bool = False, limit: int = 1_000
    ) -> Sequence[Reminder]:
        """Return the reminders that wait, the next first, or with `past` those that are over, the newest first."""
        states, order = (("done", "cancelled"), "due_at DESC, id DESC") if past else (("waiting", "held"), "due_at, id")
        where = "" if conversation_id is None else " AND conversation_id = %(conversation)s"
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM reminders WHERE owner_id = %(owner)s AND state = ANY(%(states)s){where}"
            f" ORDER BY {order} LIMIT %(limit)s".encode(),
            {"owner": owner_id, "states": list(states), "conversation": conversation_id, "limit": limit},
        )
        return [to_reminder(row) for row in await cursor.fetchall()]

    async def change(self, reminder: Reminder) -> Reminder:
        """Store text, schedule, due time and state of a reminder that `get` has locked."""
        cursor = await self.connection.execute(
            "UPDATE reminders SET text = %(text)s, local_at = %(local_at)s, zone = %(zone)s, moment = %(moment)s, rule = %(rule)s,"
            " ends_at = %(ends_at)s, due_at = %(due_at)s, state = %(state)s"
            f" WHERE conversation_id = %(conversation)s AND id = %(id)s AND owner_id = %(owner)s RETURNING {COLUMNS}".encode(),
            {
                **_schedule_parameters(reminder.schedule, reminder.due_at),
                "text": reminder.text,
                "state": reminder.state,
                "conversation": reminder.conversation_id,
                "id": reminder.id,
                "owner": reminder.owner_id,
            },
        )
        row = await cursor.fetchone()
        assert row is not None
        return to_reminder(row)

    async def list_to_reschedule(self, owner_id: str) -> Sequence[Reminder]:
        """Return, locked, the waiting reminders whose due time follows the owner's zone or quiet hours."""
        cursor = await self.connection.execute(
            f"SELECT {COLUMNS} FROM reminders WHERE owner_id = %s AND state IN ('waiting', 'held') AND moment IS NULL"
            " AND (zone IS NULL OR rule IS NOT NULL) ORDER BY due_at, id FOR UPDATE",
            (owner_id,),
        )
        return [to_reminder(row) for row in await cursor.fetchall()]

    async def set_due(self, changes: Mapping[str, datetime], owner_id: str) -> None:
        """Store new due times by reminder id."""
        await self.connection.execute(
            "UPDATE reminders r SET due_at = new.due_at FROM unnest(%s::text[], %s::timestamptz[]) AS new (id, due_at)"
            " WHERE r.owner_id = %s AND r.id = new.id",
            (list(changes), list(changes.values()), owner_id),
        )


def to_reminder(row: Any) -> Reminder:
    return make_reminder(row._asdict())


def make_reminder(values: dict[str, Any]) -> Reminder:
    """Return the reminder of a row's values."""
    schedule = Schedule(
        values.pop("local_at"), values.pop("zone"), values.pop("moment"), values.pop("rule"), values.pop("ends_at")
    )
    return Reminder(schedule=schedule, **values)


def _schedule_parameters(schedule: Schedule, due_at: datetime) -> dict[str, Any]:
    return {
        "local_at": schedule.local,
        "zone": schedule.zone,
        "moment": schedule.moment,
        "rule": schedule.rule,
        "ends_at": schedule.ends_at,
        "due_at": due_at,
    }

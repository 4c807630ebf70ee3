"""Reminders: what people ask to be told. Set, list, change, snooze, skip and cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from rapport.domain.conversation import Conversation
from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.domain.follow_up_requests import Preference
from rapport.domain.ids import new_id
from rapport.domain.reminder import NewReminder, Reminder, Schedule
from rapport.followups.gates import check_time_zone
from rapport.reminders.new_reminder import OWNER, Asker, check_reminder_text, get_quiet_hours, make_reminder
from rapport.reminders.recurrence import find_next, get_due, make_schedule, to_local, to_moment
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.followups.preferences import Preferences
from rapport.storage.reminders.reminders import Reminders


@dataclass(frozen=True, slots=True)
class Change:
    """The new values of a reminder; None leaves one as it is."""

    text: str | None = None
    at: datetime | None = None
    rule: str | None = None
    """An empty rule makes it one that comes once."""
    zone: str | None = None


_MAX_SNOOZE = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class ReminderBook:
    """Every method raises NotFound for a reminder or conversation that is not the owner's."""

    database: Database
    now: Callable[[], datetime]
    on_changed: Callable[[], None] = lambda: None

    async def list(
        self, owner_id: str, *, conversation_id: str | None = None, past: bool = False, limit: int = 1_000
    ) -> tuple[Sequence[Reminder], Preference]:
        """Return the owner's reminders, of one conversation or of all, and the preference that they follow."""
        async with self.database.statement() as connection:
            if conversation_id is not None:
                await Conversations(connection).get(owner_id, conversation_id)
            found = await Reminders(connection).list(owner_id, conversation_id=conversation_id, past=past, limit=limit)
            return found, await Preferences(connection).get(owner_id)

    async def get(self, owner_id: str, reminder_id: str) -> tuple[Reminder, Preference]:
        async with self.database.statement() as connection:
            return await Reminders(connection).get(owner_id, reminder_id), await Preferences(connection).get(owner_id)

    async def add(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        text: str,
        at: datetime | None,
        rule: str | None = None,
        zone: str | None = None,
        asker: Asker = OWNER,
    ) -> tuple[Reminder, Preference]:
        """Store a reminder. Raise InvalidInput for a text, time or rule that can't be."""
        async with self.database.transaction() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
            preference = await Preferences(connection).get(owner_id, lock=True)
            new = await asyncio.to_thread(  # a rule may take tenths of a second
                make_reminder, text, at=at, rule=rule, zone=zone, preference=preference, now=self.now(), asker=asker
            )
            stored = await Reminders(connection).add(owner_id, conversation.id, new)
        self.on_changed()
        return stored, preference

    async def change(
        self, owner_id: str, reminder_id: str, change: Change, *, by: Asker | None = None
    ) -> tuple[Reminder, Preference]:
        """Change a reminder that is not over. In a group only its author or an admin may; `by` None is an admin."""
        async with self.database.transaction() as connection:
            preference = await Preferences(connection).get(owner_id, lock=True)
            reminder = await _get_open(connection, owner_id, reminder_id, by)
            if change.text is not None:
                reminder = replace(reminder, text=check_reminder_text(change.text))
            if change.at is not None or change.rule is not None or change.zone is not None:
                reminder = await asyncio.to_thread(_reschedule_by, change, reminder, preference, self.now())
            reminder = await Reminders(connection).change(reminder)
        self.on_changed()
        return reminder, preference

    async def cancel(self, owner_id: str, reminder_id: str, *, by: Asker | None = None) -> None:
        """End a reminder with all its occurrences; one that is over already stays as it is."""
        async with self.database.transaction() as connection:
            reminders = Reminders(connection)
            reminder = await reminders.get(owner_id, reminder_id, lock=True)
            await _check_may_change(connection, reminder, by)
            if reminder.state in ("waiting", "held"):
                await reminders.change(replace(reminder, state="cancelled"))
        self.on_changed()

    async def skip(self, owner_id: str, reminder_id: str, *, by: Asker | None = None) -> tuple[Reminder, Preference]:
        """Leave out the next occurrence of a recurring reminder. After its last one it is over."""
        async with self.database.transaction() as connection:
            preference = await Preferences(connection).get(owner_id, lock=True)
            reminder = await _get_open(connection, owner_id, reminder_id, by)
            schedule, own_zone = reminder.schedule, preference.time_zone
            if schedule.rule is None:
                raise InvalidInput("This reminder comes once: cancel it instead.")
            at = to_moment(schedule.local, ZoneInfo(schedule.zone or own_zone))
            if (following := find_next(schedule, own_zone=own_zone, after=at)) is None:
                reminder = replace(reminder, state="cancelled")
            else:
                schedule = replace(schedule, local=following)
                due_at = get_due(schedule, own_zone=own_zone, quiet=get_quiet_hours(preference))
                reminder = replace(reminder, schedule=schedule, due_at=due_at, state="waiting")
            reminder = await Reminders(connection).change(reminder)
        self.on_changed()
        return reminder, preference

    async def snooze(
        self, owner_id: str, reminder_id: str, *, until: datetime | timedelta, by: Asker | None = None
    ) -> tuple[Reminder, Preference]:
        """Say it again, or later: at a time or after a duration.

        A recurring one that was said keeps its rule: a copy comes once at that time. The copy has the id of the message, so
        that a second snooze of the same message moves it.
        """
        now = self.now()
        async with self.database.transaction() as connection:
            preference = await Preferences(connection).get(owner_id, lock=True)
            until = _find_moment(until, preference, now)
            reminders = Reminders(connection)
            reminder = await reminders.get(owner_id, reminder_id, lock=True)
            await _check_may_change(connection, reminder, by)
            if reminder.state == "cancelled":
                raise Conflict("This reminder was cancelled: set a new one.")
            schedule = Schedule(to_local(until, ZoneInfo(preference.time_zone)), None, until)
            if reminder.schedule.rule is None:
                reminder = replace(reminder, schedule=schedule, due_at=until, state="waiting")
                reminder = await reminders.change(reminder)
            elif reminder.sent_at is None and reminder.state != "done":
                reminder = await reminders.change(replace(reminder, due_at=until, state="waiting"))
            else:
                reminder = await _add_copy(reminders, reminder, schedule, until)
        self.on_changed()
        return reminder, preference


async def reschedule(connection: Connection, owner_id: str, preference: Preference) -> bool:
    """Move the owner's reminders to the preference's zone and quiet hours; return whether one has moved.

    Like an alarm, one whose time has passed by the move is due at once.
    """
    reminders, quiet = Reminders(connection), get_quiet_hours(preference)
    moved = {
        reminder.id: due_at
        for reminder in await reminders.list_to_reschedule(owner_id)
        if (due_at := get_due(reminder.schedule, own_zone=preference.time_zone, quiet=quiet)) != reminder.due_at
    }
    if moved:
        await reminders.set_due(moved, owner_id)
    return bool(moved)


async def _add_copy(reminders: Reminders, reminder: Reminder, schedule: Schedule, due_at: datetime) -> Reminder:
    name = reminder.message_id or new_id()
    with suppress(NotFound):
        copy = await reminders.get(reminder.owner_id, name, lock=True)
        return await reminders.change(replace(copy, schedule=schedule, due_at=due_at, state="waiting"))
    author = (reminder.author_id, reminder.author_name, reminder.is_personal)
    return await reminders.add(
        reminder.owner_id, reminder.conversation_id, NewReminder(name, reminder.text, schedule, due_at, *author)
    )


async def _get_open(connection: Connection, owner_id: str, reminder_id: str, by: Asker | None) -> Reminder:
    reminder = await Reminders(connection).get(owner_id, reminder_id, lock=True)
    await _check_may_change(connection, reminder, by)
    if reminder.state not in ("waiting", "held"):
        raise Conflict(f"This reminder is over: it was {'sent' if reminder.state == 'done' else 'cancelled'}.")
    return reminder


async def _check_may_change(connection: Connection, reminder: Reminder, by: Asker | None) -> None:
    conversation: Conversation = await Conversations(connection).get(reminder.owner_id, reminder.conversation_id)
    if conversation.traits.has_many_speakers and by is not None and by.id != reminder.author_id:
        raise InvalidInput("Only the person who asked for this reminder, or an admin of the group, may change it.")


def _reschedule_by(change: Change, reminder: Reminder, preference: Preference, now: datetime) -> Reminder:
    before = reminder.schedule
    zone = before.zone if change.zone is None else check_time_zone(change.zone)
    rule = before.rule if change.rule is None else (change.rule or None)
    at = change.at or before.moment or before.local
    schedule = make_schedule(at, rule=rule, zone=zone, own_zone=preference.time_zone, now=now)
    if rule is not None and rule == before.rule:
        end = before.ends_at and datetime.combine(before.ends_at.date(), time.max)
        schedule = replace(schedule, ends_at=end)
    due_at = get_due(schedule, own_zone=preference.time_zone, quiet=get_quiet_hours(preference))
    return replace(reminder, schedule=schedule, due_at=due_at, state="waiting")


def _find_moment(until: datetime | timedelta, preference: Preference, now: datetime) -> datetime:
    if isinstance(until, timedelta):
        moment = now + min(until, 2 * _MAX_SNOOZE)
    else:
        moment = until if until.tzinfo else to_moment(until, ZoneInfo(preference.time_zone))
    if not now < moment <= now + _MAX_SNOOZE:
        raise InvalidInput("`until` must be in the future, within a year.")
    return moment

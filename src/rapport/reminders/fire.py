"""Decide what becomes of a reminder that is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rapport.domain.follow_up import QuietHours
from rapport.domain.reminder import Reminder
from rapport.reminders.recurrence import find_latest, find_next, get_due, leave_quiet_hours, to_moment
from rapport.reminders.texts import write_message


class Fired(NamedTuple):
    """The message of a due reminder, and the reminder afterwards."""

    content: str | None
    """None: it waits for the end of quiet hours."""
    occurrence: datetime
    """The moment for which it was asked."""
    reminder: Reminder


def fire(reminder: Reminder, *, now: datetime, own_zone: str, quiet: QuietHours | None, is_group: bool) -> Fired:
    """Return the message, once however many occurrences were missed, and when the reminder is due again."""
    schedule = reminder.schedule
    zone = ZoneInfo(schedule.zone or own_zone)
    if schedule.rule is None:
        content = write_message(reminder, occurrence=reminder.due_at, now=now, zone=zone, is_group=is_group)
        return Fired(content, reminder.due_at, replace(reminder, state="done"))
    if (later := leave_quiet_hours(now, quiet)) > now:
        return Fired(None, reminder.due_at, replace(reminder, due_at=later))
    latest = replace(schedule, local=find_latest(schedule, own_zone=own_zone, until=now))
    missed = latest.local != schedule.local
    occurrence = to_moment(latest.local, zone) if missed else reminder.due_at
    content = write_message(reminder, occurrence=occurrence, now=now, zone=zone, is_group=is_group)
    next_local = find_next(latest, own_zone=own_zone, after=max(now, to_moment(latest.local, zone)))
    if next_local is None:
        return Fired(content, occurrence, replace(reminder, schedule=latest, state="done"))
    upcoming = replace(latest, local=next_local)
    due_at = get_due(upcoming, own_zone=own_zone, quiet=quiet)
    return Fired(content, occurrence, replace(reminder, schedule=upcoming, due_at=due_at, state="waiting"))

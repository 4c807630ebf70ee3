"""Define the JSON and the iCalendar form of reminders."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel

from rapport.domain.follow_up_requests import Preference
from rapport.domain.reminder import Reminder
from rapport.reminders.texts import describe_rule, describe_schedule

_MAX_LINE_BYTES = 75
"""RFC 5545 asks for folded lines."""


class ReminderView(BaseModel):
    """A reminder. `at` is its next occurrence on the clock of its zone, `due_at` the moment when it is sent.

    They differ after a snooze, and if a recurring one is moved out of quiet hours. `zone` is null for one that follows the
    person's own clock. `when` says it in words, `recurrence` how often (null: once). `author_id` is the person of a group who asked for it.
    """

    id: str
    conversation_id: str
    text: str
    at: str
    due_at: str
    zone: str | None
    rrule: str | None
    when: str
    recurrence: str | None
    state: Literal["waiting", "held", "done", "cancelled"]
    author_id: str | None
    author_name: str | None
    personal: bool
    created_at: str
    sent_at: str | None
    message_id: str | None


class RemindersView(BaseModel):
    """`time_zone` is the person's own."""

    reminders: list[ReminderView]
    time_zone: str


def reminder_view(reminder: Reminder, preference: Preference) -> dict[str, Any]:
    schedule = reminder.schedule
    return {
        "id": reminder.id,
        "conversation_id": reminder.conversation_id,
        "text": reminder.text,
        "at": schedule.local.isoformat(timespec="seconds"),
        "due_at": reminder.due_at,
        "zone": schedule.zone,
        "rrule": schedule.rule,
        "when": describe_schedule(schedule, own_zone=preference.time_zone),
        "recurrence": None if schedule.rule is None else describe_rule(schedule),
        "state": reminder.state,
        "author_id": reminder.author_id,
        "author_name": reminder.author_name,
        "personal": reminder.is_personal,
        "created_at": reminder.created_at,
        "sent_at": reminder.sent_at,
        "message_id": reminder.message_id,
    }


def write_calendar(reminders: Iterable[Reminder], preference: Preference) -> str:
    """Return the reminders as an iCalendar file (RFC 5545), on the clocks of their zones."""
    stamp = _write_moment(datetime.now(UTC))
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Rapport//Reminders//EN"]
    for reminder in reminders:
        schedule = reminder.schedule
        zone = schedule.zone or preference.time_zone
        once = schedule.rule is None
        start = f":{_write_moment(reminder.due_at)}" if once else f";TZID={zone}:{schedule.local:%Y%m%dT%H%M%S}"
        lines += ["BEGIN:VEVENT", f"UID:{reminder.id}@rapport", f"DTSTAMP:{stamp}", f"DTSTART{start}"]
        if schedule.rule is not None:
            parts = [part for part in schedule.rule.split(";") if not part.startswith(("COUNT=", "UNTIL="))]
            until = [] if schedule.ends_at is None else [f"UNTIL={schedule.ends_at:%Y%m%dT%H%M%S}"]
            lines.append(f"RRULE:{';'.join([*parts, *until])}")
        summary = _escape(reminder.text)
        lines += [f"SUMMARY:{summary}", "BEGIN:VALARM", "ACTION:DISPLAY", "TRIGGER:PT0S"]
        lines += [f"DESCRIPTION:{summary}", "END:VALARM", "END:VEVENT"]
    return "".join(f"{_fold(line)}\r\n" for line in [*lines, "END:VCALENDAR"])


def _write_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")
    return "\\n".join(escaped.splitlines())


def _fold(line: str) -> str:
    """Break a line into lines of at most 75 bytes, never within a character."""
    parts, size = [""], 0
    for character in line:
        width = len(character.encode())
        if size + width > _MAX_LINE_BYTES:
            parts.append(" ")
            size = 1
        parts[-1] += character
        size += width
    return "\r\n".join(parts)

"""Write what a reminder says, and describe when it is due."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rapport.domain.follow_up_requests import FOREVER, Permission
from rapport.domain.reminder import NewReminder, Reminder, Schedule
from rapport.reminders.recurrence import to_local, to_moment

LATE_AFTER = timedelta(minutes=2)
MAX_SHOWN_TEXT_CHARACTERS = 300
_ZONE_UNKNOWN = (
    "Your time zone is not known, so this is UTC: set it on the page under “Next”, or with `rapport timers quiet"
    " --zone`."
)

_DAYS = {
    "MO": "Monday",
    "TU": "Tuesday",
    "WE": "Wednesday",
    "TH": "Thursday",
    "FR": "Friday",
    "SA": "Saturday",
    "SU": "Sunday",
}
_WEEKDAYS = frozenset(("MO", "TU", "WE", "TH", "FR"))
_UNITS = {"HOURLY": "hour", "DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}


def describe_time(local: datetime) -> str:
    """Return a time of the clock, such as `Fri 20 Nov 2026, 09:00`."""
    return f"{local:%a} {local.day} {local:%b %Y}, {local:%H:%M}"


def describe_schedule(schedule: Schedule, *, own_zone: str) -> str:
    """Return the absolute local time and the recurrence in words, with the zone."""
    when = f"{describe_time(schedule.local)} ({schedule.zone or own_zone})"
    return when if schedule.rule is None else f"{when}, {describe_rule(schedule)}"


def describe_rule(schedule: Schedule) -> str:
    """Return the recurrence in words; a rule with rare parts is quoted."""
    parts = {part.partition("=")[0]: part.partition("=")[2] for part in (schedule.rule or "").split(";")}
    unit, interval = _UNITS[parts.pop("FREQ")], int(parts.pop("INTERVAL", "1"))
    for name in ("COUNT", "UNTIL", "WKST"):
        parts.pop(name, None)
    words = f"every {unit}" if interval == 1 else f"every {interval} {unit}s"
    days = parts.pop("BYDAY", "")
    names = [_DAYS.get(day) for day in days.split(",")] if days else []
    if unit == "week" and interval == 1 and frozenset(days.split(",")) == _WEEKDAYS:
        words = "every weekday"
    elif all(names) and names:
        words += f" on {_join([name for name in names if name])}"
    elif days:
        parts["BYDAY"] = days
    if unit == "month" and (month_days := parts.get("BYMONTHDAY", "")).isdigit():
        parts.pop("BYMONTHDAY")
        words += f" on day {month_days}"
    if parts:
        words += f" by the rule {';'.join(f'{name}={value}' for name, value in parts.items())}"
    return words if schedule.ends_at is None else f"{words} until {describe_time(schedule.ends_at)}"


def describe_held(permission: Permission) -> str:
    """Return the sentence about the reminders that a mute holds back; empty if there are none."""
    if permission.muted_until is None or not permission.held_reminders:
        return ""
    until = "the mute is ended" if permission.muted_until >= FOREVER else "then"
    number = permission.held_reminders
    return f"1 reminder waits until {until}." if number == 1 else f"{number:,} reminders wait until {until}."


def write_confirmation(new: NewReminder, *, own_zone: str, is_zone_known: bool, is_muted: bool) -> str:
    """Return the line below a reply that says which reminder it has set, and when it is due."""
    schedule, clock = new.schedule, ZoneInfo(new.schedule.zone or own_zone)
    whom = f" for {new.author_name}" if new.is_personal and new.author_name else ""
    notes: list[str] = []
    if schedule.rule is not None and new.due_at != to_moment(schedule.local, clock):
        notes.append(f" It waits for the end of your quiet hours: {describe_time(to_local(new.due_at, clock))}.")
    if is_muted:
        notes.append(" This conversation is muted: it is held back as long.")
    if schedule.zone is None and not is_zone_known:
        notes.append(f" {_ZONE_UNKNOWN}")
    when = describe_schedule(schedule, own_zone=own_zone)
    return f"(Reminder set{whom}: {when} — “{_shorten(new.text)}”.{''.join(notes)})"


def write_refusal(reason: str) -> str:
    """Return the line below a reply that says why a reminder was not set."""
    for name, words in (("`at`", "the time"), ("`rrule`", "the recurrence"), ("`text`", "the text")):
        reason = reason.replace(name, words)
    return f"(No reminder was set: {reason.rstrip('.')}.)"


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_SHOWN_TEXT_CHARACTERS else f"{flat[:MAX_SHOWN_TEXT_CHARACTERS]}…"


def write_message(reminder: Reminder, *, occurrence: datetime, now: datetime, zone: ZoneInfo, is_group: bool) -> str:
    """Return what a reminder says: the person's own words, and if it is late, when it was due. No model is asked."""
    was_due = occurrence.astimezone(zone).replace(tzinfo=None)
    late = f" (late: it was due on {describe_time(was_due)})" if now - occurrence >= LATE_AFTER else ""
    name = reminder.author_name
    if not is_group or not name:
        return f"Reminder{late}: {reminder.text}"
    return (
        f"Reminder for {name}{late}: {reminder.text}"
        if reminder.is_personal
        else f"Reminder, asked for by {name}{late}: {reminder.text}"
    )


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

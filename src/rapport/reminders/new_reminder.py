"""Make the reminder that a person asks for: check its text, its time and its rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import QuietHours
from rapport.domain.follow_up_requests import Preference
from rapport.domain.ids import new_id
from rapport.domain.reminder import MAX_TEXT_CHARACTERS, NewReminder
from rapport.domain.text_checks import check_text, has_visible_text
from rapport.followups.gates import check_time_zone
from rapport.reminders.recurrence import find_begin, get_due, make_schedule, to_local


@dataclass(frozen=True, slots=True)
class Asker:
    """The person of a group who asks, and whether the reminder is for them alone."""

    id: str | None = None
    name: str | None = None
    is_personal: bool = False


OWNER = Asker()


def make_reminder(
    text: str,
    *,
    at: datetime | None,
    rule: str | None,
    zone: str | None,
    preference: Preference,
    now: datetime,
    asker: Asker = OWNER,
    reminder_id: str | None = None,
) -> NewReminder:
    """Return a reminder to be stored; without `at` its rule begins now. Raise InvalidInput for a text, time or rule that can't be."""
    checked = check_reminder_text(text)
    zone = None if zone is None else check_time_zone(zone)
    begin = at or find_begin(rule or "", to_local(now, ZoneInfo(zone or preference.time_zone)))
    schedule = make_schedule(begin, rule=rule, zone=zone, own_zone=preference.time_zone, now=now)
    due_at = get_due(schedule, own_zone=preference.time_zone, quiet=get_quiet_hours(preference))
    return NewReminder(reminder_id or new_id(), checked, schedule, due_at, asker.id, asker.name, asker.is_personal)


def get_quiet_hours(preference: Preference) -> QuietHours | None:
    if preference.quiet_from is None or preference.quiet_to is None:
        return None
    return QuietHours(preference.time_zone, preference.quiet_from, preference.quiet_to)


def check_reminder_text(text: str) -> str:
    """Return the text if a reminder may have it; raise InvalidInput otherwise."""
    checked = check_text(text, what="text", limit=MAX_TEXT_CHARACTERS).strip()
    if not has_visible_text(checked):
        raise InvalidInput("`text` is empty: say what to be reminded of.")
    return checked

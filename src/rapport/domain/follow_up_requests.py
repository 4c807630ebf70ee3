"""Validate and parse requests about follow-ups: delays, names, reasons, mutes and quiet hours."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time

from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text, has_visible_text

MIN_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30 * 86_400.0
"""The range of delays a person may set. The planner's limits are narrower."""
MAX_REASON_CHARACTERS = 500
MAX_PENDING_TIMERS = 10_000
"""Limit per conversation: each message of a person ends all its timers in one statement."""
MAX_MUTE_SECONDS = 10 * 366 * 86_400.0
"""A longer mute is a permanent one."""
FOREVER = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a permanent mute: a time that every client can parse."""

TIMER_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_HOUR = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class Permission:
    """The owner's settings for follow-ups in one conversation."""

    muted_until: datetime | None
    """None if it is not muted now."""
    autonomy: bool | None
    """None if nobody has chosen: on in direct chats, off in groups."""
    held_reminders: int = 0
    """The number of reminders that a mute holds back until it ends."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A person's time zone and quiet hours."""

    time_zone: str = "UTC"
    quiet_from: time | None = None
    quiet_to: time | None = None
    """If it is before `quiet_from`, the hours span midnight."""


def check_timer_id(name: str) -> str:
    """Return the name if it is a valid timer id; raise InvalidInput otherwise."""
    if TIMER_ID.fullmatch(name) is None:
        raise InvalidInput("A `timer_id` has 1 to 64 of the characters A-Z a-z 0-9 _ . : -")
    return name


def check_delay(seconds: float) -> float:
    """Return the delay if a timer may have it; raise InvalidInput otherwise."""
    if not math.isfinite(seconds) or not MIN_DELAY_SECONDS <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidInput("A follow-up may be due from 1 second to 30 days from now.")
    return float(seconds)


def check_reason(reason: str) -> str:
    """Return the reason if it can be stored, or an empty one if it has no visible text; raise InvalidInput otherwise."""
    checked = check_text(reason, what="reason", limit=MAX_REASON_CHARACTERS)
    return checked if has_visible_text(checked) else ""


def parse_duration(text: str) -> float:
    """Return the seconds of a written duration: `90s`, `10m`, `2h`, `1d`, `1h30m`."""
    duration = text.strip().lower()
    if not re.fullmatch(rf"(?:{_PART.pattern}){{1,8}}", duration):
        raise InvalidInput(f"{_quote(text)} is not a duration: write 90s, 10m, 2h, 1d or 1h30m.")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def parse_time_of_day(text: str) -> time:
    """Return the time of day of a text like `22:00`."""
    match = _HOUR.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{_quote(text)} is not a time of day: write it like 22:00.")
    return time(int(match[1]), int(match[2]))


def parse_moment(text: str) -> datetime:
    """Return the time of an ISO text with its offset from UTC, `FOREVER` at the latest."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(f"{_quote(text)} is not a time with its offset, such as 2026-11-16T08:00:00Z.")
    return min(moment, FOREVER)


def check_preference(preference: Preference) -> Preference:
    """Return the preference; raise InvalidInput if only one end of the quiet hours is set, or both are equal."""
    if (preference.quiet_from is None) != (preference.quiet_to is None):
        raise InvalidInput("Quiet hours have a beginning and an end: give both, or neither.")
    if preference.quiet_from is not None and preference.quiet_from == preference.quiet_to:
        raise InvalidInput(
            "Quiet hours can't begin and end at the same time. To get no follow-ups at all, mute the conversation."
        )
    return preference


def _quote(text: str) -> str:
    printable = "".join(character if character.isprintable() else "�" for character in text[:40])
    return f'"{printable}{"…" if len(text) > 40 else ""}"'

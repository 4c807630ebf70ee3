"""What people may ask of follow-ups: when, under which name and why; and when they want none."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time

from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text, has_visible_text

MIN_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30 * 86_400.0
"""Seconds from now in which somebody may set a timer; the planner has narrower limits of its own."""
MAX_REASON_CHARACTERS = 500
MAX_PENDING_TIMERS = 10_000
"""Timers of one conversation: whoever speaks there cancels them all."""
MAX_MUTE_SECONDS = 10 * 366 * 86_400.0
"""Seconds. Whoever wants more means for good."""
FOREVER = datetime(9999, 12, 31, tzinfo=UTC)
"""Until then somebody is muted who is muted for good: a moment that every clock and every client can read."""

TIMER_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_HOUR = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class Permission:
    """What the owner of a conversation has said about follow-ups in it."""

    muted_until: datetime | None
    """None when it isn't muted now."""
    autonomy: bool | None
    """None when nobody has said anything: on in direct chats, off in groups."""


@dataclass(frozen=True, slots=True)
class Preference:
    """The clock somebody lives by, and when they don't want to hear from an agent by it."""

    time_zone: str = "UTC"
    quiet_from: time | None = None
    quiet_to: time | None = None
    """Before `quiet_from`: over midnight."""


def check_timer_id(name: str) -> str:
    """A name that a timer may have; raises InvalidInput otherwise."""
    if TIMER_ID.fullmatch(name) is None:
        raise InvalidInput("A `timer_id` has 1 to 64 of the characters A-Z a-z 0-9 _ . : -")
    return name


def check_delay(seconds: float) -> float:
    """Seconds after which a timer may be due; raises InvalidInput otherwise."""
    if not math.isfinite(seconds) or not MIN_DELAY_SECONDS <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidInput("A follow-up may be due from 1 second to 30 days from now.")
    return float(seconds)


def check_reason(reason: str) -> str:
    """A reason that can be stored; an empty one if there is nothing to read in it."""
    checked = check_text(reason, what="reason", limit=MAX_REASON_CHARACTERS)
    return checked if has_visible_text(checked) else ""


def parse_duration(text: str) -> float:
    """Seconds of a duration as people write it: `90s`, `10m`, `2h`, `1d`, `1h30m`."""
    written = text.strip().lower()
    if not re.fullmatch(rf"(?:{_PART.pattern}){{1,8}}", written):
        raise InvalidInput(f"{_quote(text)} is not a duration: write 90s, 10m, 2h, 1d or 1h30m.")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(written))


def parse_time_of_day(text: str) -> time:
    """A time of day as a clock shows it: `22:00`."""
    written = _HOUR.fullmatch(text.strip())
    if written is None:
        raise InvalidInput(f"{_quote(text)} is not a time of day: write it like 22:00.")
    return time(int(written[1]), int(written[2]))


def parse_moment(text: str) -> datetime:
    """A moment in ISO form with its offset from UTC; one that lies beyond `FOREVER` is `FOREVER`."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(f"{_quote(text)} is not a time with its offset, such as 2026-11-16T08:00:00Z.")
    return min(moment, FOREVER)


def check_preference(preference: Preference) -> Preference:
    """A preference that means something; raises InvalidInput if only half of the quiet hours are known, or none remain."""
    if (preference.quiet_from is None) != (preference.quiet_to is None):
        raise InvalidInput("Quiet hours have a beginning and an end: give both, or neither.")
    if preference.quiet_from is not None and preference.quiet_from == preference.quiet_to:
        raise InvalidInput("Quiet hours that end when they begin are none. To hear nothing at all, mute.")
    return preference


def _quote(text: str) -> str:
    kept = "".join(character if character.isprintable() else "�" for character in text[:40])
    return f'"{kept}{"…" if len(text) > 40 else ""}"'

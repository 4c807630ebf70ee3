"""Decide whether a follow-up may be sent now, and which gate suppresses it if not (AUTO-10)."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import Autonomy, Gate, GateInput, QuietHours

_DAY = timedelta(days=1)
_NO_ZONES = frozenset({"localtime", "Factory"})
"""Files that some systems store beside the zones: the first is a different zone on each machine, the second is none."""
_LONGEST_SHOWN = 40


def find_closed_gate(standing: GateInput, *, server: bool, autonomy: Autonomy | None) -> Gate | None:
    """Return the first gate, in the order of `GATES`, that suppresses a follow-up; None if it may be sent.

    Two gates are not checked here: "repeated" needs the conversation's text (topics.py), "budget" this month's usage
    (turns/budgets.py). `server` is False if the server sends no follow-ups at all; `autonomy` is None for an agent without follow-ups.
    """
    if not server:
        return "server"
    if autonomy is None:
        return "agent"
    checks: tuple[tuple[Gate, Callable[[], bool]], ...] = (
        ("unreachable", lambda: standing.is_unreachable),
        ("conversation", lambda: not _is_wanted(standing)),
        ("muted", lambda: standing.muted_until is not None and standing.now < standing.muted_until),
        ("resting", lambda: standing.is_breaker_open),
        ("consecutive", lambda: standing.consecutive_followups >= autonomy.max_in_a_row),
        ("too_soon", lambda: _too_soon(standing, autonomy)),
        ("quiet_hours", lambda: is_quiet_now(standing.quiet_hours, standing.now)),
        ("too_frequent", lambda: _too_frequent(standing, autonomy)),
        ("daily_limit", lambda: standing.is_inferred and standing.inferred_in_a_day >= autonomy.inferred_per_day),
    )
    return next((gate for gate, is_closed in checks if is_closed()), None)


def _is_wanted(standing: GateInput) -> bool:
    return standing.traits.wants_follow_ups(standing.autonomy_enabled)


def _too_soon(standing: GateInput, autonomy: Autonomy) -> bool:
    """Return True if the previous follow-up is too recent.

    One in the future was sent before the clock was set back. It suppresses nothing: its real age is unknown, waiting could
    take hours, and the limit of consecutive follow-ups still applies.
    """
    return _follows_within(autonomy.min_gap, standing)


def _too_frequent(standing: GateInput, autonomy: Autonomy) -> bool:
    """Return True if an inferred follow-up is too early after another one in the same silence."""
    return (
        standing.is_inferred and standing.consecutive_followups > 0 and _follows_within(autonomy.inferred_gap, standing)
    )


def _follows_within(seconds: float, standing: GateInput) -> bool:
    if standing.last_followup_at is None:
        return False
    return 0 <= (standing.now - standing.last_followup_at).total_seconds() < seconds


def is_quiet_now(quiet: QuietHours | None, now: datetime) -> bool:
    """Return True from the first time the person's clock shows `begin` to the last time it shows `end`.

    An hour that the clock shows twice is quiet both times, and a time that the clock skips counts as reached at the skip.
    Equal `begin` and `end` mean no quiet hours. An unknown zone counts as UTC.
    """
    if quiet is None or quiet.begin == quiet.end:
        return False
    zone = _zone(quiet.time_zone)
    today = now.astimezone(zone).date()
    over_midnight = _DAY if quiet.end < quiet.begin else timedelta()
    for days in (-2, -1, 0, 1):  # a clock that is set back at midnight repeats the evening before
        date = today + timedelta(days=days)
        begin = datetime.combine(date, quiet.begin.replace(tzinfo=None))
        end = datetime.combine(date, quiet.end.replace(tzinfo=None)) + over_midnight
        if _has_passed(begin, now, zone, fold=0) and not _has_passed(end, now, zone, fold=1):
            return True
    return False


def _has_passed(wall: datetime, now: datetime, zone: ZoneInfo, *, fold: int) -> bool:
    """Return True if the clock of that zone has shown this time: once (`fold=0`), or for the last time (`fold=1`)."""
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) != wall:  # the clock jumps over it
        return now.astimezone(zone).replace(tzinfo=None) >= wall
    return now >= moment


def check_time_zone(name: str) -> str:
    """Return the exact name of a time zone, found in any case; raise InvalidInput, with a suggestion, if there is none."""
    zone_name = _zones().get(name.strip().lower())
    if zone_name is None:
        matches = difflib.get_close_matches(name[:_LONGEST_SHOWN].lower(), _zones(), n=1, cutoff=0.7)
        hint = f"Did you mean {_zones()[matches[0]]}?" if matches else 'Use a name such as "Europe/Berlin" or "UTC".'
        raise InvalidInput(f"There is no time zone {_has_shown(name)}. {hint}")
    return zone_name


def _has_shown(name: str) -> str:
    printable = "".join(character if character.isprintable() else "�" for character in name[:_LONGEST_SHOWN])
    return f'"{printable}{"…" if len(name) > _LONGEST_SHOWN else ""}"'


def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(_zones().get(name.strip().lower(), "UTC"))


@cache
def _zones() -> dict[str, str]:
    """Return every zone by its name in lower case. A name is checked here before it is used as a file name."""
    return {name.lower(): name for name in {*available_timezones(), "UTC"} - _NO_ZONES}

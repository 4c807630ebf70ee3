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
"""Files that some systems keep beside the zones: the first means another zone on every machine, the second means none."""
_LONGEST_SHOWN = 40


def find_closed_gate(standing: GateInput, *, server: bool, autonomy: Autonomy | None) -> Gate | None:
    """Return the first gate, in the order of `GATES`, that holds a follow-up back, or None: then it may be made.

    Whether it repeats an earlier one ("repeated") is not seen here: that takes the conversation's words (topics.py).
    `server` says whether the server lets its agents follow up at all; `autonomy` is None for an agent that never does.
    """
    if not server:
        return "server"
    if autonomy is None:
        return "agent"
    closed: tuple[tuple[Gate, Callable[[], bool]], ...] = (
        ("unreachable", lambda: standing.is_unreachable),
        ("conversation", lambda: not _is_wanted(standing)),
        ("muted", lambda: standing.muted_until is not None and standing.now < standing.muted_until),
        ("resting", lambda: standing.is_breaker_open),
        ("consecutive", lambda: standing.consecutive_followups >= autonomy.max_in_a_row),
        ("too_soon", lambda: _too_soon(standing, autonomy)),
        ("quiet_hours", lambda: quiet_now(standing.quiet_hours, standing.now)),
        ("too_frequent", lambda: _too_frequent(standing, autonomy)),
        ("daily_limit", lambda: standing.is_inferred and standing.inferred_in_a_day >= autonomy.inferred_per_day),
    )
    return next((gate for gate, holds in closed if holds()), None)


def _is_wanted(standing: GateInput) -> bool:
    return standing.traits.wants_follow_ups(standing.autonomy_enabled)


def _too_soon(standing: GateInput, autonomy: Autonomy) -> bool:
    """Return a previous follow-up that seems to lie ahead was made before the clock was set back. It holds nothing back: how long
    ago it really was can't be known, waiting for that moment to come again may take hours, and the count of follow-ups in
    a row still bounds what can be said."""
    return _follows_within(autonomy.min_gap, standing)


def _too_frequent(standing: GateInput, autonomy: Autonomy) -> bool:
    """Return whether an inferred follow-up comes too early after another one in the same silence."""
    return (
        standing.is_inferred and standing.consecutive_followups > 0 and _follows_within(autonomy.inferred_gap, standing)
    )


def _follows_within(seconds: float, standing: GateInput) -> bool:
    if standing.last_followup_at is None:
        return False
    return 0 <= (standing.now - standing.last_followup_at).total_seconds() < seconds


def quiet_now(quiet: QuietHours | None, now: datetime) -> bool:
    """Return whether it is quiet for that person: from the first time their clock shows `begin` to the last time it shows `end`.

    So an hour that a clock shows twice is quiet for as long as either reading says so, and a moment that a clock jumps over
    counts as reached at the jump. Hours that end when they begin are never quiet: whoever wants to hear nothing at all
    mutes. A zone that this machine does not know counts as UTC.
    """
    if quiet is None or quiet.begin == quiet.end:
        return False
    zone = _zone(quiet.time_zone)
    today = now.astimezone(zone).date()
    over_midnight = _DAY if quiet.end < quiet.begin else timedelta()
    for days in (-2, -1, 0, 1):  # a clock that goes back at midnight has the evening before once more
        date = today + timedelta(days=days)
        begin = datetime.combine(date, quiet.begin.replace(tzinfo=None))
        end = datetime.combine(date, quiet.end.replace(tzinfo=None)) + over_midnight
        if _has_passed(begin, now, zone, fold=0) and not _has_passed(end, now, zone, fold=1):
            return True
    return False


def _has_passed(wall: datetime, now: datetime, zone: ZoneInfo, *, fold: int) -> bool:
    """Return whether the clock of that zone has shown this time: once (`fold=0`), or for the last time (`fold=1`)."""
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) != wall:  # the clock jumps over it
        return now.astimezone(zone).replace(tzinfo=None) >= wall
    return now >= moment


def check_time_zone(name: str) -> str:
    """Return the proper name of a time zone, whatever its capitals; raises InvalidInput, with a suggestion, if there is none."""
    found = _zones().get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name[:_LONGEST_SHOWN].lower(), _zones(), n=1, cutoff=0.7)
        hint = f"Did you mean {_zones()[near[0]]}?" if near else 'Use a name such as "Europe/Berlin" or "UTC".'
        raise InvalidInput(f"There is no time zone {_has_shown(name)}. {hint}")
    return found


def _has_shown(name: str) -> str:
    kept = "".join(character if character.isprintable() else "�" for character in name[:_LONGEST_SHOWN])
    return f'"{kept}{"…" if len(name) > _LONGEST_SHOWN else ""}"'


def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(_zones().get(name.strip().lower(), "UTC"))


@cache
def _zones() -> dict[str, str]:
    """Return every zone by its name in small letters. A name is looked up here before it becomes the name of a file."""
    return {name.lower(): name for name in {*available_timezones(), "UTC"} - _NO_ZONES}

"""Compute when a reminder is due: on the person's clock, by rules of RFC 5545, right across changes of the clock (ADR 98)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import QuietHours
from rapport.domain.reminder import MAX_YEARS_AHEAD, Schedule
from rapport.followups.gates import is_quiet_now

MAX_RULE_CHARACTERS = 500
MAX_COUNT = 10_000
MAX_INTERVAL = 1_000
MIN_GAP = timedelta(hours=1)
_CHECKED_OCCURRENCES = 100
_DAY = timedelta(days=1)
_PART = re.compile(r"([A-Z]+)=([A-Z0-9,+-]+)")
_PARTS = frozenset(
    ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYSETPOS", "BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY", "BYHOUR", "BYMINUTE")
)  # fmt: skip
_PARTS_OF_LONG_RULES = frozenset(("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS"))
"""In shorter rules they are rare, and a rule without occurrences would be searched day by day until the year 9999."""
_FREQUENCIES = frozenset(("HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"))


def to_moment(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment at which the clock of the zone shows this time.

    A time that the clock skips counts as that much later; of a time that it shows twice, the first counts.
    """
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def to_local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def find_begin(rule: str, local: datetime) -> datetime:
    """Return the begin of a rule that has no time of its own: this minute, or the full hour if the rule names hours."""
    begin = local.replace(second=0, microsecond=0)
    return begin.replace(minute=0) if "BYHOUR=" in rule.upper() else begin


def make_schedule(at: datetime, *, rule: str | None, zone: str | None, own_zone: str, now: datetime) -> Schedule:
    """Return the schedule that a person asks for. Raise InvalidInput for a rule or time that can't be.

    An `at` with an offset is a moment, and one without is a time on the clock of `zone`, or of the person's own zone.
    """
    clock = ZoneInfo(zone or own_zone)
    is_moment = at.tzinfo is not None
    local = (to_local(at, clock) if is_moment else at).replace(microsecond=0)
    limit = to_local(now, clock)
    if not limit.year <= local.year + 1 or local.year > limit.year + MAX_YEARS_AHEAD:
        raise InvalidInput(f"`at` must be within {MAX_YEARS_AHEAD} years from now.")
    if rule is None:
        moment = at.astimezone(UTC) if is_moment else None
        if (moment or to_moment(local, clock)) <= now:
            raise InvalidInput(f"`at` is in the past: there it is {limit:%Y-%m-%d %H:%M} now.")
        return Schedule(local, zone, moment)
    rule, end = _check_rule(rule, local, clock)
    schedule = Schedule(local, zone, rule=rule, ends_at=end)
    first = find_next(replace(schedule, local=local), own_zone=own_zone, after=now, is_included=True)
    if first is None:
        raise InvalidInput("`rrule` has no occurrence in the future.")
    return replace(schedule, local=first)


def get_due(schedule: Schedule, *, own_zone: str, quiet: QuietHours | None) -> datetime:
    """Return when the schedule's next occurrence is due. A recurring one waits for the end of quiet hours."""
    if schedule.moment is not None:
        return schedule.moment
    due = to_moment(schedule.local, ZoneInfo(schedule.zone or own_zone))
    return due if schedule.rule is None else leave_quiet_hours(due, quiet)


def leave_quiet_hours(due: datetime, quiet: QuietHours | None) -> datetime:
    """Return `due`, or the end of the quiet hours that it is in."""
    if quiet is None or not is_quiet_now(quiet, due):
        return due
    clock = ZoneInfo(quiet.time_zone)
    today = to_local(due, clock).date()
    ends = [datetime.combine(today + days * _DAY, quiet.end).replace(tzinfo=clock, fold=1) for days in (-1, 0, 1, 2)]
    later = [moment for end in ends if (moment := end.astimezone(UTC)) > due and not is_quiet_now(quiet, moment)]
    return later[0] if later else due


def find_next(schedule: Schedule, *, own_zone: str, after: datetime, is_included: bool = False) -> datetime | None:
    """Return the first occurrence, as a time of the clock, whose moment is later than `after`; None if there is none.

    With `is_included` the schedule's own time is the first candidate. Occurrences that fall on one moment, because the
    clock skips the first of them, count once.
    """
    if schedule.rule is None:
        return None
    clock = ZoneInfo(schedule.zone or own_zone)
    for local in _iterate(schedule, clock, after, is_included=is_included):
        if schedule.ends_at is not None and local > schedule.ends_at:
            return None
        if to_moment(local, clock) > after:
            return local
    return None


def find_latest(schedule: Schedule, *, own_zone: str, until: datetime) -> datetime:
    """Return the latest occurrence that is not later than `until`, from the schedule's own time on."""
    clock = ZoneInfo(schedule.zone or own_zone)
    latest = schedule.local
    if schedule.rule is None:
        return latest
    for local in _iterate(schedule, clock, datetime.min.replace(tzinfo=UTC), is_included=True):
        if to_moment(local, clock) > until or (schedule.ends_at is not None and local > schedule.ends_at):
            return latest
        latest = max(local, latest)
    return latest


def _iterate(schedule: Schedule, clock: ZoneInfo, after: datetime, *, is_included: bool) -> Iterator[datetime]:
    """Yield the occurrences of the rule from the schedule's own time on.

    The schedule's time is an occurrence itself, so counting on from it keeps intervals of days, weeks, months and years.
    """
    assert schedule.rule is not None
    for local in _make_rule(schedule.rule, schedule.local):
        if local > schedule.local or is_included:
            yield local


def _make_rule(rule: str, start: datetime) -> Iterator[datetime]:
    return cast("Iterator[datetime]", iter(cast("Any", rrulestr(_drop_end(rule), dtstart=start))))


@lru_cache(1_024)
def _drop_end(rule: str) -> str:
    """Return the rule without its end, which the schedule has: the start moves on, so it could not be counted."""
    return ";".join(part for part in rule.split(";") if not part.startswith(("COUNT=", "UNTIL=")))


def _check_rule(rule: str, start: datetime, clock: ZoneInfo) -> tuple[str, datetime | None]:
    """Return the rule in its plain form, and its last occurrence if it has an end."""
    parts = _read_parts(rule)
    if parts.get("FREQ") not in _FREQUENCIES:
        raise InvalidInput("`rrule` must have a FREQ of HOURLY, DAILY, WEEKLY, MONTHLY or YEARLY: at most one an hour.")
    interval = parts.get("INTERVAL", "1")
    if not interval.isdigit() or not 1 <= int(interval) <= MAX_INTERVAL:
        raise InvalidInput(f"`rrule` must have an INTERVAL from 1 to {MAX_INTERVAL:,}.")
    if parts["FREQ"] not in ("MONTHLY", "YEARLY") and _PARTS_OF_LONG_RULES & parts.keys():
        raise InvalidInput("`rrule` with BYMONTHDAY, BYYEARDAY or BYWEEKNO must have a FREQ of MONTHLY or YEARLY.")
    if "COUNT" in parts and "UNTIL" in parts:
        raise InvalidInput("`rrule` has COUNT and UNTIL, but may have only one of them.")
    plain = ";".join(f"{name}={value}" for name, value in parts.items())
    try:
        occurrences = list(islice(_make_rule(plain, start), _CHECKED_OCCURRENCES))
        end = _find_end(parts, plain, start, clock)
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        raise InvalidInput("`rrule` is not a valid rule of RFC 5545, such as `FREQ=WEEKLY;BYDAY=MO,FR`.") from error
    if not occurrences:
        raise InvalidInput("`rrule` has no occurrence.")
    if any(later - earlier < MIN_GAP for earlier, later in pairwise(occurrences)):
        raise InvalidInput("`rrule` is too frequent: a reminder may come at most once an hour.")
    return plain, end


def _read_parts(rule: str) -> dict[str, str]:
    text = rule.strip().upper().removeprefix("RRULE:").rstrip(";")
    if not text or len(text) > MAX_RULE_CHARACTERS:
        raise InvalidInput(f"`rrule` must have 1 to {MAX_RULE_CHARACTERS} characters.")
    parts: dict[str, str] = {}
    for part in text.split(";"):
        match = _PART.fullmatch(part)
        if match is None or match[1] not in _PARTS or match[1] in parts:
            raise InvalidInput("`rrule` is not a valid rule of RFC 5545, such as `FREQ=WEEKLY;BYDAY=MO,FR`.")
        parts[match[1]] = match[2]
    return parts


def _find_end(parts: dict[str, str], plain: str, start: datetime, clock: ZoneInfo) -> datetime | None:
    if (count := parts.get("COUNT")) is not None:
        number = int(count)
        if not 1 <= number <= MAX_COUNT:
            raise InvalidInput(f"`rrule` must have a COUNT from 1 to {MAX_COUNT:,}.")
        return next(islice(_make_rule(plain, start), number - 1, None), None)
    if (until := parts.get("UNTIL")) is None:
        return None
    if until.endswith("Z"):
        return to_local(datetime.strptime(until, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC), clock)
    if "T" in until:
        return datetime.strptime(until, "%Y%m%dT%H%M%S")  # noqa: DTZ007 - a time of the clock
    return datetime.strptime(until, "%Y%m%d") + _DAY - timedelta(seconds=1)  # noqa: DTZ007

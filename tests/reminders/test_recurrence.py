"""Test when a reminder is due: once and by rules, in every zone, across changes of the clock (REM-1)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import QuietHours
from rapport.domain.reminder import Schedule
from rapport.reminders.recurrence import find_latest, find_next, get_due, make_schedule, to_local, to_moment
from tests.support.cases import every_case

VIENNA = "Europe/Vienna"
NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
ZONES = sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith(("posix/", "right/")))


def ask(
    at: str, *, rule: str | None = None, zone: str | None = None, own_zone: str = VIENNA, now: datetime = NOW
) -> Schedule:
    return make_schedule(datetime.fromisoformat(at), rule=rule, zone=zone, own_zone=own_zone, now=now)


def list_due(schedule: Schedule, number: int, *, own_zone: str = VIENNA, after: datetime = NOW) -> list[datetime]:
    """The next moments, one after the other, as they are computed when each is sent."""
    due: list[datetime] = []
    local = find_next(schedule, own_zone=own_zone, after=after, is_included=True)
    while local is not None and len(due) < number:
        schedule = replace(schedule, local=local)
        due.append(to_moment(local, ZoneInfo(schedule.zone or own_zone)))
        local = find_next(schedule, own_zone=own_zone, after=due[-1])
    return due


def test_a_daily_reminder_comes_once_a_day_in_every_zone_for_twenty_years() -> None:
    chosen = random.Random(19)
    for zone in chosen.sample(ZONES, 200):
        clock = ZoneInfo(zone)
        minute = time(chosen.randrange(24), chosen.choice([0, 15, 30, 59]))
        year = chosen.randrange(2026, 2046)
        begin = datetime.combine(datetime(year, 1, 1).date(), minute)
        due = list_due(Schedule(begin, zone, rule="FREQ=DAILY"), 366, after=datetime(year - 1, 12, 25, tzinfo=UTC))
        days = [to_local(moment, clock).date() for moment in due]
        assert len(set(due)) == len(due) == 366
        assert all(timedelta(hours=20) < later - earlier < timedelta(hours=28) for earlier, later in pairwise(due))
        wanted = [begin.date() + timedelta(days=number) for number in range(366)]
        # A zone that leaves out a whole day says it at the first moment after that day.
        assert sum(day != want for day, want in zip(days, wanted, strict=True)) <= 2, zone


@pytest.mark.parametrize(
    "rule", ["FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=YEARLY", "FREQ=DAILY;INTERVAL=3"]
)
def test_counting_on_from_each_occurrence_changes_nothing(rule: str) -> None:
    from dateutil.rrule import rrulestr

    chosen = random.Random(rule)
    for zone in chosen.sample(ZONES, 50):
        begin = datetime(2026, 1, 31, chosen.randrange(24), 30)
        whole = rrulestr(rule, dtstart=begin)
        wanted = [to_moment(local, ZoneInfo(zone)) for local in whole.xafter(begin, count=60)]
        schedule = Schedule(begin, zone, rule=rule)
        first = to_moment(begin, ZoneInfo(zone))
        assert list_due(schedule, 61, after=first)[:60] == [moment for moment in wanted if moment > first][:60]


def test_a_time_that_the_clock_skips_comes_later_and_one_that_it_shows_twice_comes_once() -> None:
    skipped = list_due(
        Schedule(datetime(2027, 3, 27, 2, 30), VIENNA, rule="FREQ=DAILY"), 3, after=datetime(2027, 3, 26, tzinfo=UTC)
    )
    assert [to_local(moment, ZoneInfo(VIENNA)).strftime("%d %H:%M") for moment in skipped] == [
        "27 02:30",
        "28 03:30",
        "29 02:30",
    ]
    doubled = list_due(
        Schedule(datetime(2026, 10, 24, 2, 30), VIENNA, rule="FREQ=DAILY"), 3, after=datetime(2026, 10, 23, tzinfo=UTC)
    )
    assert [moment.strftime("%d %H:%M") for moment in doubled] == ["24 00:30", "25 00:30", "26 01:30"]


def test_two_occurrences_on_one_moment_count_once() -> None:
    rule = "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=30"
    due = list_due(
        Schedule(datetime(2027, 3, 28, 2, 30), VIENNA, rule=rule), 3, after=datetime(2027, 3, 27, 12, tzinfo=UTC)
    )
    assert [moment.strftime("%d %H:%M") for moment in due] == ["28 01:30", "29 00:30", "29 01:30"]


def test_an_hourly_reminder_comes_once_for_each_hour_that_the_clock_shows() -> None:
    for begin, longest in ((datetime(2027, 3, 28, 0, 15), 1), (datetime(2026, 10, 25, 0, 15), 2)):
        before = to_moment(begin, ZoneInfo(VIENNA)) - timedelta(minutes=1)
        due = list_due(Schedule(begin, VIENNA, rule="FREQ=HOURLY"), 12, after=before)
        gaps = [later - earlier for earlier, later in pairwise(due)]
        assert (min(gaps), max(gaps)) == (timedelta(hours=1), timedelta(hours=longest))


def test_leap_days_and_ends_of_years() -> None:
    leap = list_due(Schedule(datetime(2028, 2, 29, 9), VIENNA, rule="FREQ=YEARLY"), 3)
    assert [moment.year for moment in leap] == [2028, 2032, 2036]
    new_year = list_due(Schedule(datetime(2026, 12, 31, 23, 59), "Pacific/Kiritimati", rule="FREQ=DAILY"), 2)
    assert [moment.strftime("%Y-%m-%d %H:%M") for moment in new_year] == ["2026-12-31 09:59", "2027-01-01 09:59"]
    half = list_due(Schedule(datetime(2026, 12, 1, 9), "Asia/Kolkata", rule="FREQ=DAILY"), 1)
    assert half == [datetime(2026, 12, 1, 3, 30, tzinfo=UTC)]


def test_a_moment_stays_when_the_person_travels_and_a_local_time_moves() -> None:
    local, moment = ask("2026-11-20T09:00"), ask("2026-11-20T09:00+01:00")
    assert get_due(local, own_zone=VIENNA, quiet=None) == get_due(moment, own_zone=VIENNA, quiet=None)
    assert get_due(local, own_zone="America/New_York", quiet=None) == datetime(2026, 11, 20, 14, tzinfo=UTC)
    assert get_due(moment, own_zone="America/New_York", quiet=None) == datetime(2026, 11, 20, 8, tzinfo=UTC)
    pinned = ask("2026-11-20T09:00", zone="Asia/Tokyo")
    assert get_due(pinned, own_zone="America/New_York", quiet=None) == datetime(2026, 11, 20, 0, tzinfo=UTC)


def test_quiet_hours_move_a_recurring_reminder_and_no_other() -> None:
    quiet = QuietHours(VIENNA, time(22), time(7))
    assert get_due(ask("2026-11-20T06:00"), own_zone=VIENNA, quiet=quiet) == datetime(2026, 11, 20, 5, tzinfo=UTC)
    recurring = ask("2026-11-20T06:00", rule="FREQ=DAILY")
    assert get_due(recurring, own_zone=VIENNA, quiet=quiet) == datetime(2026, 11, 20, 6, tzinfo=UTC)
    late = ask("2026-11-19T23:30", rule="FREQ=DAILY")
    assert get_due(late, own_zone=VIENNA, quiet=quiet) == datetime(2026, 11, 20, 6, tzinfo=UTC)


def test_the_latest_missed_occurrence_is_found() -> None:
    daily = Schedule(datetime(2026, 11, 1, 9), VIENNA, rule="FREQ=DAILY")
    assert find_latest(daily, own_zone=VIENNA, until=NOW) == datetime(2026, 11, 19, 9)
    ended = replace(daily, ends_at=datetime(2026, 11, 10, 9))
    assert find_latest(ended, own_zone=VIENNA, until=NOW) == datetime(2026, 11, 10, 9)


def test_a_rule_ends_after_its_count_or_at_its_date() -> None:
    counted = ask("2026-11-20T09:00", rule="FREQ=DAILY;COUNT=3")
    assert [moment.day for moment in list_due(counted, 10)] == [20, 21, 22]
    until = ask("2026-11-20T09:00", rule="RRULE:FREQ=DAILY;UNTIL=20261122")
    assert [moment.day for moment in list_due(until, 10)] == [20, 21, 22]
    zulu = ask("2026-11-20T09:00", rule="FREQ=DAILY;UNTIL=20261121T080000Z")
    assert [moment.day for moment in list_due(zulu, 10)] == [20, 21]
    begun = ask("2026-11-18T09:00", rule="FREQ=DAILY;COUNT=3")
    assert [moment.day for moment in list_due(begun, 10)] == [20]


@every_case(
    ("at", "rule", "sentence"),
    [
        ("2026-11-19T12:00", None, "in the past"),
        ("2026-11-19T11:59+00:00", None, "in the past"),
        ("9999-01-01T00:00", None, "within 50 years"),
        ("1970-01-01T00:00", "FREQ=DAILY", "within 50 years"),
        ("2026-11-20T09:00", "FREQ=SECONDLY", "at most one an hour"),
        ("2026-11-20T09:00", "FREQ=MINUTELY;INTERVAL=90", "at most one an hour"),
        ("2026-11-20T09:00", "FREQ=HOURLY;BYMINUTE=0,30", "too frequent"),
        ("2026-11-20T09:00", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0,10", "too frequent"),
        ("2026-11-20T09:00", "FREQ=DAILY;BYSECOND=1,2", "not a valid rule"),
        ("2026-11-20T09:00", "FREQ=DAILY;COUNT=0", "COUNT"),
        ("2026-11-20T09:00", "FREQ=DAILY;COUNT=99999999999", "COUNT"),
        ("2026-11-20T09:00", "FREQ=DAILY;COUNT=2;UNTIL=20270101", "only one"),
        ("2026-11-20T09:00", "FREQ=DAILY;INTERVAL=0", "INTERVAL"),
        ("2026-11-20T09:00", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "must have a FREQ of MONTHLY"),
        ("2026-11-20T09:00", "FREQ=DAILY;UNTIL=20200101", "no occurrence in the future"),
        ("2026-11-20T09:00", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "no occurrence"),
        ("2026-11-20T09:00", "DAILY", "not a valid rule"),
        ("2026-11-20T09:00", "FREQ=DAILY\nRRULE:FREQ=DAILY", "not a valid rule"),
        ("2026-11-20T09:00", "FREQ=DAILY;" * 100, "500 characters"),
        ("2026-11-20T09:00", "", "500 characters"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence(at: str, rule: str | None, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        ask(at, rule=rule)

"""Find whether a follow-up may be made: each gate by itself, their order, and quiet hours by anybody's clock (AUTO-10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import GATES, Autonomy, Gate, GateInput, QuietHours
from rapport.followups.gates import check_time_zone, find_closed_gate, is_quiet_now
from tests.support.cases import every_case

NOW = datetime(2025, 6, 10, 12, 0, tzinfo=UTC)
OPEN = GateInput(
    now=NOW,
    kind="direct",
    autonomy_enabled=None,
    muted_until=None,
    is_breaker_open=False,
    consecutive_followups=0,
    last_followup_at=None,
    quiet_hours=None,
)
LIMITS = Autonomy()
NOON_TO_ONE = QuietHours("UTC", time(12), time(13))

# What closes each gate that looks at the conversation.
CLOSING: dict[Gate, Callable[[GateInput], GateInput]] = {
    "conversation": lambda standing: replace(standing, autonomy_enabled=False),
    "muted": lambda standing: replace(standing, muted_until=NOW + timedelta(seconds=1)),
    "unreachable": lambda standing: replace(standing, is_unreachable=True),
    "resting": lambda standing: replace(standing, is_breaker_open=True),
    "consecutive": lambda standing: replace(standing, consecutive_followups=LIMITS.max_in_a_row),
    "too_soon": lambda standing: replace(standing, last_followup_at=NOW - timedelta(seconds=14)),
    "quiet_hours": lambda standing: replace(standing, quiet_hours=NOON_TO_ONE),
    "too_frequent": lambda standing: replace(
        standing,
        is_inferred=True,
        consecutive_followups=max(standing.consecutive_followups, 1),
        last_followup_at=standing.last_followup_at or NOW - timedelta(minutes=59),
    ),
    "daily_limit": lambda standing: replace(standing, is_inferred=True, inferred_in_a_day=LIMITS.inferred_per_day),
}


def gate_of(standing: GateInput, *, server: bool = True, autonomy: Autonomy | None = LIMITS) -> Gate | None:
    return find_closed_gate(standing, server=server, autonomy=autonomy)


def test_nothing_holds_back_what_nothing_speaks_against() -> None:
    assert gate_of(OPEN) is None
    assert gate_of(replace(OPEN, autonomy_enabled=True)) is None
    assert gate_of(replace(OPEN, kind="group", autonomy_enabled=True)) is None


def test_a_group_has_to_be_asked_first() -> None:
    assert gate_of(replace(OPEN, kind="group")) == "conversation"


@given(st.sets(st.sampled_from([gate for gate in GATES if gate not in ("repeated", "budget")])))
def test_the_first_closed_gate_is_named_whatever_else_is_closed(gates: set[Gate]) -> None:
    standing = OPEN
    for gate in gates & CLOSING.keys():
        standing = CLOSING[gate](standing)
    autonomy = None if "agent" in gates else LIMITS
    expected = next((gate for gate in GATES if gate in gates), None)
    assert gate_of(standing, server="server" not in gates, autonomy=autonomy) == expected


def test_only_inferred_follow_ups_are_bound_by_the_hour_and_the_day() -> None:
    standing = replace(OPEN, consecutive_followups=1, last_followup_at=NOW - timedelta(minutes=59), inferred_in_a_day=2)
    assert gate_of(standing) is None
    assert gate_of(replace(standing, is_inferred=True)) == "too_frequent"
    assert gate_of(replace(standing, is_inferred=True, last_followup_at=NOW - timedelta(minutes=60))) == "daily_limit"
    assert (
        gate_of(replace(standing, is_inferred=True, inferred_in_a_day=1, consecutive_followups=0)) is None
    )  # a new silence
    generous = Autonomy(inferred_gap=60, inferred_per_day=3)
    assert gate_of(replace(standing, is_inferred=True), autonomy=generous) is None


@given(st.sets(st.sampled_from(sorted(CLOSING))), st.sampled_from(sorted(CLOSING)))
def test_closing_one_more_gate_never_opens_the_way(gates: set[Gate], another: Gate) -> None:
    standing = OPEN
    for gate in gates:
        standing = CLOSING[gate](standing)
    before, after = gate_of(standing), gate_of(CLOSING[another](standing))
    assert after is not None
    assert before is None or GATES.index(after) <= GATES.index(before)


def test_a_mute_ends_at_its_moment() -> None:
    assert gate_of(replace(OPEN, muted_until=NOW + timedelta(microseconds=1))) == "muted"
    assert gate_of(replace(OPEN, muted_until=NOW)) is None


@given(st.integers(0, 10), st.integers(0, 10))
def test_so_many_in_a_row_and_no_more(followups: int, most: int) -> None:
    held = gate_of(replace(OPEN, consecutive_followups=followups), autonomy=Autonomy(max_in_a_row=most))
    assert held == ("consecutive" if followups >= most else None)


@given(st.floats(-100_000, 100_000))
@example(0.0)
@example(15.0)
@example(-0.5)
def test_a_previous_follow_up_holds_the_next_back_for_the_gap_and_no_longer(seconds_ago: float) -> None:
    """One that seems to lie ahead, because the clock was set back, holds nothing back."""
    standing = replace(OPEN, last_followup_at=NOW - timedelta(seconds=seconds_ago))
    elapsed = (NOW - (NOW - timedelta(seconds=seconds_ago))).total_seconds()
    assert gate_of(standing) == ("too_soon" if 0 <= elapsed < LIMITS.min_gap else None)


# ---- quiet hours

ZONES = sorted(available_timezones() - {"localtime", "Factory"})
TIMES = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))
SPECIAL = (
    "Europe/Berlin America/New_York America/St_Johns Australia/Lord_Howe Asia/Kathmandu Asia/Kolkata America/Havana"
    " Pacific/Apia Pacific/Chatham America/Sao_Paulo Atlantic/Azores UTC"
)
SPECIAL_ZONES = st.sampled_from(SPECIAL.split(" "))
# Around the days on which clocks change in the north and in the south, and at any other time.
CHANGES = st.sampled_from(
    [datetime(2025, *day, tzinfo=UTC) for day in ((3, 9), (3, 30), (4, 6), (10, 5), (10, 26), (11, 2))]
)


def minutes(begin: datetime, count: int) -> datetime:
    return begin + timedelta(minutes=count)


ANY_INSTANTS = st.builds(minutes, st.just(datetime(1980, 1, 1, tzinfo=UTC)), st.integers(0, 57 * 525_600))
CHANGING_INSTANTS = st.builds(minutes, CHANGES, st.integers(-1_440, 2_880))


def slowly_quiet(quiet: QuietHours, now: datetime) -> bool:
    """Return the same by watching that clock minute by minute for days: begun when it has shown a time that late, over when it will
    never again show one before the end."""
    if quiet.begin == quiet.end:
        return False
    zone = ZoneInfo(quiet.time_zone)

    def shown(moment: datetime) -> datetime:
        return moment.astimezone(zone).replace(tzinfo=None)

    latest = max(shown(minutes(now, -back)) for back in range(3 * 60 + 1))
    earliest = min(shown(minutes(now, ahead)) for ahead in range(3 * 60 + 1))
    nights = quiet.end < quiet.begin
    for days in range(-4, 5):
        date = shown(now).date() + timedelta(days=days)
        begin = datetime.combine(date, quiet.begin)
        end = datetime.combine(date + timedelta(days=nights), quiet.end)
        if latest >= begin and earliest < end:
            return True
    return False


@settings(max_examples=300)
@given(st.sampled_from(ZONES) | SPECIAL_ZONES, TIMES, TIMES, ANY_INSTANTS | CHANGING_INSTANTS)
@example("Pacific/Apia", time(22), time(7), datetime(2011, 12, 30, 10, 30, tzinfo=UTC))  # a day that was left out
@example("America/St_Johns", time(0, 0), time(0, 30), datetime(2006, 10, 29, 2, 40, tzinfo=UTC))  # back over midnight
def test_quiet_hours_are_what_a_patient_watcher_of_the_clock_says(
    zone: str, begin: time, end: time, now: datetime
) -> None:
    quiet = QuietHours(zone, begin, end)
    assert is_quiet_now(quiet, now) == slowly_quiet(quiet, now)


def berlin(text: str, *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).astimezone(UTC)


def in_berlin(begin: str, end: str) -> QuietHours:
    return QuietHours("Europe/Berlin", time.fromisoformat(begin), time.fromisoformat(end))


def test_a_night_over_midnight() -> None:
    night = in_berlin("22:00", "07:00")
    quiet = ["2025-06-10 22:00", "2025-06-11 00:00", "2025-06-11 06:59:59"]
    loud = ["2025-06-10 21:59:59", "2025-06-11 07:00", "2025-06-11 12:00"]
    assert [is_quiet_now(night, berlin(moment)) for moment in quiet] == [True] * 3
    assert [is_quiet_now(night, berlin(moment)) for moment in loud] == [False] * 3


def test_a_beginning_that_the_clock_jumps_over_is_reached_at_the_jump() -> None:
    begins = in_berlin("02:30", "06:00")  # on 30 March 2025 the clock went from 01:59 to 03:00
    assert not is_quiet_now(begins, berlin("2025-03-30 01:59:59"))
    assert is_quiet_now(begins, berlin("2025-03-30 03:00"))
    ends = in_berlin("22:00", "02:30")
    assert is_quiet_now(ends, berlin("2025-03-30 01:59:59"))
    assert not is_quiet_now(ends, berlin("2025-03-30 03:00"))


def test_an_hour_that_comes_twice_wakes_nobody() -> None:
    begins = in_berlin("02:30", "06:00")  # on 26 October 2025 the clock showed 02:00 to 02:59 twice
    assert not is_quiet_now(begins, berlin("2025-10-26 02:29"))
    assert is_quiet_now(begins, berlin("2025-10-26 02:30"))
    assert is_quiet_now(begins, berlin("2025-10-26 02:10", fold=1))
    ends = in_berlin("22:00", "02:30")
    assert is_quiet_now(ends, berlin("2025-10-26 02:40"))
    assert is_quiet_now(ends, berlin("2025-10-26 02:29", fold=1))
    assert not is_quiet_now(ends, berlin("2025-10-26 02:30", fold=1))


def test_half_and_quarter_hours_count() -> None:
    kathmandu = QuietHours("Asia/Kathmandu", time(22), time(7))  # 5:45 ahead of UTC
    assert not is_quiet_now(kathmandu, datetime(2025, 6, 10, 16, 14, tzinfo=UTC))
    assert is_quiet_now(kathmandu, datetime(2025, 6, 10, 16, 15, tzinfo=UTC))
    assert not is_quiet_now(kathmandu, datetime(2025, 6, 11, 1, 15, tzinfo=UTC))


@given(TIMES, ANY_INSTANTS)
def test_hours_that_end_when_they_begin_are_never_quiet(moment: time, now: datetime) -> None:
    assert not is_quiet_now(QuietHours("Europe/Berlin", moment, moment), now)
    assert not is_quiet_now(None, now)


@every_case("zone", ["Mars/Olympus", "", "../../etc/passwd", "\0", "Europe", "localtime", "/etc/localtime"])
def test_an_unknown_zone_counts_as_utc(zone: str) -> None:
    assert is_quiet_now(QuietHours(zone, time(12), time(13)), NOW)
    assert not is_quiet_now(QuietHours(zone, time(13), time(14)), NOW)


# ---- zones


def test_every_zone_keeps_its_name() -> None:
    assert [check_time_zone(zone) for zone in ZONES] == ZONES


def test_capitals_and_spaces_around_don_t_matter() -> None:
    assert check_time_zone(" europe/berlin ") == "Europe/Berlin"
    assert check_time_zone("utc") == "UTC"


def test_a_typo_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match=r'There is no time zone "Europe/Berln"\. Did you mean Europe/Berlin\?'):
        check_time_zone("Europe/Berln")
    with pytest.raises(InvalidInput, match=r'Use a name such as "Europe/Berlin"'):
        check_time_zone("my place")


HOSTILE = ["../../etc/passwd", "/etc/passwd", "Europe/../../../etc/passwd", "\0", "Europe/Berlin\0", "", ".", "Europe"]


@every_case("name", [*HOSTILE, "Europe\\Berlin", "x" * 100_000, "\u202eUTC", "C:\\Windows", "localtime"])
def test_a_hostile_name_is_refused_without_asking_the_file_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_time_zone("UTC")  # the list of zones is read once, by the names that it holds

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("the file system was asked")

    monkeypatch.setattr("rapport.followups.gates.ZoneInfo", touched)
    monkeypatch.setattr("builtins.open", touched)
    with pytest.raises(InvalidInput) as refused:
        check_time_zone(name)
    assert len(str(refused.value)) < 200
    assert str(refused.value).isprintable()


@given(st.text(max_size=30).filter(lambda name: name.strip().lower() not in {zone.lower() for zone in ZONES}))
def test_any_other_text_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^There is no time zone"):
        check_time_zone(name)

"""Test `rapport timers`, and follow-ups in `rapport chat`, with the real commands."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any, TypeAlias

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapport.cli.follow_up_output import describe_due_time
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up_requests import FOREVER, parse_duration, parse_moment, parse_time_of_day
from rapport.domain.ids import new_id
from tests.support.cases import every_case
from tests.support.commands import COMMAND, Home, Run, Terminal

Sql: TypeAlias = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def sql(database_url: str) -> Sql:
    def run(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def conversation(sql: Sql) -> str:
    return begin(sql)


def begin(sql: Sql, owner: str = "local", agent: str = "companion", kind: str = "direct") -> str:
    id_ = new_id()
    sql(
        "INSERT INTO conversations (id, owner_id, agent_id, kind, channel) VALUES (%s, %s, %s, %s, 'api')",
        *(id_, owner, agent, kind),
    )
    return id_


def due_in(sql: Sql, timer: str) -> float:
    rows = sql("SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM timers WHERE timer_id = %s", timer)
    return rows[0][0]


@pytest.mark.e2e
def test_a_follow_up_is_set_listed_postponed_and_cancelled(rapport: Run, sql: Sql, conversation: str) -> None:
    assert rapport("timers", "list").out == "No follow-up waits.\n"
    made = rapport(
        *("timers", "set", conversation, "check_in", "90s", "--name", "dentist", "--reason", "[red]at nine\x1b[31m")
    )
    assert (made.code, made.err) == (0, "")
    assert re.fullmatch(r"dentist is due in 1m (30|29|28)s \(.*\)\.\n", made.out)
    again = rapport("timers", "set", conversation[:20].lower(), "task_incomplete", "2h", "--reason", "the report")
    assert again.code == 0
    listed = rapport("timers", "list").out.splitlines()
    assert len(listed) == 3
    assert re.search(rf"{conversation} +dentist +check_in +in 1m .* by hand +\[red\]at nine", listed[1])
    assert "\x1b" not in "".join(listed)
    assert "task_incomplete" in listed[2]
    assert "in 1h 59m" in listed[2] or "in 2h" in listed[2]

    moved = rapport("timers", "postpone", conversation, "dent", "1d")
    assert (moved.code, moved.err) == (0, "")
    assert 86_000 < due_in(sql, "dentist") <= 86_400
    assert rapport("timers", "cancel", conversation, "den").out == "Cancelled dentist.\n"
    assert sql("SELECT count(*) FROM timers WHERE timer_id = 'dentist'") == [(0,)]


@pytest.mark.e2e
def test_what_cannot_be_done_is_one_line(home: Home, sql: Sql, conversation: str, database_url: str) -> None:
    begin(sql)
    theirs = begin(sql, owner="ana")
    sql(
        "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)"
        " SELECT %s, n, n, 'local', 'check_in', 'user', 0, now() + interval '1 day' FROM unnest(%s::text[]) n",
        *(conversation, ["tea-1", "tea-2"]),
    )
    for arguments, told in (
        (["cancel", conversation, "coffee"], "may have fired"),
        (["cancel", conversation, "tea"], "Several follow-ups begin with 'tea': tea-1, tea-2"),
        (["cancel", conversation, ""], "may have fired"),
        (["cancel", theirs, "tea-1"], "There is no conversation"),
        (["cancel", "01", "tea-1"], "Several conversations begin with '01'"),
        (["cancel", "%", "tea-1"], "There is no conversation"),
        (["cancel", "", "tea-1"], "There is no conversation"),
        (["postpone", conversation, "tea-1", "soon"], "not a duration: write 90s"),
        (["postpone", conversation, "tea-1", "31d"], "1 second to 30 days"),
        (["set", conversation, "poke", "10m"], "there are check_in, question_unanswered, task_incomplete"),
        (["set", conversation, "check_in", "0.5s"], "1 second to 30 days"),
        (["set", conversation, "check_in", "10m", "--name", "a b"], "1 to 64 of the characters"),
        (["set", conversation, "check_in", "10m", "--reason", "x" * 501], "501 characters"),
        (["mute", conversation, "4000d"], "without a duration it is for good"),
        (["quiet", "22:00"], "a beginning and an end"),
        (["quiet", "22:00", "25:00"], "not a time of day"),
        (["quiet", "22:00", "08:00", "--zone", "../../etc/passwd"], "There is no time zone"),
    ):
        assert told in home.fails("timers", *arguments, DATABASE_URL=database_url), arguments
    assert sql("SELECT count(*) FROM timers") == [(2,)]


@pytest.mark.e2e
def test_mute_and_the_switch(rapport: Run, sql: Sql, conversation: str) -> None:
    def state() -> list[tuple[Any, ...]]:
        return sql(
            "SELECT autonomy_enabled, round(extract(epoch FROM muted_until - clock_timestamp()) / 3600)::int"
            " FROM conversations WHERE id = %s",
            conversation,
        )

    assert re.fullmatch(r"Follow-ups are muted until \d{4}-.*\.\n", rapport("timers", "mute", conversation, "8h").out)
    assert state() == [(None, 8)]
    assert rapport("timers", "mute", conversation).out == "Follow-ups are muted for good.\n"
    assert "muted for good" in rapport("timers", "set", conversation, "check_in", "10m").out
    assert rapport("timers", "unmute", conversation).out == "Follow-ups are not muted.\n"
    assert rapport("timers", "off", conversation).out == "Follow-ups are off.\n"
    assert state() == [(False, None)]
    assert "as long as follow-ups are off here" in rapport("timers", "set", conversation, "check_in", "10m").out
    assert rapport("timers", "on", conversation).out == "Follow-ups are on.\n"
    assert state() == [(True, None)]
    assert len(rapport("timers", "set", conversation, "check_in", "10m").out.splitlines()) == 1
    librarian = begin(sql, agent="librarian")
    assert "librarian never follows up" in rapport("timers", "set", librarian, "check_in", "10m").out


@pytest.mark.e2e
def test_quiet_hours(rapport: Run, sql: Sql) -> None:
    assert rapport("timers", "quiet").out == "There are no quiet hours. The time zone is UTC.\n"
    told = "It is quiet from 22:00 to 08:00, Europe/Berlin.\n"
    assert rapport("timers", "quiet", "22:00", "8:00", "--zone", "europe/berlin").out == told
    assert rapport("timers", "quiet").out == told
    assert rapport("timers", "quiet", "--user", "ana").out == "There are no quiet hours. The time zone is UTC.\n"
    assert rapport("timers", "quiet", "off").out == "There are no quiet hours. The time zone is Europe/Berlin.\n"
    assert sql("SELECT * FROM preferences") == [("local", "Europe/Berlin", None, None)]


@pytest.mark.e2e
def test_what_became_of_them_is_listed_and_counted(rapport: Run, sql: Sql, conversation: str) -> None:
    assert "None has fired yet." in rapport("timers", "list", "--all").out
    for state, gate in (("delivered", None), ("delivered", None), ("suppressed", "muted"), ("expired", None)):
        sql(
            "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, state, gate, due_at,"
            " fired_at, ended_at) VALUES (%s, %s, 'past', 'local', 'task_incomplete', 'planner', 0, %s, %s, now(), now(), now())",
            *(conversation, new_id(), state, gate),
        )
    other = begin(sql)
    assert "suppressed: muted" in rapport("timers", "list", "--all").out
    assert "suppressed" not in rapport("timers", "list", "--all", "--conversation", other).out
    assert "suppressed" not in rapport("timers", "list", "--all", "--user", "ana").out
    lines = rapport("timers", "stats").out.splitlines()
    row = next(line for line in lines if line.strip().startswith("task_incomplete"))
    assert row.split() == ["task_incomplete", "3", "2", "1", "0", "0", "0", "1", "0", "0%"]
    assert lines[-1] == "Held back by: muted 1."
    sql("UPDATE timers SET prompt_variant = 'kind' WHERE state = 'delivered'")
    lines = rapport("timers", "stats").out.splitlines()
    assert lines[-3:] == [
        "Prompts, with 95 % intervals of the answer rate:",
        "companion: task_incomplete, kind",
        "  2 fired, 0 of 2 answered, 0–66 %; too few to compare",
    ]


@pytest.mark.e2e
def test_follow_ups_are_seen_and_muted_in_a_chat(rapport: Run, home: Home, sql: Sql, database_url: str) -> None:
    before = home.run("chat", stdin="/followups\n/mute 1h\n", DATABASE_URL=database_url).out
    assert before.count("nothing was said yet") == 2
    told = home.run(
        *("chat",),
        stdin="my name is Ana\n/mute 1h\n/followups\n/mute soon\n/unmute\n/followups\n/help\n",
        DATABASE_URL=database_url,
    ).out
    assert told.count("Follow-ups are muted until") == 2
    assert '"soon" is not a duration' in told
    assert "Follow-ups are not muted." in told
    assert "/mute 1h" in told
    assert sql("SELECT muted_until FROM conversations") == [(None,)]


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_follow_up_appears_above_what_somebody_is_typing(
    home: Home, rapport: Run, sql: Sql, database_url: str
) -> None:
    terminal = Terminal(
        home, f"env -u COLUMNS DATABASE_URL='{database_url}' {COMMAND} chat; echo left with $?; stty -a; exec cat"
    )
    try:
        terminal.shows(r"you\s*$")
        terminal.types("my name is Ana", "Enter")
        terminal.shows(r"you my name is Ana\n.*\S.*\n.*you\s*$")
        long = "wörter " * 22  # more than a row of the terminal
        terminal.types(f"{long}half a", "Space", "lone")
        terminal.types("BSpace", "BSpace", "Left", "Right", "F5")
        terminal.shows(r"half a lo\s*$")
        (conversation,) = sql("SELECT id FROM conversations")[0]
        rapport("timers", "set", conversation, "check_in", "1s")

        def followups() -> int:
            rows = sql("SELECT count(*) FROM messages WHERE metadata -> 'autonomous' = 'true'")
            return rows[0][0]

        shown = terminal.shows(r"\n\d\d:\d\d\n[^\n]+\n\nyou (wörter ){16}wört\ner (wörter ){5}half a lo\s*$")
        assert followups() == 1
        assert shown.count("half a") == 1
        assert shown.count("wörter") == 21
        terminal.types("ng line", "C-w", "C-u", "good", "Space", "bye", "Enter")
        shown = terminal.shows(r"you good bye\n.*you\s*$")
        assert "wörter" not in shown
        assert sql("SELECT content FROM messages WHERE role = 'user' AND NOT synthetic ORDER BY created_at")[1:] == [
            ("good bye",)
        ]
        terminal.types("C-d")
        shown = terminal.shows(r"left with \d+.*icanon")
        assert "left with 0" in shown
        assert not re.search(r"-icanon|-echo\b", shown)  # the terminal is as it was
        assert "Traceback" not in shown
    finally:
        terminal.close()


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_terminal_is_as_it_was_after_a_chat_was_stopped_or_ended_from_outside(
    home: Home, database_url: str
) -> None:
    terminal = Terminal(home, f"env -u COLUMNS PS1='$ ' DATABASE_URL='{database_url}' bash --norc --noprofile -m")
    try:
        terminal.types(f"{COMMAND} chat", "Enter")
        terminal.shows(r"you\s*$")
        terminal.types("half a line")
        terminal.shows(r"you half a line\s*$")
        terminal.types("C-z")
        terminal.shows(r"Stopped.*\$\s*$")
        terminal.types("echo between", "Enter")
        terminal.shows(r"\$ echo between\nbetween\n")
        terminal.types("fg", "Enter")
        terminal.shows(r"chat\nyou half a line\s*$")
        terminal.types("C-z")
        terminal.shows(r"Stopped.*Stopped.*\$\s*$")
        terminal.types("kill %1; fg", "Enter")
        terminal.shows(r"kill %1; fg\n.*\$\s*$")
        terminal.types("stty -a", "Enter")
        assert not re.search(r"-icanon|-echo\b", terminal.shows(r"\$ stty -a\n.*icanon"))
    finally:
        terminal.close()


# ---- what is written


@every_case(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), (" 1.5H ", 5400), ("1d2h3m4s", 93_784)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.text(max_size=30))
def test_whatever_is_written_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except InvalidInput as error:
        told = str(error)
    else:
        told = f"{seconds:.0f} seconds"
        assert seconds >= 0
    assert 0 < len(told) < 200


@every_case("text", ["", "10", "m", "-5m", "10 m", "1w", "1e3s", "٣m", "1h" * 20, "9" * 30 + "d", "NaNs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a duration"):
        parse_duration(text)


def test_hours_and_moments_are_read_strictly() -> None:
    assert (parse_time_of_day("7:05"), parse_time_of_day("00:00"), parse_time_of_day("23:59")) == (
        time(7, 5),
        time(0),
        time(23, 59),
    )
    for text in ("7", "7:5", "24:00", "12:00:00", "٠٧:٠٠", "12:00\n\n1"):
        with pytest.raises(InvalidInput):
            parse_time_of_day(text)
    assert parse_moment("2026-11-16T08:00:00+02:00") == datetime(2026, 11, 16, 6, tzinfo=UTC)
    assert parse_moment("9999-12-31T23:59:59-23:59") == FOREVER
    for text in ("2026-11-16", "2026-11-16T08:00:00", "08:00Z", "infinity", "now"):
        with pytest.raises(InvalidInput):
            parse_moment(text)


def test_when_something_is_due_is_said_in_two_units() -> None:
    now = datetime(2026, 11, 16, 12, tzinfo=UTC)
    for seconds, told in (
        (0, "now"),
        (-5, "now"),
        (59, "in 59s"),
        (61, "in 1m 1s"),
        (7260, "in 2h 1m"),
        (90_061, "in 1d 1h"),
    ):
        assert describe_due_time(now + timedelta(seconds=seconds), now).startswith(f"{told} (")

"""Test `rapport reminders`, and reminders in `rapport chat`, with the real commands (REM)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest

from tests.cli.test_timers import begin
from tests.support.commands import COMMAND, Home, Run, Terminal

pytestmark = pytest.mark.e2e

Sql: TypeAlias = Callable[..., list[tuple[Any, ...]]]
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).date()


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


def added(rapport: Run, *arguments: str) -> tuple[str, str]:
    """Add a reminder; return its id and what the command says of its time."""
    made = rapport("reminders", "add", *arguments)
    assert (made.code, made.err) == (0, ""), made
    told = re.fullmatch(r"([0-9A-Z]{26}) is set for (.*)\.\n", made.out)
    assert told is not None, made.out
    return told[1], told[2]


def test_a_reminder_is_set_listed_snoozed_skipped_exported_and_cancelled(
    rapport: Run, conversation: str, tmp_path: Path
) -> None:
    assert rapport("reminders", "list").out == "No reminder waits.\n"
    rapport("timers", "quiet", "--zone", "Europe/Vienna")
    tea, when = added(
        rapport, conversation[:20].lower(), "[red]tea\x1b[31m", "--at", f"{TOMORROW}T09:00", "--repeat", "daily"
    )
    assert when == f"{TOMORROW:%a} {TOMORROW.day} {TOMORROW:%b %Y}, 09:00 (Europe/Vienna), every day"
    pay, _ = added(rapport, conversation, "pay", "--in", "2h")
    lines = rapport("reminders", "list", "--conversation", conversation).out.splitlines()
    assert [line.strip() for line in lines if line.startswith("  ")][1::2] == ["pay", "[red]tea[31m"]
    assert lines[0] == f"{conversation}  {pay}"

    skipped = rapport("reminders", "skip", tea.lower()).out
    later = TOMORROW + timedelta(days=1)
    assert f"{tea} comes next {later:%a} {later.day} {later:%b %Y}, 09:00 (Europe/Vienna)" in skipped
    assert f"{pay} is due " in rapport("reminders", "snooze", pay, "1d").out
    snoozed = rapport("reminders", "snooze", pay, f"{later}T10:30").out
    assert f"{later:%a} {later.day} {later:%b %Y}, 10:30 (Europe/Vienna)" in snoozed

    assert rapport("reminders", "export", "mine.ics").out == "2 reminders are in mine.ics.\n"
    written = (tmp_path / "mine.ics").read_bytes()
    assert written.count(b"BEGIN:VEVENT\r\n") == 2
    assert rapport("reminders", "export").out.startswith("BEGIN:VCALENDAR")
    assert rapport("reminders", "cancel", tea).out == f"Cancelled {tea}.\n"
    assert tea not in rapport("reminders", "list").out
    assert "cancelled; it was for" in rapport("reminders", "list", "--all").out


def test_what_cannot_be_done_is_one_line(
    rapport: Run, home: Home, sql: Sql, conversation: str, database_url: str
) -> None:
    theirs = begin(sql, owner="ana")
    one, _ = added(rapport, conversation, "one", "--in", "2h")
    two, _ = added(rapport, conversation, "two", "--in", "3h")
    shared = next(one[:length] for length in range(26, 0, -1) if two.startswith(one[:length]))
    for arguments, told in (
        (["add", conversation, "tea"], "Say when: with --at, --in, --repeat or --rrule."),
        (["add", conversation, "tea", "--in", "2h", "--at", "2030-01-01T09:00"], "Give --at or --in, not both."),
        (["add", conversation, "tea", "--repeat", "daily", "--rrule", "FREQ=DAILY"], "Give --repeat or --rrule"),
        (["add", conversation, "tea", "--at", "tomorrow"], "A time must be in ISO 8601"),
        (["add", conversation, "tea", "--at", "2020-01-01T09:00"], "within 50 years"),
        (["add", conversation, "tea", "--in", "999999999d"], "too long"),
        (["add", conversation, "tea", "--rrule", "FREQ=SECONDLY"], "at most one an hour"),
        (["add", conversation, " ", "--in", "2h"], "is empty"),
        (["add", theirs, "tea", "--in", "2h"], "There is no conversation"),
        (["snooze", one, "2000d"], "within a year"),
        (["snooze", one, "soon"], "not a duration"),
        (["skip", one], "This reminder comes once: cancel it instead."),
        (["cancel", "0000"], "No reminder that begins with '0000' waits."),
        (["cancel", shared], f"Several reminders begin with '{shared}'"),
        (["export", "no/such/folder.ics"], "can't be written"),
    ):
        assert told in home.fails("reminders", *arguments, DATABASE_URL=database_url), arguments
    assert sql("SELECT count(*) FROM reminders WHERE state = 'waiting'") == [(2,)]


def test_a_mute_says_how_many_reminders_wait(rapport: Run, conversation: str) -> None:
    added(rapport, conversation, "one", "--in", "2h")
    assert rapport("timers", "mute", conversation, "8h").out.endswith(" 1 reminder waits until then.\n")
    added(rapport, conversation, "two", "--in", "20h")
    assert rapport("timers", "mute", conversation, "8h").out.endswith(" 1 reminder waits until then.\n")
    assert rapport("timers", "mute", conversation).out == (
        "Follow-ups are muted for good. 2 reminders wait until the mute is ended.\n"
    )
    assert rapport("timers", "unmute", conversation).out == "Follow-ups are not muted.\n"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_reminder_is_listed_and_said_in_a_chat(home: Home, rapport: Run, sql: Sql, database_url: str) -> None:
    terminal = Terminal(home, f"env -u COLUMNS DATABASE_URL='{database_url}' {COMMAND} chat; exec cat")
    try:
        terminal.shows(r"you\s*$")
        terminal.types("my name is Ana", "Enter")
        terminal.shows(r"you my name is Ana\n.*\S.*\n.*you\s*$")
        (conversation,) = sql("SELECT id FROM conversations")[0]
        terminal.types("/reminders", "Enter")
        terminal.shows(r"no reminder waits\n.*you\s*$")
        reminder, _ = added(rapport, conversation, "call mum", "--in", "20h")
        terminal.types("/reminders", "Enter")
        terminal.shows(rf"{reminder}\n[^\n]*\(UTC\)\n\s*call mum\n.*you\s*$")
        sql("UPDATE reminders SET due_at = clock_timestamp()")
        terminal.types("half a line")
        terminal.shows(r"\n\d\d:\d\d\nReminder: call mum\s*\n\n+you half a line\s*$")
    finally:
        terminal.close()

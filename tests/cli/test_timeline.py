"""Test the timeline of a call, on terminals of any width and in pipes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from rapport.cli.timeline import REASONS, ChoiceReason, TimelineView, UsedSource, draw, span
from rapport.domain.conversation import Author, Conversation, Message
from rapport.turns.explain import describe_tool
from tests.support.cases import every_case

NOW = datetime(2025, 10, 7, 14, 5, tzinfo=UTC)
GATHERING = Conversation("01K6ZZQ4T9V0E7M3K2N5R6S8XY", "local", "companion", "group", "api", "Gathering", NOW, NOW)
DAY = 1_440


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def said(id_: str, who: str, text: str, *, ago: float, **more: Any) -> Message:
    return Message(id_, GATHERING.id, "user", text, NOW - timedelta(minutes=ago), Author(who, who), **more)


def answered(id_: str, text: str, *, ago: float) -> Message:
    return Message(id_, GATHERING.id, "assistant", text, NOW - timedelta(minutes=ago), is_bot=True)


A = said("A", "Ana", "We should look at the restaurant for the gathering", ago=3 * DAY)
MATCH = [said(f"m{n}", "Dora", "Did anybody see the match? " * 10, ago=3 * DAY - 5 - n) for n in range(2)]
B = said("B", "Ben", "Any thoughts?", ago=2 * DAY, reply_to_id="A")
PAPER = [said(f"p{n}", "Dora", "The printer is out of paper.", ago=2 * DAY - 30 - 30 * n) for n in range(14)]
C = said("C", "Cleo", "The thai restaurant on 10th Ave?", ago=10)
D = said("D", "Ana", "@bot", ago=0)
REPLY = answered("R", "The Thai place it is.\n\nCall before Friday.", ago=-1)
WHY = {
    "A": ChoiceReason(("anchor",), 0.93),
    "B": ChoiceReason(("topic",), 0.31),
    "C": ChoiceReason(("session", "topic"), 0.6),
}


def told(*messages: Message, chosen: dict[str, ChoiceReason] | None = None, **more: Any) -> TimelineView:
    why = {**(WHY if chosen is None else chosen), "D": ChoiceReason(("trigger",), 1.0)}
    details: dict[str, Any] = {"strategy": "relevant", "is_stored": True, "anchor": A, **more}
    return TimelineView(GATHERING, "Companion", D, messages=[*messages, D], chosen=why, **details)


def drawn(what: TimelineView, *, width: int | None = None, colour: bool = False) -> str:
    """Render it for a terminal of this width, or for a pipe without a width."""
    file = io.StringIO()
    draw(Console(file=file, force_terminal=width is not None, width=width, no_color=not colour, highlight=False), what)
    return file.getvalue()


def test_chosen_and_skipped_silences_and_the_reply_in_a_pipe() -> None:
    shown = drawn(told(A, *MATCH, B, *PAPER, C, reply=REPLY))
    assert "\x1b" not in shown
    match = " ".join(["Did anybody see the match?"] * 10)
    assert shown.splitlines() == [
        "Gathering  group, with Companion  01K6ZZQ4T9V0E7M3K2N5R6S8XY",
        "relevant (message by message): 3 earlier messages for the call on Tue 7 Oct 2025, 14:05 UTC, as the reply was given",
        'It is about Ana, Sat 4 Oct 14:05: "We should look at the restaurant for the gathering"',
        "",
        "Sat 4 Oct 2025",
        " ● 14:05  Ana  We should look at the restaurant for the gathering",
        "          ▰▰▰▰▰▰▰▰▰▱ 0.93 anchor",
        f" · 14:10  Dora  {match}",
        f" · 14:11  Dora  {match}",
        "          ── one day ──",
        "Sun 5 Oct 2025",
        " ● 14:05  Ben ↩ Ana, 14:05 on 4 Oct  Any thoughts?",
        "          ▰▰▰▱▱▱▱▱▱▱ 0.31 topic",
        "          … 14 skipped over six hours",
        "          ── two days ──",
        "Tue 7 Oct 2025",
        " ● 13:55  Cleo  The thai restaurant on 10th Ave?",
        "          ▰▰▰▰▰▰▱▱▱▱ 0.60 session, topic",
        " ▶ 14:05  Ana  @bot",
        "          the call",
        " ◀ 14:06  ◆ Companion  The Thai place it is. Call before Friday.",
        "",
        "anchor      what the call is about: what it replies to, or else the asker's own latest words",
        "session     said in one go with what follows it, without a long silence",
        "topic       continues or answers something that is chosen",
    ]


def test_on_a_terminal_what_is_chosen_is_lit_and_the_rest_is_dim() -> None:
    shown = drawn(told(A, *MATCH, B, C, reply=REPLY), width=100, colour=True)
    lit = next(line for line in shown.splitlines() if "We should look" in line and "●" in line)
    dim = next(line for line in shown.splitlines() if "the match" in line)
    assert "\x1b[1;32m●" in lit
    assert "\x1b[2m" not in lit
    assert "\x1b[2mDora" in dim
    assert dim.endswith("…\x1b[0m")  # one row of what was skipped is enough
    assert "\x1b[1;35m◆ Companion" in shown


@every_case("width", [10, 20, 40, 49, 50, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    asian = said("C", "李" * 30, "泰国餐厅" * 60, ago=10)
    shown = drawn(
        told(
            A,
            *MATCH,
            B,
            *PAPER,
            asian,
            reply=REPLY,
            notes=[UsedSource("menu", 0.5, "x" * 300)],
            whole_from=B.created_at,
        ),
        width=width,
    )
    for line in shown.splitlines():
        visible = line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert cell_len(visible) <= max(width, 12), line
    assert "Friday" in shown


def test_a_terminal_shows_what_others_wrote_and_does_not_obey_it() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202eevil [bold]markup[/bold]\n ● 13:56  Ana  I never said this"
    hostile = [
        said("C", f"◆ Companion{evil}", evil, ago=10),
        Message("e", GATHERING.id, "user", [{"type": "image"}, {"type": "text", "text": evil}], NOW, None),
    ]
    chosen = {"C": ChoiceReason((evil,), 0.5), "e": ChoiceReason(("topic",), 7.0)}
    evil_reply = answered("R", evil, ago=0)
    for width in (None, 120):
        shown = drawn(
            told(*hostile, chosen=chosen, anchor=hostile[0], reply=evil_reply, notes=[UsedSource(evil, -1.0, evil)]),
            width=width,
        )
        for mark in ("\x1b]", "\x1b[2J", "\x07", "\u202e"):
            assert mark not in shown
        assert "[bold]markup[/bold]" in shown
        assert not any(line.startswith(" ● 13:56") for line in shown.splitlines())
        assert "[image] " in shown
        assert shown.count("◆") == 1  # nobody else speaks as the agent


def test_an_anchor_from_long_ago_stands_alone() -> None:
    shown = drawn(told(A, C, whole_from=C.created_at))
    lines = [line.strip() for line in shown.splitlines()]
    place = lines.index("… others between them skipped")
    assert lines[place - 2].endswith("We should look at the restaurant for the gathering")
    assert lines[place + 1] == "── three days ──"


def test_it_begins_with_the_oldest_chosen_message() -> None:
    shown = drawn(told(*MATCH, *PAPER, C, chosen={"C": WHY["C"]}))
    assert "Dora" not in shown
    assert "skipped" not in shown


def test_what_was_said_unasked_has_no_call() -> None:
    unasked = TimelineView(
        GATHERING, "Companion", None, "recent", True, [B, C], {"C": ChoiceReason(("recent",), 1.0)}, reply=REPLY
    )
    shown = drawn(unasked)
    assert "1 earlier message for what was said unasked on Tue 7 Oct 2025, 14:06 UTC" in shown
    assert [line[:2] for line in shown.splitlines() if re.match(r" [●·▶◀]", line)] == [" ●", " ◀"]


def test_where_a_reply_goes_that_is_not_on_the_page() -> None:
    gone = said("C", "Cleo", "That one", ago=10, reply_to_id="gone")
    older = said("E", "Ben", "This one", ago=9, context_snapshot={"text": "before the bot came"})
    shown = drawn(told(gone, older, chosen={"C": WHY["C"], "E": WHY["C"]}, anchor=None))
    assert "Cleo ↩ something older  That one" in shown
    assert "Ben ↩ something older  This one" in shown
    assert "It is about" not in shown


def test_what_would_be_chosen_and_what_was_used_besides() -> None:
    shown = drawn(
        told(
            A,
            *MATCH,
            C,
            is_stored=False,
            reply=REPLY,
            passed_over={"m0": 0.04},
            memories=[UsedSource("01K", 0.71, "Ana likes Thai food.")],
            notes=[UsedSource("menu", 0.5)],
            looked_up=["get_message", "search_conversation"],
            tools=[describe_tool({"name": "files__write", "server": "files", "state": "denied"})],
        )
    )
    assert "as it would be chosen now" in shown
    assert "Friday.\n          said then, and made from what was chosen then\n" in shown
    assert " · 14:10  Dora  (0.04) Did anybody" in shown
    assert "Memories\n ▰▰▰▰▰▰▰▱▱▱ 0.71 01K  Ana likes Thai food.\n\nNotes\n ▰▰▰▰▰▱▱▱▱▱ 0.50 menu\n" in shown
    assert "The model looked further by itself: get_message, search_conversation.\n" in shown
    assert "Tools\n `write` of files (not allowed)\n" in shown


def test_every_reason_is_explained() -> None:
    from typing import get_args

    from rapport.domain.context_selection import Reason

    assert set(REASONS) == set(get_args(Reason))


@every_case(
    ("lasted", "words"),
    [
        (timedelta(seconds=20), "a moment"),
        (timedelta(minutes=1), "one minute"),
        (timedelta(minutes=61), "one hour"),
        (timedelta(hours=5, minutes=40), "six hours"),
        (timedelta(hours=23), "one day"),
        (timedelta(days=2), "two days"),
        (timedelta(days=13), "two weeks"),
        (timedelta(days=20), "three weeks"),
        (timedelta(days=90), "three months"),
        (timedelta(days=500), "17 months"),
        (timedelta(days=3_650), "ten years"),
    ],
)
def test_how_long_a_silence_was(lasted: timedelta, words: str) -> None:
    assert span(lasted) == words

"""Test commands on Telegram: their effects and their answers (AUTO-12)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from markdown_it import MarkdownIt
from psycopg.types.json import Jsonb

from rapport.agents.document import read_document
from rapport.agents.profiles import COMPANION
from rapport.channels.telegram.commands.command import FOR_ADMINS
from rapport.channels.telegram.commands.notice_text import WallClock, escape_markdown, quote
from rapport.channels.telegram.commands.run_command import (
    COMMANDS,
    Command,
    CommandContext,
    IsAdmin,
    press_button,
    run_command,
)
from rapport.channels.telegram.commands.why import HOW_TO_ASK, NOTHING_SAID
from rapport.core.turn_runner import Ticket
from rapport.domain.caller import Caller, choose_default_role
from rapport.domain.conversation import Author, Conversation, Incoming, Message
from rapport.domain.errors import Transient
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, TriggerType
from rapport.domain.follow_up_requests import FOREVER, Permission, Preference
from rapport.domain.memory import MemoryCandidate
from rapport.domain.outgoing import Notice
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.followups.preferences import Preferences
from rapport.storage.followups.timers import Timers
from rapport.storage.messages.messages import Messages
from tests.support.cases import every_case
from tests.support.world import World, open_world
from tests.turns.test_chime_in import CARA, DAN, HOW_LONG, REFUNDS, challenge, crowd, said

ANA, BEN = Author("user1", "Ana"), Author("user2", "Ben")
INTERNAL = re.compile(
    r"conversation id|timer|synthetic|gate\b|trigger|anchor|reply_chain|semantic|receipt|strategy|check_in|"
    + "|".join(TRIGGER_TYPES[1:])
)


async def always() -> bool:
    return True


async def never() -> bool:
    return False


async def must_not_be_asked() -> bool:
    raise AssertionError("the platform need not be asked")


def make_context(world: World, *, autonomy: bool = True) -> CommandContext:
    return CommandContext(world.app.core, autonomy)


async def found(world: World, where: str, owner: str = "local") -> Conversation:
    async with world.database.statement() as connection:
        return await Conversations(connection).get(owner, where)


async def message(world: World, where: str, id_: str) -> Message:
    async with world.database.statement() as connection:
        kept = await Messages(connection).get("local", where, id_)
    assert kept is not None
    return kept


async def asked(
    world: World,
    where: str,
    command: str,
    *,
    by: Author = ANA,
    is_admin: IsAdmin = must_not_be_asked,
    autonomy: bool = True,
    **more: Any,
) -> Notice:
    """Return the notice of a command, and assert that it names no internals."""
    name, _, argument = command.removeprefix("/").partition(" ")
    facts: dict[str, Any] = {"replied_to": None, "bot_username": "my_cool_bot", **more}
    conversation = await found(world, where)
    facts["agent"] = await world.app.core.agents.get_for_conversation(conversation)
    order = Command(name, argument, conversation, by, is_admin, **facts)
    notice = await run_command(order, make_context(world, autonomy=autonomy))
    assert notice is not None
    assert INTERNAL.search(notice.text) is None, notice.text
    return notice


async def told(world: World, where: str, command: str, **more: Any) -> str:
    """Return the notice as people see it."""
    return shown((await asked(world, where, command, **more)).text)


def html(markdown: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).render(markdown)


def shown(markdown: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html(markdown))).strip()


async def permission(world: World, where: str) -> Permission:
    async with world.database.statement() as connection:
        return await Conversations(connection).get_permission("local", where)


async def waits(world: World, where: str, kind: TriggerType, minutes: float, **more: Any) -> None:
    async with world.database.statement() as connection:
        timers = Timers(connection)
        await timers.set("local", where, timer_id=kind, trigger_type=kind, delay=minutes * 60, **more)


async def left(world: World, where: str) -> list[tuple[Any, ...]]:
    """Count what is left of a conversation: its row, messages, events and timers."""
    return await world.sql(
        "SELECT (SELECT count(*) FROM conversations WHERE id = w), (SELECT count(*) FROM messages WHERE conversation_id = w),"
        " (SELECT count(*) FROM events WHERE conversation_id = w), (SELECT count(*) FROM timers WHERE conversation_id = w)"
        " FROM (SELECT %s::text AS w) AS here",
        where,
    )


# ---- who I am


def test_the_commands_are_as_the_platform_wants_them() -> None:
    assert [name for name, _ in COMMANDS] == [
        "start",
        "help",
        "mute",
        "unmute",
        "followups",
        "reminders",
        "agent",
        "forget",
        "why",
    ]
    for name, does in COMMANDS:
        assert re.fullmatch(r"[a-z0-9_]{1,32}", name)
        assert 3 <= len(does) <= 256


@pytest.mark.parametrize("kind", ["direct", "group"])
async def test_every_command_is_answered_and_helped_with(world: World, kind: str) -> None:
    where = await world.conversation(kind=kind)
    helped = await told(world, where, "/help")
    for name, _ in COMMANDS:
        assert f"/{name}" in helped
        assert await told(world, where, f"/{name.upper()}", is_admin=always)


async def test_what_is_no_command_of_ours_is_left_alone(world: World) -> None:
    where = await found(world, await world.conversation())
    for name in ("settings", "", "mute2", "forgetyes"):
        order = Command(name, "", where, ANA, must_not_be_asked, None, "my_cool_bot", COMPANION)
        assert await run_command(order, make_context(world)) is None


async def test_whoever_starts_is_greeted_by_name_and_told_what_is_stored(world: World) -> None:
    where = await world.conversation()
    hello = await told(world, where, "/start ref_123", by=Author("user9", "**Zoë** [x](http://y)"))
    assert hello.startswith("Hello, **Zoë** [x](http://y)! I'm Companion.")
    assert "/help" in hello
    assert "/forget" in hello
    assert "on my own" in hello
    assert "on my own" not in await told(world, where, "/start", autonomy=False)


async def test_a_group_learns_how_to_call_the_bot_and_what_it_hears(world: World) -> None:
    where = await world.conversation(kind="group")
    assert "Tag me (@my_cool_bot)" in await told(world, where, "/start")
    helped = await told(world, where, "/help", bot_username="@my_cool_bot")
    assert "Tag me (@my_cool_bot)" in helped
    assert "privacy mode" in helped
    assert "privacy mode" not in await told(world, await world.conversation(), "/help")


# ---- what I may say on my own


async def test_a_muted_chat_hears_nothing_unasked_until_it_is_unmuted(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "I'll call the bank")
    before = datetime.now(UTC)
    muted = await told(world, where, "/mute 1h")
    until = (await permission(world, where)).muted_until
    assert until is not None
    assert timedelta(minutes=59) < until - before < timedelta(minutes=61)
    assert re.match(
        r"Muted until (\w{3} \d+ \w{3}(?: \d{4})?, )?\d\d:\d\d \(UTC\): I don't write on my own here\.", muted
    )
    assert f"{until:%H:%M}" in muted
    assert "either" not in muted
    assert (await world.silence(where)).gate == "muted"
    assert "I'm muted until" in await told(world, where, "/followups")
    unmuted = await told(world, where, "/unmute")
    assert unmuted.startswith("Unmuted. Follow-ups are on here")
    assert (await world.silence(where)).state == "delivered"


@every_case(("written", "minutes"), [("1h 30m", 90), ("2 h", 120), (" 1d ", 1_440), ("1 H 30 M", 90), ("\n45m\n", 45)])
async def test_durations_may_be_written_with_spaces(world: World, written: str, minutes: float) -> None:
    where = await world.conversation()
    await asked(world, where, f"/mute {written}")
    until = (await permission(world, where)).muted_until
    assert until is not None
    assert abs((until - datetime.now(UTC)).total_seconds() - minutes * 60) < 30


@every_case("written", ["soon", "2 weeks", "-1h", "0s", "9999d", "1_000h", "`*x*` @ben", "x" * 5_000, "\ud800"])
async def test_a_wrong_duration_gets_a_sentence_and_mutes_nothing(world: World, written: str) -> None:
    where = await world.conversation()
    answer = await told(world, where, f"/mute {written}")
    assert re.search(r"is not a duration: write 90s, 10m|Mute me for 1 second to 10 years", answer)
    assert "@ben" not in answer
    assert len(answer) <= 300
    answer.encode()
    assert await permission(world, where) == Permission(None, None)


async def test_without_a_duration_it_is_until_somebody_unmutes(world: World) -> None:
    where = await world.conversation(kind="group")
    muted = await told(world, where, "/mute")
    assert muted.startswith("Muted until you send /unmute")
    assert "Follow-ups were off before" in muted
    assert (await permission(world, where)).muted_until == FOREVER
    assert await told(world, where, "/unmute") == (
        "Unmuted. Follow-ups are off here: I answer only when you mention me."
    )
    assert (await permission(world, where)).muted_until is None


async def test_times_are_by_the_clock_of_the_chats_owner(world: World) -> None:
    where = await world.conversation()
    async with world.database.statement() as connection:
        hours = {"quiet_from": datetime(1, 1, 1, 22).time(), "quiet_to": datetime(1, 1, 1, 8).time()}
        await Preferences(connection).put("local", Preference("Asia/Kathmandu", **hours))
    muted = await told(world, where, "/mute 3h")
    until = (await permission(world, where)).muted_until
    assert until is not None
    assert f"{until.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M} (Asia/Kathmandu)" in muted
    assert "Quiet hours are from 22:00 to 08:00 (Asia/Kathmandu)." in await told(world, where, "/followups")


def test_a_clock_names_the_day_where_it_is_another() -> None:
    clock = WallClock(ZoneInfo("Europe/Berlin"), datetime(2026, 11, 16, 12, 0, tzinfo=UTC))
    assert clock.format_time(datetime(2026, 11, 16, 13, 30, tzinfo=UTC)) == "14:30"
    assert clock.format_time(datetime(2026, 11, 16, 23, 30, tzinfo=UTC)) == "Tue 17 Nov, 00:30"
    assert clock.format_time(datetime(2027, 7, 1, 6, 0, tzinfo=UTC)) == "Thu 1 Jul 2027, 08:00"
    distances = [
        clock.format_distance(clock.now + timedelta(minutes=some))
        for some in (-5, 0.5, 12, 89, 120, 47 * 60, 5 * 1_440)
    ]
    assert distances == ["in a moment", "in a moment", "in 12 min", "in 89 min", "in 2 h", "in 47 h", "in 5 days"]
    assert WallClock.for_preference(Preference("Mars/Olympus")).name == "UTC"


async def test_what_waits_is_told_in_plain_words_and_goes_on_waiting(world: World) -> None:
    where = await world.conversation()
    assert "No follow-ups are planned" in await told(world, where, "/followups")
    await waits(world, where, "question_unanswered", 12, reason='The question "Which *tent*?" is still open.')
    await waits(world, where, "task_incomplete", 26 * 60, topic="tax form")
    await waits(world, where, "check_in", 3 * 1_440)
    listed = await told(world, where, "/followups")
    assert listed.startswith("Follow-ups are on here")
    first, second, third = re.findall(r"^(?:.*\d\d:\d\d .*)$", listed, re.MULTILINE)
    assert re.search(
        r"in 12 min\), about a question of mine: The question \"Which \*tent\*\?\" is still open\.$", first
    )
    assert second.endswith("(in 26 h), about a task that is still open: tax form")
    assert third.endswith("(in 3 days), to pick up our conversation")
    assert "A new message here cancels them. Times are UTC." in listed
    assert "/followups off turns them off" in listed
    assert (await left(world, where))[0][3] == 3


async def test_a_long_list_is_cut(world: World) -> None:
    where = await world.conversation()
    async with world.database.statement() as connection:
        for number in range(14):
            name, why = f"n{number}", f"reason {number} " + "*" * 400
            await Timers(connection).set(
                "local", where, timer_id=name, trigger_type="check_in", delay=3_600, reason=why
            )
    listed = await told(world, where, "/followups")
    assert listed.count("to pick up our conversation") == 10
    assert "… and 4 more" in listed
    assert len(listed) < 3_000


async def test_a_group_has_follow_ups_only_when_an_admin_wants_them(world: World) -> None:
    where = await world.conversation(kind="group")
    await world.says(where, "@bot hello", author=CARA)
    off = await told(world, where, "/followups")
    assert off.startswith("Follow-ups are off here: I answer only when you mention me.")
    assert "/followups on turns them on" in off
    await waits(world, where, "check_in", 60)
    assert "I won't send them while follow-ups are off." in await told(world, where, "/followups")
    assert await told(world, where, "/followups on", is_admin=never) == "Only an admin of this group can do that."
    assert (await permission(world, where)).autonomy is None
    assert (await world.silence(where)).gate == "conversation"
    assert (await told(world, where, "/followups ON", is_admin=always)).startswith("Follow-ups are on here")
    assert (await world.silence(where)).state == "delivered"
    assert await told(world, where, "/followups off", is_admin=never) == "Only an admin of this group can do that."
    assert (await told(world, where, "/followups off", is_admin=always)).startswith("Follow-ups are off here")
    assert (await permission(world, where)).autonomy is False


async def test_in_a_direct_chat_everybody_decides_for_themselves(world: World) -> None:
    where = await world.conversation()
    off = await told(world, where, "/followups off")
    assert off == "Follow-ups are off here: I answer only when you write to me."
    await asked(world, where, "/mute")
    on = await told(world, where, "/followups on")
    assert on.startswith("Follow-ups are on here")
    assert "I'm muted until you send /unmute" in on
    assert "/followups on or /followups off" in await told(world, where, "/followups maybe")


async def test_a_command_promises_no_follow_ups_that_the_server_forbids(world: World) -> None:
    where = await world.conversation()
    for command in ("/followups", "/followups on", "/unmute"):
        assert "off on this server" in await told(world, where, command, autonomy=False)
    assert (await permission(world, where)).autonomy is None
    strict = await world.conversation(agent_id="librarian")
    assert await told(world, strict, "/followups") == "Librarian never writes on its own."


# ---- what I have stored


async def full(world: World, **settings: Any) -> str:
    """Create a chat with messages and a pending timer."""
    where = await world.conversation(**settings)
    await world.says(where, "@bot I'll call the bank today", author={"id": ANA.id, "name": ANA.name})
    await waits(world, where, "check_in", 60)
    return where


def pressed(notice: Notice) -> tuple[str, str]:
    yes, no = notice.buttons
    assert all(len(button.data.encode()) <= 64 for button in notice.buttons)
    return yes.data, no.data


async def remembered(world: World, owner: str = "local", agent: str = "companion") -> int:
    return (await world.app.memory.stats(owner, agent)).count


async def test_forgetting_asks_first_and_says_what_goes(world: World) -> None:
    where = await full(world)
    for fact in ("The user lives in Oslo.", "The user has two cats."):
        await world.app.memory.upsert("local", "companion", MemoryCandidate(fact))
    count = await remembered(world)
    before = await left(world, where)
    question = await asked(world, where, "/forget")
    text = shown(question.text)
    assert f"all my memories about you ({count})" in text
    assert "all messages of this chat" in text
    assert re.search(r"planned follow-ups \([12]\)", text)
    assert "muted or not, follow-ups on or off" in text
    assert "can't be undone" in text
    assert "/forget yes" in text
    _, no = pressed(question)
    answer = await press_button(no, await found(world, where), ANA, must_not_be_asked, make_context(world))
    assert answer is not None
    assert answer.text.startswith("Nothing was erased")
    assert (await left(world, where), await remembered(world)) == (before, count)


async def test_a_confirmed_chat_is_forgotten_with_what_was_remembered_and_nothing_else(world: World) -> None:
    where, elsewhere = await full(world), await full(world)
    await world.app.memory.upsert("local", "companion", MemoryCandidate("The user lives in Oslo."))
    await world.app.memory.upsert("local", "librarian", MemoryCandidate("The user lives in Oslo."))
    await world.app.memory.upsert("somebody", "companion", MemoryCandidate("The user lives in Rome."))
    kept = await left(world, elsewhere)
    yes, _ = pressed(await asked(world, where, "/forget"))
    answer = await press_button(yes, await found(world, where), ANA, must_not_be_asked, make_context(world))
    assert answer is not None
    assert answer.text.startswith("Erased: all messages of this chat")
    assert "memories about you" in answer.text
    assert await left(world, where) == [(0, 0, 0, 0)]
    assert await left(world, elsewhere) == kept
    assert await remembered(world) == 0
    assert (await remembered(world, agent="librarian"), await remembered(world, "somebody")) == (1, 1)


async def test_pressed_twice_is_forgotten_once(world: World) -> None:
    where = await full(world)
    conversation = await found(world, where)
    yes, _ = pressed(await asked(world, where, "/forget"))
    assert await press_button(yes, conversation, ANA, must_not_be_asked, make_context(world)) is not None
    # A second press arrives at the same time, and a third one days later, when there are new messages.
    again = await press_button(yes, conversation, ANA, must_not_be_asked, make_context(world))
    assert again is not None
    assert again.text.startswith("Erased")
    anew = await full(world)
    await world.app.memory.upsert("local", "companion", MemoryCandidate("The user lives in Oslo."))
    kept, count = await left(world, anew), await remembered(world)
    late = await press_button(yes, await found(world, anew), ANA, must_not_be_asked, make_context(world))
    assert late is not None
    assert late.text == "This chat was erased already."
    assert (await left(world, anew), await remembered(world)) == (kept, count)


async def test_forgetting_can_be_confirmed_without_the_button(world: World) -> None:
    where = await full(world)
    conversation = await found(world, where)
    order = Command("forget", " YES ", conversation, ANA, must_not_be_asked, None, "my_cool_bot", COMPANION)
    for _ in range(2):  # it comes twice after a crash
        answer = await run_command(order, make_context(world))
        assert answer is not None
        assert answer.text.startswith("Erased")
        assert not answer.buttons
    assert await left(world, where) == [(0, 0, 0, 0)]
    other = await full(world)
    assert "/forget yes" in await told(world, other, "/forget everything")
    assert (await left(world, other))[0][0] == 1


async def test_what_is_being_answered_is_forgotten_too(world: World) -> None:
    where = await world.conversation()
    step = world.model.will_wait("noted")
    await world.worker.accept(Incoming("local", where, "My name is Ana and I live in Oslo."))
    await step.begun.wait()
    await asked(world, where, "/forget yes")
    step.go_on()
    await world.drain()
    assert await left(world, where) == [(0, 0, 0, 0)]
    assert await remembered(world) == 0


@dataclass
class Eventful:
    """A core in which something happens while a conversation is erased."""

    world: World
    happens: Callable[[], Awaitable[object]]

    async def accept(self, incoming: Incoming, *, listen: bool = False) -> Ticket:
        return await self.world.worker.accept(incoming, listen=listen)

    async def cancel(self, owner_id: str, conversation_id: str) -> bool:
        return await self.world.worker.cancel(owner_id, conversation_id)

    async def erase(self, owner_id: str, conversation_id: str) -> None:
        await self.happens()
        await self.world.worker.erase(owner_id, conversation_id)


async def test_forgetting_is_finished_by_the_next_attempt(world: World) -> None:
    where = await full(world)
    await world.app.memory.upsert("local", "companion", MemoryCandidate("The user lives in Oslo."))
    yes, _ = pressed(await asked(world, where, "/forget"))

    async def fails() -> None:
        raise Transient("The database can't be reached right now.")

    desk = CommandContext(replace(world.app.core, runner=Eventful(world, fails)), autonomy=True)
    with pytest.raises(Transient):
        await press_button(yes, await found(world, where), ANA, must_not_be_asked, desk)
    assert (await left(world, where))[0][0] == 1
    assert await press_button(yes, await found(world, where), ANA, must_not_be_asked, make_context(world)) is not None
    assert (await left(world, where), await remembered(world)) == ([(0, 0, 0, 0)], 0)


async def test_a_memory_stored_during_forgetting_is_forgotten_too(world: World) -> None:
    where = await full(world)
    late = MemoryCandidate("The user lives in Oslo.")
    runner = Eventful(world, lambda: world.app.memory.upsert("local", "companion", late))
    order = Command("forget", "yes", await found(world, where), ANA, must_not_be_asked, None, "my_cool_bot", COMPANION)
    assert await run_command(order, CommandContext(replace(world.app.core, runner=runner), autonomy=True)) is not None
    assert await remembered(world) == 0


@pytest.mark.parametrize("command", ["/forget", "/forget yes"])
async def test_only_an_admin_lets_a_group_be_forgotten(world: World, command: str) -> None:
    where = await full(world, kind="group")
    refused = await asked(world, where, command, is_admin=never)
    assert shown(refused.text) == "Only an admin of this group can do that."
    assert not refused.buttons
    assert (await left(world, where))[0][0] == 1


async def test_a_group_is_forgotten_by_the_admin_who_asked(world: World) -> None:
    where = await full(world, kind="group")
    await world.app.memory.upsert("local", "companion", MemoryCandidate("The user lives in Oslo."))
    question = await asked(world, where, "/forget", is_admin=always)
    assert "all messages of this group" in question.text
    assert "remember" not in question.text
    yes, no = pressed(question)
    here = await found(world, where)
    for data in (yes, no):
        assert await press_button(data, here, BEN, always, make_context(world)) is None, "another admin's question"
        assert await press_button(data, here, ANA, never, make_context(world)) is None, "no admin any more"
    assert (await left(world, where))[0][0] == 1
    answer = await press_button(yes, here, ANA, always, make_context(world))
    assert answer is not None
    assert "all messages of this group" in answer.text
    assert await left(world, where) == [(0, 0, 0, 0)]
    assert await remembered(world) == 1, "what one person told it alone is not the group's to erase"


async def test_an_anonymous_admin_may_confirm_as_a_person(world: World) -> None:
    """An admin who stays anonymous has no id of their own until they press."""
    where = await full(world, kind="group")
    group = Author("channel1009999999999", "The group")
    yes, _ = pressed(await asked(world, where, "/forget", by=group, is_admin=always))
    here = await found(world, where)
    assert await press_button(yes, here, BEN, never, make_context(world)) is None
    assert await press_button(yes, here, BEN, always, make_context(world)) is not None
    assert await left(world, where) == [(0, 0, 0, 0)]


async def test_a_button_fits_what_the_platform_hands_back(world: World) -> None:
    where = await world.conversation()
    for longest in (f"user{2**52}", f"user{2**63 - 1}", f"channel{10**13 - 1}"):
        pressed(await asked(world, where, "/forget", by=Author(longest, "Ana")))


@every_case("data", ["", "forget", "forget:yes", "forget:maybe:user1:x", "other:yes:user1:x", "forget:yes:user1:x:y"])
async def test_what_is_no_button_of_ours_does_nothing(world: World, data: str) -> None:
    where = await full(world)
    assert await press_button(data, await found(world, where), ANA, must_not_be_asked, make_context(world)) is None
    assert (await left(world, where))[0][0] == 1


# ---- why I said that


async def test_a_reply_is_explained_by_what_it_was_made_from(world: World) -> None:
    group, first = await challenge(world)
    reply = await world.says(group, "@bot is this still open?", author=DAN, reply_to_id=first)
    answer = await message(world, group, reply["id"])
    text = await told(world, group, "/why", replied_to=answer, is_reply=True)
    assert text.startswith(
        "That was my answer to what Dan said: “@\u2060bot is this still open?”. I used these messages:"
    )
    line = next(line for line in text.splitlines() if line.startswith("Ann"))
    assert re.fullmatch(
        r"Ann, \w{3} \d+ \w{3}(?: \d{4})?, \d\d:\d\d: “We should look at the restaurant for the gathering” – Dan replied to it",
        line,
    )
    assert "Times are UTC." in text
    assert text.count("is this still open") == 1
    own = await told(world, group, "/why", replied_to=answer, by=Author("dan", "Dan"))
    assert "answer to what you said" in own
    assert "– you replied to it" in own
    assert own.replace("you", "Dan") == text


async def test_without_a_reply_it_is_the_latest_answer(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "Which tent is lighter?")
    await world.says(where, "And which one is blue?")
    text = await told(world, where, "/why")
    assert text.startswith("That was my answer to what you said: “And which one is blue?”. I used the latest messages:")
    assert re.search(r"^you, \d\d:\d\d: “Which tent is lighter\?”$", text, re.MULTILINE)
    assert re.search(r"^me, \d\d:\d\d: “re: Which tent is lighter\?”$", text, re.MULTILINE)


async def test_in_a_topic_it_is_the_latest_answer_there(world: World) -> None:
    group = await world.conversation(kind="group")
    await world.says(group, "@bot tents?", author=DAN, thread_id="7")
    await world.says(group, "@bot cheese?", author=DAN, thread_id="8")
    assert "“@\u2060bot tents?”" in await told(world, group, "/why", thread_id="7")
    assert "“@\u2060bot cheese?”" in await told(world, group, "/why", thread_id="8")
    assert "“@\u2060bot cheese?”" in await told(world, group, "/why")
    assert await told(world, group, "/why", thread_id="9") == NOTHING_SAID


async def test_what_cant_be_explained_gets_a_sentence(world: World) -> None:
    group = await world.conversation(kind="group")
    assert await told(world, group, "/why") == NOTHING_SAID
    line = await said(world, group, DAN, 5, "lunch?")
    await world.says(group, "@bot hello", author=DAN)
    somebodys = await message(world, group, line)
    assert await told(world, group, "/why", replied_to=somebodys, is_reply=True) == HOW_TO_ASK
    assert await told(world, group, "/why", is_reply=True) == HOW_TO_ASK, "what it replies to is not known here"


async def test_the_tools_of_other_programs_are_named_with_what_became_of_the_call(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "Write it down.")
    tools = [{"name": "files__write_all", "server": "files", "state": "unknown"}]
    await world.sql("UPDATE messages SET metadata = metadata || %s WHERE role = 'assistant'", Jsonb({"tools": tools}))
    assert "Tools that I used: write_all of files (outcome not known)." in await told(world, where, "/why")


@every_case(
    ("kind", "words"),
    [
        ("check_in", "to pick up our conversation"),
        ("question_unanswered", "about a question of mine"),
        ("task_incomplete", "about a task that is still open"),
        ("waiting_for_decision", "about a decision that is still open"),
    ],
)
async def test_what_was_said_unasked_says_so_and_shows_no_machinery(
    world: World, kind: TriggerType, words: str
) -> None:
    where = await world.conversation()
    await world.says(where, "I'll call the bank")
    await world.silence(where, kind, reason="a secret reason")
    text = await told(world, where, "/why")
    assert text.startswith(f"I wrote that on my own, {words}. I used the latest messages:")
    assert "I'll call the bank" in text
    assert "secret" not in text
    assert not any(prompt in text for prompt in PROMPTS.values())
    # A second one has the first before it, and not what made it speak.
    await world.sql("UPDATE conversations SET last_followup_at = last_followup_at - interval '1 hour'")
    assert (await world.silence(where, "check_in")).state == "delivered"
    text = await told(world, where, "/why")
    assert text.count("How is it going?") == 1
    assert not any(prompt in text for prompt in PROMPTS.values())


async def test_notes_and_memories_are_named_to_whom_they_belong(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "title": "Refunds & returns", "text": REFUNDS})
    await world.app.memory.create("local", "companion", MemoryCandidate("The user sends *goods* back all the time."))
    where = await world.conversation()
    world.model.will_say("Within 30 days. [source: refunds]")
    reply = await world.says(where, HOW_LONG)
    assert reply["sources"]
    text = await told(world, where, "/why")
    assert "I used no other messages." in text
    assert "Notes that I used: “Refunds & returns” (quoted in the answer)." in text
    assert "Memories that I used: “The user sends *goods* back all the time.”." in text
    assert "Times are" not in text
    await world.http.delete("/api/notes/refunds")
    await world.app.memory.delete_all("local", "companion")
    gone = await told(world, where, "/why")
    assert "Notes" not in gone
    assert "remembered" not in gone


async def test_a_group_never_sees_what_is_remembered_about_anybody(world: World) -> None:
    memory = await world.app.memory.create("local", "companion", MemoryCandidate("The user is allergic to peanuts."))
    group = await world.conversation(kind="group")
    reply = await world.says(group, "@bot peanuts?", author=DAN)
    # No turn does this; if one ever did, this check would still stop it.
    await world.sql(
        "UPDATE messages SET metadata = metadata || jsonb_build_object('memories',"
        " jsonb_build_array(jsonb_build_object('id', %s::text, 'score', 0.9))) WHERE id = %s",
        memory.id,
        reply["id"],
    )
    text = await told(world, group, "/why")
    assert "peanuts?" in text
    assert "allergic" not in text
    assert "remembered" not in text


async def test_a_group_hears_of_the_notes_that_an_answer_cites_and_of_no_others(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "title": "Refunds", "text": REFUNDS})
    await world.http.post(
        "/api/notes", json={"id": "divorce", "title": "My divorce", "text": "The lawyer calls on Monday."}
    )
    group = await world.conversation(kind="group")
    world.model.will_say("Within 30 days. [source: refunds]", "I have no idea.")
    await world.says(group, f"@bot {HOW_LONG}", author=DAN)
    assert {"refunds", "divorce"} <= {one["id"] for one in (await retrieved(world, group))}
    assert "Notes that I used: “Refunds” (quoted in the answer)." in await told(world, group, "/why")
    await world.says(group, f"@bot {HOW_LONG}", author=DAN)
    assert await retrieved(world, group)
    assert "Notes" not in await told(world, group, "/why")


async def retrieved(world: World, where: str) -> list[dict[str, Any]]:
    rows = await world.sql(
        "SELECT metadata -> 'retrieved' FROM messages WHERE conversation_id = %s AND role = 'assistant'"
        " ORDER BY created_at DESC LIMIT 1",
        where,
    )
    return rows[0][0]


async def test_an_old_message_that_only_the_reply_has_brought_along_is_shown(world: World) -> None:
    group = await world.conversation(kind="group")
    snapshot = {
        "author": {"id": "user7", "name": "Eve"},
        "text": "The cabin has no heating",
        "created_at": "2020-01-06T09:00:00Z",
    }
    await world.says(group, "@bot what now?", author=DAN, context_snapshot=snapshot)
    text = await told(world, group, "/why")
    assert "Eve, Mon 6 Jan 2020, 09:00: “The cabin has no heating” – Dan replied to it" in text


async def test_an_answer_without_a_record_says_so(world: World) -> None:
    group, _ = await challenge(world)
    reply = await world.says(group, "@bot what do you think?", author=DAN)
    await world.sql("UPDATE messages SET metadata = metadata - 'context' WHERE id = %s", reply["id"])
    assert "I have no record of the messages that I used. Now I would use:" in await told(world, group, "/why")


async def test_other_peoples_words_format_nothing_and_call_nobody(world: World) -> None:
    group = await world.conversation(kind="group")
    evil = {"id": "user66", "name": "# [Eve](http://evil.example) **"}
    await said(
        world, group, evil, 3, "<b>hi</b> @ben_b [click](http://evil.example) `code`\n- list\n# head & ~~x~~ ![i](u)"
    )
    await world.says(group, "@bot ^", author=evil)
    notice = await asked(world, group, "/why")
    rendered = html(notice.text)
    assert not re.search(r"<(a|img|code|h1|b|em|del)\b", rendered)
    text = shown(notice.text)
    assert "# [Eve](http://evil.example) **" in text
    assert "<b>hi</b> @\u2060ben_b [click](http://evil.example) `code` - list # head & ~~x~~ " in text
    assert "@ben_b" not in text


async def test_a_long_explanation_is_shortened(world: World) -> None:
    group = await world.conversation(kind="group")
    for number in range(30):
        author = {"id": f"user{number}", "name": f"{'*' * 50}{number}"}
        await said(world, group, author, 30 - number, f"tent {number} " + "_*~`" * 300)
    await world.says(group, "@bot what about the tents, all of you said tent?", author=DAN)
    await world.sql(
        "UPDATE messages SET metadata = jsonb_set(metadata, '{context,messages}', (SELECT jsonb_agg(jsonb_build_object("
        "'id', id, 'reasons', jsonb_build_array('session'), 'score', 0.5)) FROM messages WHERE role = 'user'))"
        " WHERE role = 'assistant'"
    )
    notice = await asked(world, group, "/why")
    text = shown(notice.text)
    assert html(notice.text).count("<li>") == 11
    assert "… and 21 more" in text
    assert "tent 29" in text
    assert "tent 3 " not in text
    assert len(text) <= 3_000


async def test_the_highest_scored_messages_are_shown_of_many(world: World) -> None:
    group = await world.conversation(kind="group")
    ids = await crowd(world, group, 40, text="tent")
    await world.says(group, "@bot tents?", author=DAN)
    picked = [
        {"id": one, "reasons": ["anchor" if number == 3 else "semantic"], "score": 0.1 if number in {3, 20} else 0.5}
        for number, one in enumerate(ids)
    ]
    await world.sql(
        "UPDATE messages SET metadata = jsonb_set(metadata, '{context,messages}', %s) WHERE role = 'assistant'",
        Jsonb(picked),
    )
    text = await told(world, group, "/why")
    assert re.findall(r"“tent (\d+)”", text) == ["4", *(str(number) for number in range(32, 41))]
    assert "– similar in meaning" in text
    assert "… and 30 more" in text


# ---- words


@every_case("text", ["plain", "1. one", "- x", "a_b_c *d* **e**", "\\", "&amp; <i>", "| a |", "=", "[source: x]"])
def test_escaped_text_shows_as_it_is(text: str) -> None:
    assert shown(escape_markdown(text)) == text
    assert shown(f"- **{quote(text)}**, “{quote(text)}”") == f"{text}, “{text}”"


async def test_a_server_without_follow_ups_says_so(database_url: str) -> None:
    """The commands report the setting of the whole server."""
    async with open_world(database_url, autonomy=False) as world:
        where = await world.conversation()
        await world.says(where, "I'll call the bank")
        assert (await world.silence(where)).gate == "server"
        assert "off on this server" in await told(world, where, "/followups", autonomy=world.settings.autonomy)


# ---- /agent


async def make_agent(world: World, agent_id: str, owner: str = "local", **fields: Any) -> None:
    document = read_document({"id": agent_id, "name": agent_id.title(), "persona": f"You are {agent_id}.", **fields})
    await world.app.core.agents.create(Caller(owner, choose_default_role(owner)), document)


async def test_somebody_sees_who_answers_and_chooses_another_agent(world: World) -> None:
    await make_agent(world, "chef", description="Cooks *well*.")
    await make_agent(world, "hers", owner="ana")
    where = await world.conversation()
    before = await told(world, where, "/agent")
    assert before.startswith("Companion (companion) answers here. Talks with you")
    assert before.endswith("Others: /agent librarian, /agent chef")
    assert await told(world, where, "/agent CHEF") == "Chef (chef) answers here from the next message on."
    assert (await told(world, where, "/agent")).startswith("Chef (chef) answers here. Cooks *well*.")
    await world.says(where, "hello")
    assert str(world.model.calls[-1][0].text).startswith("You are chef.")
    refused = await told(world, where, "/agent hers")
    assert refused == "There is no agent 'hers'; there are companion, librarian, chef."
    assert (await found(world, where)).agent_id == "chef"


async def test_only_an_admin_chooses_the_agent_of_a_group(world: World) -> None:
    where = await world.conversation(kind="group")
    assert await told(world, where, "/agent librarian", is_admin=never) == FOR_ADMINS
    assert (await told(world, where, "/agent", is_admin=never)).startswith("Companion (companion) answers here.")
    assert (await found(world, where)).agent_id == "companion"
    chosen = await told(world, where, "/agent librarian", is_admin=always)
    assert chosen == "Librarian (librarian) answers here from the next message on."


async def test_a_follow_up_of_the_agent_before_is_not_sent_by_the_new_one(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "I can't decide between Rome and Oslo for the summer.")
    await waits(world, where, "check_in", 60)
    origins = "SELECT origin FROM timers WHERE state = 'pending' ORDER BY origin"
    assert await world.sql(origins) == [("planner",), ("user",)]
    await told(world, where, "/agent librarian")
    assert await world.sql(origins) == [("user",)]

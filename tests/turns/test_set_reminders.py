"""Test the reminders that a model sets with its answer: said, stored together, and in the asker's own words only (REM-3)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rapport.agents.tools.recorded import MAX_REMINDERS_PER_TURN
from rapport.domain.reminder import MAX_REMINDERS
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.cases import every_case
from tests.support.file_tools import FileTools
from tests.support.world import World, open_world
from tests.turns.test_memory import said, streamed
from tests.turns.test_outside_calls import approvals, begin, decide

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)  # a Thursday
ANN, EVE = {"id": "ann", "name": "Ann"}, {"id": "eve", "name": "Eve"}
CALL_MUM = "Remind me tomorrow at nine to call mum."

listening_or_not = pytest.mark.parametrize("listening", [False, True], ids=["plain", "streamed"])


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel, clock: Clock) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model), now=clock) as opened:
        yield opened


@pytest.fixture
async def here(world: World) -> str:
    """A conversation of somebody in Vienna."""
    await prefer(world)
    return await world.conversation()


async def prefer(world: World, **more: str) -> None:
    answer = await world.http.put("/api/preferences", json={"time_zone": "Europe/Vienna", **more})
    assert answer.status_code == 200, answer.text


def sets(text: str, **more: Any) -> ToolCall:
    """Return a call that sets a reminder, at nine on the next day unless it is told otherwise."""
    when = {} if "at" in more or "rrule" in more else {"at": "2026-11-20T09:00"}
    return ToolCall("set_reminder", json.dumps({"text": text, **when, **more}))


async def reminders(world: World) -> list[dict[str, Any]]:
    response = await world.http.get("/api/reminders")
    assert response.status_code == 200, response.text
    return response.json()["reminders"]


@listening_or_not
async def test_one_call_answers_and_sets_it_and_the_reply_says_the_time(
    world: World, model: ScriptedModel, here: str, *, listening: bool
) -> None:
    model.answers.append(Uses([sets("call mum")], "Will do."))
    reply = await said(world, here, CALL_MUM, listening=listening)
    assert reply["content"] == "Will do.\n\n(Reminder set: Fri 20 Nov 2026, 09:00 (Europe/Vienna) — “call mum”.)"
    [reminder] = await reminders(world)
    assert (reminder["text"], reminder["due_at"], reminder["conversation_id"]) == (
        "call mum",
        "2026-11-20T08:00:00Z",
        here,
    )
    assert len(model.calls) == 1


async def test_a_stream_says_exactly_what_is_stored(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append(Uses([sets("call mum")], "Of course, I will do that \n"))
    tokens, final = await streamed(world, here, CALL_MUM)
    assert tokens.endswith("— “call mum”.)")
    assert tokens == final["content"] == (await world.history(here))[-1]["content"]


async def test_a_recurrence_is_said_in_words_and_quiet_hours_are_named(
    world: World, model: ScriptedModel, here: str
) -> None:
    await prefer(world, quiet_from="22:00", quiet_to="07:30")
    weekly = sets("Take out the bins", at="2026-11-20T06:00", rrule="FREQ=WEEKLY;BYDAY=FR")
    model.answers.append(Uses([weekly], "Every Friday."))
    reply = await world.says(here, "Every Friday at six, remind me: take out the bins")
    assert reply["content"].splitlines()[-1] == (
        "(Reminder set: Fri 20 Nov 2026, 06:00 (Europe/Vienna), every week on Friday — “Take out the bins”."
        " It waits for the end of your quiet hours: Fri 20 Nov 2026, 07:30.)"
    )
    assert [each["due_at"] for each in await reminders(world)] == ["2026-11-20T06:30:00Z"]


async def test_without_a_known_zone_the_line_says_which_is_used_and_how_to_change_it(
    world: World, model: ScriptedModel
) -> None:
    model.answers.append(Uses([sets("call mum")], "Yes."))
    reply = await world.says(await world.conversation(), CALL_MUM)
    assert "09:00 (UTC) — “call mum”. Your time zone is not known, so this is UTC" in reply["content"]
    model.answers.append(Uses([sets("call mum", zone="Asia/Tokyo")], "Yes."))
    reply = await world.says(await world.conversation(), f"{CALL_MUM} In Tokyo.")
    assert reply["content"].endswith("09:00 (Asia/Tokyo) — “call mum”.)")


async def test_a_moment_with_an_offset_stays_one(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append(Uses([sets("check the oven", at="2026-11-19T15:00:00+01:00")], "Yes."))
    await world.says(here, "check the oven in two hours, remind me")
    await world.http.put("/api/preferences", json={"time_zone": "Asia/Tokyo"})
    assert [each["due_at"] for each in await reminders(world)] == ["2026-11-19T14:00:00Z"]


async def test_a_muted_conversation_says_that_it_is_held_back(world: World, model: ScriptedModel, here: str) -> None:
    await world.sql("UPDATE conversations SET muted_until = clock_timestamp() + interval '9 days' WHERE id = %s", here)
    model.answers.append(Uses([sets("call mum")], "Yes."))
    assert "This conversation is muted" in (await world.says(here, CALL_MUM))["content"]


@every_case(
    ("arguments", "sentence"),
    (
        ({"at": "2026-11-19T09:00"}, "the time is in the past: there it is 2026-11-19 13:00 now"),
        ({"rrule": "FREQ=MINUTELY"}, "at most one an hour"),
        ({"zone": "Mars/Base"}, "There is no time zone"),
        ({"at": None}, "Say when it is due"),
        ({"at": "tomorrow"}, "must be a time in ISO 8601"),
        ({"at": "9999-01-01T00:00"}, "within 50 years"),
        ({"at": 9}, "must be a text"),
        ({"rrule": "every day"}, "is not a valid rule"),
        ({"text": "wire the money to Eve"}, "Only what the person wrote"),
    ),
)
async def test_what_can_not_be_is_refused_in_one_sentence(
    world: World, model: ScriptedModel, here: str, arguments: dict[str, Any], sentence: str
) -> None:
    model.answers.append(Uses([sets(**{"text": "call mum", **arguments})], "Done!"))
    reply = await world.says(here, "tomorrow at nine call mum")
    line = reply["content"].splitlines()[-1]
    assert line.startswith("(No reminder was set: ")
    assert sentence in line
    assert await reminders(world) == []


async def test_a_model_that_says_nothing_else_reads_the_result_and_may_correct_itself(
    world: World, model: ScriptedModel, here: str
) -> None:
    model.answers += [
        Uses([sets("call mum", at="2026-11-18T09:00")]),
        Uses([sets("call mum")]),
        "Tomorrow at nine it is.",
    ]
    reply = await world.says(here, CALL_MUM)
    results = [text for role, text in model.calls[-1].window if role == "tool"]
    assert results == [
        "Not set: `at` is in the past: there it is 2026-11-19 13:00 now.",
        "Set for Fri 20 Nov 2026, 09:00 (Europe/Vienna). The user reads that below your answer.",
    ]
    assert reply["content"].startswith("Tomorrow at nine it is.\n\n(Reminder set: ")
    assert "No reminder was set" not in reply["content"]
    assert len(await reminders(world)) == 1


async def test_at_most_five_in_one_turn_and_the_same_one_once(world: World, model: ScriptedModel, here: str) -> None:
    calls = [sets("call mum", at=f"2026-11-2{day}T09:00") for day in (0, 0, 1, 2, 3, 4, 5)]
    model.answers.append(Uses(calls, "Yes."))
    content = (await world.says(here, CALL_MUM))["content"]
    assert content.count("(Reminder set: ") == len(await reminders(world)) == MAX_REMINDERS_PER_TURN
    assert content.endswith("(No reminder was set: One message may set at most 5 reminders.)")


async def test_too_many_waiting_are_refused_in_the_reply(world: World, model: ScriptedModel, here: str) -> None:
    await world.sql(
        "INSERT INTO reminders (conversation_id, id, owner_id, text, local_at, due_at)"
        " SELECT %s, 'id-' || n, 'local', 'x', now() + interval '1 day', now() + interval '1 day' FROM generate_series(1, %s) n",
        *(here, MAX_REMINDERS),
    )
    model.answers.append(Uses([sets("call mum")], "Yes."))
    assert "(No reminder was set: 10,000 reminders wait already" in (await world.says(here, CALL_MUM))["content"]
    assert await world.sql("SELECT count(*) FROM reminders") == [(MAX_REMINDERS,)]


@every_case(
    ("text", "message", "stored"),
    (
        ("call mum", CALL_MUM, "call mum"),
        ("Zahnarzt anrufen", "remind me to see the dentist", "remind me to see the dentist"),
        ("call mum", "remind me not to call mum", "remind me not to call mum"),
        ("call mum about money", CALL_MUM, CALL_MUM),
        ("dentist", "Erinnere mich morgen um neun an den Zahnarzt", "Erinnere mich morgen um neun an den Zahnarzt"),
        ("pay", "Remind me tomorrow\n> pay Eve", "Remind me tomorrow"),
    )
)  # fmt: skip
async def test_the_text_is_the_persons_own_words_or_their_whole_message(
    world: World, model: ScriptedModel, text: str, message: str, stored: str
) -> None:
    conversation = await world.conversation()
    model.answers.append(Uses([sets(text)], "Yes."))
    await world.says(conversation, message)
    assert [each["text"] for each in await reminders(world) if each["conversation_id"] == conversation] == [stored]


async def test_words_of_an_earlier_message_count(world: World, model: ScriptedModel, here: str) -> None:
    await world.says(here, "I have to call the landlord about the heating.")
    model.answers.append(Uses([sets("call the landlord about the heating")], "Yes."))
    await world.says(here, "Tell me again tomorrow at nine.")
    assert [each["text"] for each in await reminders(world)] == ["call the landlord about the heating"]


async def test_in_a_group_it_is_the_askers_and_for_all_or_for_them_alone(world: World, model: ScriptedModel) -> None:
    group = await world.conversation(kind="group")
    await prefer(world)
    await world.post(group, "I must pay the rent.", author=EVE)
    calls = [sets("order pizza"), sets("call mum", personal=True), sets("pay the rent")]
    model.answers.append(Uses(calls, "Yes."))
    reply = await world.says(group, "@bot tomorrow at nine: order pizza, and for me call mum", author=ANN)
    assert '"personal"' in model.calls[-1].body
    for line in (
        "(Reminder set: Fri 20 Nov 2026, 09:00 (Europe/Vienna) — “order pizza”.)",
        "(Reminder set for Ann: Fri 20 Nov 2026, 09:00 (Europe/Vienna) — “call mum”.)",
        "(No reminder was set: Only what the person wrote themselves can be a reminder.)",
    ):
        assert line in reply["content"]
    stored = await world.sql("SELECT text, author_id, author_name, is_personal FROM reminders ORDER BY id")
    assert sorted(stored) == [("call mum", "ann", "Ann", True), ("order pizza", "ann", "Ann", False)]


async def test_a_reply_that_is_not_stored_sets_nothing(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append(Uses([sets("call mum")]))
    model.replies = {}
    model.obey = lambda call: None if len(model.calls) == 1 else ""
    reply = await world.says(here, CALL_MUM)
    assert "Reminder set" not in reply["content"]
    assert await reminders(world) == []


async def test_a_conversation_that_is_not_kept_and_a_strict_agent_offer_none(
    world: World, model: ScriptedModel
) -> None:
    await world.http.post(
        "/v1/chat/completions", json={"model": "companion", "messages": [{"role": "user", "content": CALL_MUM}]}
    )
    assert "set_reminder" not in model.calls[-1].tools
    assert "can't set reminders" in model.calls[-1].told
    await world.says(await world.conversation(), CALL_MUM)
    assert "set_reminder" in model.calls[-1].tools
    assert "can't set reminders" not in model.calls[-1].told
    assert "set reminders with your tool" in model.calls[-1].told
    await world.http.post("/api/notes", json={"text": "Refunds take 30 days, and reminders of mum too."})
    await world.says(await world.conversation(agent_id="librarian"), "How long do refunds take?")
    assert "set_reminder" not in model.calls[-1].tools


async def test_a_model_that_imitates_the_line_is_contradicted(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append("(Reminder set: Fri 20 Nov 2026, 09:00 (Europe/Vienna) — “call mum”.)")
    assert (await world.says(here, "And now?"))["content"].endswith("\n\n(With this reply no reminder was set.)")
    assert await reminders(world) == []
    model.answers.append(Uses([sets("call mum")], "(Reminder set: never)"))
    content = (await world.says(here, CALL_MUM))["content"]
    assert content.startswith(
        "(Reminder set: never)\n\n(With this reply, only the following was set.)\n\n(Reminder set: Fri"
    )


async def test_quoted_words_in_the_line_cite_nothing(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append(Uses([sets("read [source: refunds]")], "Yes."))
    reply = await world.says(here, "remind me tomorrow at nine: read [source: refunds]")
    assert "[source" not in reply["content"]
    assert [each["text"] for each in await reminders(world)] == ["read [source: refunds]"]


async def test_it_fires_with_the_words_and_is_not_cancelled_by_talking(
    world: World, model: ScriptedModel, clock: Clock
) -> None:
    clock.at = datetime.now(UTC)
    here = await world.conversation()
    soon = (clock.at + timedelta(minutes=5)).isoformat()
    model.answers.append(Uses([sets("call mum", at=soon)], "Yes."))
    await world.says(here, "in five minutes, call mum")
    await world.says(here, "Something else.")
    assert [each["state"] for each in await reminders(world)] == ["waiting"]


# ---- without a model that calls tools


@pytest.fixture
async def plain(database_url: str, clock: Clock) -> AsyncGenerator[World]:
    async with open_world(database_url, now=clock) as opened:
        yield opened


@listening_or_not
async def test_rules_set_what_is_asked_for_in_clear_words(plain: World, *, listening: bool) -> None:
    await prefer(plain)
    here = await plain.conversation()
    plain.model.will_say("I will see to it.")
    reply = await said(plain, here, "Hi! Remind me every Monday at 8am to take out the bins.", listening=listening)
    assert reply["content"] == (
        "I will see to it.\n\n"
        "(Reminder set: Mon 23 Nov 2026, 08:00 (Europe/Vienna), every week on Monday — “take out the bins”.)"
    )
    assert [each["due_at"] for each in await reminders(plain)] == ["2026-11-23T07:00:00Z"]
    assert "The server sets reminders that name a clear time" in str(plain.model.prompts[-1][0].text)


async def test_rules_say_what_can_not_be_and_leave_vague_words_to_the_model(plain: World) -> None:
    await prefer(plain)
    here = await plain.conversation()
    reply = await plain.says(here, "Remind me today at 8:00 to call Ben")
    assert reply["content"].endswith(
        "(No reminder was set: the time is in the past: there it is 2026-11-19 13:00 now.)"
    )
    for vague in ("Remind me later to call mum.", "Remind me next week to call mum.", "Remind me never to fly at 9."):
        assert (await plain.says(here, vague))["content"] == f"re: {vague}"
    assert await reminders(plain) == []


async def test_rules_read_only_the_askers_own_message(plain: World) -> None:
    group = await plain.conversation(kind="group")
    await prefer(plain)
    first = (await plain.post(group, "Remind me tomorrow at nine to pay Eve.", author=EVE)).json()
    await plain.says(group, "@bot what is that?", author=ANN, reply_to_id=first["id"])
    await plain.says(group, "@bot look:\n> Remind me tomorrow at nine to pay Eve.", author=ANN)
    assert await reminders(plain) == []
    await plain.says(group, "@bot remind us tomorrow at nine to pay Ben", author=ANN)
    assert await plain.sql("SELECT text, author_id, is_personal FROM reminders") == [("pay Ben", "ann", False)]


async def test_an_agent_without_the_tool_has_no_rules_either(plain: World) -> None:
    document: dict[str, Any] = {
        "id": "mute",
        "name": "Mute",
        "persona": "You are somebody who never sets any reminders.",
        "tools": [],
    }
    assert (await plain.http.post("/api/agents", json=document)).status_code == 201
    await plain.says(await plain.conversation(agent_id="mute"), CALL_MUM)
    assert "can't set reminders" in str(plain.model.prompts[-1][0].text)
    assert await reminders(plain) == []


async def test_a_model_that_calls_tools_decides_and_no_rule_does(world: World, model: ScriptedModel, here: str) -> None:
    model.answers.append(Uses([sets("call mum")], "Yes."))
    await world.says(here, CALL_MUM)
    await world.says(here, "Remind me on Friday at 11 to call Ben.")
    assert [each["text"] for each in await reminders(world)] == ["call mum"]


async def test_a_turn_that_waits_for_a_decision_sets_it_with_its_last_reply(
    database_url: str, model: ScriptedModel, clock: Clock
) -> None:
    async with open_world(database_url, model=chat_model(model), now=clock, tool_source=FileTools()) as world:
        await prefer(world)
        clerk = await begin(world, tools=["files__*", "set_reminder"])
        write = ToolCall("files__write", json.dumps({"path": "a.txt"}))
        model.answers += [Uses([sets("call mum")]), Uses([write]), "Written."]
        asked = await world.says(clerk, f"{CALL_MUM} And write a.txt.")
        assert "Reminder set" not in asked["content"]
        assert await reminders(world) == []
        [call] = await approvals(world, clerk)
        await decide(world, clerk, call["id"], "allow")
        await world.drain()
        last = (await world.history(clerk))[-1]["content"]
        assert last == "Written.\n\n(Reminder set: Fri 20 Nov 2026, 09:00 (Europe/Vienna) — “call mum”.)"
        assert len(await reminders(world)) == 1
